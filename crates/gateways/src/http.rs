//! Calls of the services' HTTP APIs: one connection each, no redirects, bounded responses.

use std::io;

use ringfence_network::fetch::{FetchCause, FetchLimits, FetchRequest, Page, Trust, TrustError, Url, send};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::proxy::{Proxy, Refused};

/// A client of an HTTP API.
#[derive(Debug)]
pub(crate) struct Client {
    trust: Trust,
    proxy: Option<Proxy>,
    /// Maximum size of a response.
    max_body: usize,
}

/// A failed call. Omits the URL, which can contain a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    #[error("the proxy did not connect: {0}")]
    Proxy(#[from] Refused),
    #[error(transparent)]
    Exchange(#[from] FetchCause),
    #[error("an answer of more than {0} bytes")]
    TooLong(usize),
    #[error("no answer in time")]
    TimedOut,
}

impl Client {
    /// Creates a client, and loads the certificate authorities of this machine.
    ///
    /// # Errors
    /// If there are none.
    pub(crate) async fn open(proxy: Option<Proxy>, max_body: usize) -> Result<Self, TrustError> {
        let trust = Trust::default();
        trust.config().await?;
        Ok(Self {
            trust,
            proxy,
            max_body,
        })
    }

    /// Sends a request, and returns the response, whatever its status.
    ///
    /// # Errors
    /// If there is no complete response by the deadline.
    pub(crate) async fn call(&self, request: &FetchRequest, until: Instant) -> Result<Page, Failure> {
        let limits = FetchLimits {
            max_body: self.max_body,
            ..FetchLimits::until(until.into_std())
        };
        let exchange = async {
            let stream = connect(request.url(), self.proxy.as_ref()).await?;
            Ok(send(stream, request, &self.trust, &limits).await?)
        };
        let page: Page = timeout_at(until, exchange)
            .await
            .unwrap_or(Err(Failure::TimedOut))?;
        if page.truncated {
            return Err(Failure::TooLong(self.max_body));
        }
        Ok(page)
    }
}

/// Connects to the host of the URL, through the proxy if there is one.
pub(crate) async fn connect(url: &Url, proxy: Option<&Proxy>) -> Result<TcpStream, Failure> {
    match proxy.filter(|proxy| proxy.serves(url)) {
        Some(proxy) => Ok(proxy.connect(url).await??),
        None => Ok(TcpStream::connect(format!("{}:{}", url.host, url.port)).await?),
    }
}
