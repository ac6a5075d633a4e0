//! Fetches one page through the guard.
//!
//! HTTP/1.1 on a connection of its own, with redirects checked like the first request. No proxy of the environment is
//! used: it would connect where the guard cannot look.

mod body;
mod error;
mod exchange;
mod request;
mod trust;
mod url;

#[cfg(test)]
pub(crate) mod tests;

pub use body::Body;
pub use error::{Fault, FetchError, FetchErrorKind, TlsFault};
pub(crate) use exchange::secure;
pub use request::{FetchRequest, RequestError};
pub use trust::{Trust, TrustError};
pub(crate) use url::Scheme;
pub use url::{ParseUrlError, Url};

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use hyper::header::HeaderMap;
use tokio::time::timeout_at;

use crate::egress::{Attempt, AttemptLog, Guard};
use exchange::{Answer, Page, exchange};

/// Fetches pages that a guard lets through.
#[derive(Debug)]
pub struct Fetcher {
    guard: Arc<Guard>,
    trust: Trust,
}

/// How long and how much.
#[derive(Debug, Clone)]
pub struct FetchLimits {
    /// When all must be done, redirects and look-ups included.
    pub deadline: Instant,
    /// How much of a body is read.
    pub max_body: usize,
    /// How many redirects are followed.
    pub max_redirects: usize,
    /// How many headers an answer may have.
    pub max_headers: usize,
    /// How long the head of an answer may be, in bytes.
    pub max_header_bytes: usize,
}

/// What came of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResponse {
    /// The status that the last server gave.
    pub status: u16,
    /// The headers, as name and value, in the order of their first appearance.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
    /// Whether the body was cut at the limit.
    pub truncated: bool,
    /// Where the answer came from.
    pub final_url: Url,
    /// The URLs that redirected, in their order.
    pub redirects: Vec<Url>,
    /// What was tried on the way out.
    pub attempts: Vec<Attempt>,
}

impl FetchLimits {
    /// The usual limits: one MiB, five redirects, a hundred headers of 32 KiB.
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
    /// A fetcher that goes out through `guard` and believes `trust`.
    pub fn new(guard: Arc<Guard>, trust: Trust) -> Self {
        Self { guard, trust }
    }

    /// Sends the request and follows where the answers lead.
    ///
    /// # Errors
    /// If a host is refused or cannot be reached, or answers with something that is no page, by the deadline.
    pub async fn fetch(
        &self,
        request: FetchRequest,
        limits: &FetchLimits,
    ) -> Result<FetchResponse, FetchError> {
        let log = AttemptLog::default();
        let all = self.follow(request, limits, &log);
        let outcome = timeout_at(limits.deadline.into(), all).await;
        let attempts = log.attempts();
        match outcome.unwrap_or(Err(Fault::TimedOut)) {
            Ok(journey) => Ok(journey.response(attempts)),
            Err(fault) => Err(FetchError { fault, attempts }),
        }
    }

    async fn follow(
        &self,
        mut request: FetchRequest,
        limits: &FetchLimits,
        log: &AttemptLog,
    ) -> Result<Journey, Fault> {
        let mut redirects = Vec::new();
        loop {
            let url = &request.url;
            let stream = self
                .guard
                .connect(&url.host, url.port, limits.deadline, log)
                .await?;
            let (status, location) = match exchange(stream, &request, &self.trust, limits).await? {
                Answer::Redirect { status, location } => (status, location),
                Answer::Page(page) => {
                    return Ok(Journey {
                        redirects,
                        last: request.url,
                        page,
                    });
                }
            };
            if redirects.len() >= limits.max_redirects {
                return Err(Fault::TooManyRedirects(limits.max_redirects));
            }
            let next = request.redirected(status, location.as_bytes())?;
            redirects.push(mem::replace(&mut request, next).url);
        }
    }
}

/// The way to a page.
struct Journey {
    redirects: Vec<Url>,
    last: Url,
    page: Page,
}

impl Journey {
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
