//! HTTP requests to the service: one connection each, no redirects, bounded answers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use ringfence_network::egress::{AttemptLog, Guard, Resolver};
use ringfence_network::fetch::{BaseUrl, Chosen, FetchCause, Scheme, Trust, Url, secure};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout_at;

use crate::error::Error;

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("ringfence/", env!("CARGO_PKG_VERSION")));

/// Size limit of the buffer for the head of an answer.
const MAX_BUFFER: usize = 64 * 1024;

/// Size limit of an answer that is read as a whole.
const MAX_ANSWER: usize = 1024 * 1024;

/// An address of the service, and the headers of every request to it.
#[derive(Debug)]
pub(crate) struct Origin {
    base: BaseUrl,
    guard: Guard,
    trust: Arc<Trust>,
    headers: HeaderMap,
}

/// A request: its path is relative to the address.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Vec<u8>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

/// A streamed response.
pub(crate) struct Stream {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    /// Drives the connection while the answer is read; `None` once it has ended.
    connection: Option<Driver>,
    /// The connection ends without it.
    _sender: SendRequest<Full<Bytes>>,
}

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Call {
    /// Creates a request with a JSON message.
    pub(crate) fn json(method: Method, path: String, message: &serde_json::Value) -> Self {
        let json = HeaderValue::from_static("application/json");
        Self {
            method,
            path,
            headers: vec![(header::CONTENT_TYPE, json)],
            body: message.to_string().into_bytes(),
        }
    }
}

impl Origin {
    pub(crate) fn new(base: BaseUrl, chosen: Chosen, trust: Arc<Trust>, headers: HeaderMap) -> Self {
        let guard = Guard::new(base.policy(chosen), Resolver::system());
        Self {
            base,
            guard,
            trust,
            headers,
        }
    }

    #[cfg(test)]
    pub(crate) fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Sends a request, and reads the whole answer.
    pub(crate) async fn ask(&self, call: Call, deadline: Instant) -> Result<Answer, Error> {
        let stream = self.open(call, deadline).await?;
        let reading = timeout_at(deadline.into(), stream.whole(MAX_ANSWER)).await;
        reading.unwrap_or(Err(Error::Unreachable(FetchCause::TimedOut)))
    }

    /// Sends a request, and reads the head of the answer.
    pub(crate) async fn open(&self, call: Call, deadline: Instant) -> Result<Stream, Error> {
        let opening = timeout_at(deadline.into(), self.send(call, deadline)).await;
        opening.unwrap_or(Err(Error::Unreachable(FetchCause::TimedOut)))
    }

    async fn send(&self, call: Call, deadline: Instant) -> Result<Stream, Error> {
        let url: Url = format!("{}{}", self.base, call.path)
            .parse()
            .map_err(|_| Error::Protocol("what it names cannot be asked for"))?;
        let (host, port) = self.base.server();
        let log = AttemptLog::default();
        let stream = self.guard.connect(&host, port, deadline, &log).await?;
        let message = self.message(&url, call)?;
        match url.scheme {
            Scheme::Http => speak(stream, message).await,
            Scheme::Https => speak(secure(stream, &url, &self.trust).await?, message).await,
        }
    }

    fn message(&self, url: &Url, call: Call) -> Result<Request<Full<Bytes>>, Error> {
        let invalid = |_| Error::Protocol("what it names cannot be asked for");
        let target = PathAndQuery::try_from(url.target.as_str()).map_err(invalid)?;
        let host = HeaderValue::try_from(url.authority())
            .map_err(|_| Error::Protocol("what it names cannot be asked for"))?;
        let mut message = Request::new(Full::new(Bytes::from(call.body)));
        *message.method_mut() = call.method;
        *message.uri_mut() = Uri::from(target);
        let headers = message.headers_mut();
        headers.insert(header::HOST, host);
        headers.insert(header::USER_AGENT, USER_AGENT);
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        headers.extend(call.headers);
        Ok(message)
    }
}

async fn speak<S>(stream: S, message: Request<Full<Bytes>>) -> Result<Stream, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |_| Error::from(FetchCause::Protocol);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_BUFFER);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let mut connection: Option<Driver> = Some(Box::pin(async {
        // What is wrong with it is told by the answer.
        let _ = connection.await;
    }));
    let answer = sender.send_request(message);
    tokio::pin!(answer);
    let response: Response<Incoming> = loop {
        tokio::select! {
            response = &mut answer => break response.map_err(broken)?,
            () = drive(&mut connection) => connection = None,
        }
    };
    let (head, body) = response.into_parts();
    Ok(Stream {
        status: head.status,
        headers: head.headers,
        body,
        connection,
        _sender: sender,
    })
}

/// Drives a connection to its end; pending without one.
async fn drive(connection: &mut Option<Driver>) {
    match connection {
        Some(connection) => connection.await,
        None => std::future::pending().await,
    }
}

impl Stream {
    /// Returns the next bytes; `None` at the end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                // The service may close the connection after the last byte; received data is still readable.
                () = drive(&mut self.connection) => {
                    self.connection = None;
                    continue;
                }
            };
            match frame {
                None => return Ok(None),
                Some(Err(_)) => return Err(FetchCause::Protocol.into()),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => return Ok(Some(data)),
                    Err(_trailers) => {}
                },
            }
        }
    }

    /// Reads the rest, within a limit.
    pub(crate) async fn whole(mut self, limit: usize) -> Result<Answer, Error> {
        let mut body = Vec::new();
        while let Some(bytes) = self.next().await? {
            if body.len() + bytes.len() > limit {
                return Err(Error::Protocol("an answer is longer than 1 MiB"));
            }
            body.extend_from_slice(&bytes);
        }
        Ok(Answer {
            status: self.status,
            body,
        })
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
