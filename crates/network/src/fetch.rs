//! Fetches a page through the guard.
//!
//! HTTP/1.1, one connection per request; redirects are checked like the first request. Proxies of the
//! environment are ignored: they would connect where the guard cannot check.

mod base;
mod body;
mod error;
mod exchange;
mod request;
mod trust;
mod url;

#[cfg(test)]
mod tests;

pub use base::{BaseUrl, Chosen, ParseBaseUrlError};
pub use body::Body;
pub use error::{FetchCause, FetchError, FetchErrorKind, TlsFault};
pub use exchange::{Page, Sink, receive, secure, send};
pub use request::{FetchRequest, RequestError};
pub use trust::{Trust, TrustError};
pub use url::{ParseUrlError, Scheme, Url};

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use hyper::header::HeaderMap;
use tokio::time::timeout_at;

use crate::egress::{Attempt, AttemptLog, Guard};

/// A fetcher of pages that a guard allows.
#[derive(Debug)]
pub struct Fetcher {
    guard: Arc<Guard>,
    trust: Trust,
}

#[derive(Debug, Clone)]
pub struct FetchLimits {
    /// Deadline, including redirects and name resolution.
    pub deadline: Instant,
    /// Size limit of the body; the rest is not read.
    pub max_body: usize,
    /// Limit of redirects.
    pub max_redirects: usize,
    /// Limit of response headers.
    pub max_headers: usize,
    /// Size limit of the response head, in bytes.
    pub max_header_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResponse {
    /// Status of the final response.
    pub status: u16,
    /// Names and values of headers, in the order of their first appearance.
    pub headers: Vec<(String, String)>,
    pub body: Body,
    /// Set if the body was truncated at the limit.
    pub truncated: bool,
    /// URL of the final response.
    pub final_url: Url,
    /// URLs that redirected, in order.
    pub redirects: Vec<Url>,
    /// Egress attempts.
    pub attempts: Vec<Attempt>,
}

impl FetchLimits {
    /// Returns the default limits: 1 MiB, five redirects, a hundred headers of 32 KiB.
    pub fn until(deadline: Instant) -> Self {
        Self {
            deadline,
            max_body: 1024 * 1024,
            max_redirects: 5,
            max_headers: 100,
            max_header_bytes: 32 * 1024,
        }
    }
}

impl Fetcher {
    /// Creates a fetcher that connects through `guard` and verifies certificates with `trust`.
    pub fn new(guard: Arc<Guard>, trust: Trust) -> Self {
        Self { guard, trust }
    }

    /// Sends a request and follows redirects.
    ///
    /// # Errors
    /// If a host is denied or unreachable, or sends no valid response by the deadline.
    pub async fn fetch(
        &self,
        request: FetchRequest,
        limits: &FetchLimits,
    ) -> Result<FetchResponse, FetchError> {
        self.fetch_logged(request, limits, &AttemptLog::default()).await
    }

    /// Like [`Self::fetch`], with a log of the caller's, which counts the bytes of a fetch that is dropped, too.
    ///
    /// # Errors
    /// If a host is denied or unreachable, or sends no valid response by the deadline.
    pub async fn fetch_logged(
        &self,
        request: FetchRequest,
        limits: &FetchLimits,
        log: &AttemptLog,
    ) -> Result<FetchResponse, FetchError> {
        let all = self.follow(request, limits, log);
        let outcome = timeout_at(limits.deadline.into(), all).await;
        let attempts = log.attempts();
        match outcome.unwrap_or(Err(FetchCause::TimedOut)) {
            Ok(journey) => Ok(journey.response(attempts)),
            Err(fault) => Err(FetchError { fault, attempts }),
        }
    }

    async fn follow(
        &self,
        mut request: FetchRequest,
        limits: &FetchLimits,
        log: &AttemptLog,
    ) -> Result<RedirectChain, FetchCause> {
        let mut redirects = Vec::new();
        loop {
            let url = &request.url;
            let stream = self
                .guard
                .connect(&url.host, url.port, limits.deadline, log)
                .await?;
            let page = send(stream, &request, &self.trust, limits).await?;
            let Some(location) = page.location() else {
                return Ok(RedirectChain {
                    redirects,
                    last: request.url,
                    page,
                });
            };
            if redirects.len() >= limits.max_redirects {
                return Err(FetchCause::TooManyRedirects(limits.max_redirects));
            }
            let next = request.redirected(page.status, location.as_bytes())?;
            redirects.push(mem::replace(&mut request, next).url);
        }
    }
}

/// The URLs visited on the way to a page, and the page.
struct RedirectChain {
    redirects: Vec<Url>,
    last: Url,
    page: Page,
}

impl RedirectChain {
    fn response(self, attempts: Vec<Attempt>) -> FetchResponse {
        let page = self.page;
        FetchResponse {
            status: page.status.as_u16(),
            headers: shown(&page.headers),
            body: Body::read(&page.headers, page.body),
            truncated: page.truncated,
            final_url: self.last,
            redirects: self.redirects,
            attempts,
        }
    }
}

fn shown(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    headers
        .iter()
        .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
        .collect()
}
