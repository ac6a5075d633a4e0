//! Sends one request and reads the response, on a connection of their own.

use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::pin::pin;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use ringfence_policy::Host;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

use super::FetchLimits;
use super::error::{FetchCause, TlsFault};
use super::request::FetchRequest;
use super::trust::Trust;
use super::url::{Scheme, Url};

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("ringfence/", env!("CARGO_PKG_VERSION")));

/// Buffer size. A flood of interim responses is parsed without yielding, which delays the deadline.
const MAX_BUFFER: usize = 64 * 1024;

/// Wire bytes for each byte of a body: a chunk of one byte takes six.
const WIRE_PER_BYTE: usize = 8;

/// A response. The body of a redirect is not read.
#[derive(Debug)]
pub struct Page {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// Set if the body was truncated.
    pub truncated: bool,
}

impl Page {
    /// Returns the target of a redirect.
    pub fn location(&self) -> Option<HeaderValue> {
        location(self.status, &self.headers)
    }
}

/// Sends a request on this connection, and reads the response, whatever its status; then closes the connection.
/// The caller limits the time.
///
/// # Errors
/// If the TLS handshake fails, or the response is not HTTP/1.1.
pub async fn send<S>(
    stream: S,
    request: &FetchRequest,
    trust: &Trust,
    limits: &FetchLimits,
) -> Result<Page, FetchCause>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match request.url.scheme {
        Scheme::Http => speak(stream, request, limits, None).await,
        Scheme::Https => {
            let stream = secure(stream, &request.url, trust).await?;
            speak(stream, request, limits, None).await
        }
    }
}

/// Sends a request as [`send`] does, and passes the body of a success to `sink` as it arrives, up to the
/// limit. A sink that returns `Break` ends the exchange; the page then counts as truncated. Any other body is
/// in the page.
///
/// # Errors
/// As for [`send`].
pub async fn receive<S>(
    stream: S,
    request: &FetchRequest,
    trust: &Trust,
    limits: &FetchLimits,
    sink: &mut Sink<'_>,
) -> Result<Page, FetchCause>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match request.url.scheme {
        Scheme::Http => speak(stream, request, limits, Some(sink)).await,
        Scheme::Https => {
            let stream = secure(stream, &request.url, trust).await?;
            speak(stream, request, limits, Some(sink)).await
        }
    }
}

/// A consumer of a body, which may stop early.
pub type Sink<'a> = dyn FnMut(&[u8]) -> ControlFlow<()> + Send + 'a;

/// Performs the TLS handshake with the host of the URL.
pub async fn secure<S>(stream: S, url: &Url, trust: &Trust) -> Result<TlsStream<S>, FetchCause>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let connector = TlsConnector::from(trust.config().await?);
    let name = match &url.host {
        Host::Name(name) => ServerName::try_from(name.as_str().to_owned()),
        Host::Address(address) => Ok(ServerName::from(*address)),
    };
    let name = name.map_err(|_| FetchCause::Tls(TlsFault::OtherHost))?;
    connector
        .connect(name, stream)
        .await
        .map_err(|error| FetchCause::Tls(tls_fault(&error)))
}

fn tls_fault(error: &io::Error) -> TlsFault {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    inner.map_or(TlsFault::Handshake, TlsFault::from)
}

async fn speak<S>(
    stream: S,
    request: &FetchRequest,
    limits: &FetchLimits,
    sink: Option<&mut Sink<'_>>,
) -> Result<Page, FetchCause>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (reader, writer) = tokio::io::split(stream);
    let stream = tokio::io::join(reader.take(max_wire(limits)), writer);
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(MAX_BUFFER)
        .max_headers(limits.max_headers)
        .max_header_size(limits.max_header_bytes);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| FetchCause::Protocol)?;
    let message = message(request)?;
    let answer = async {
        let response = sender.send_request(message).await;
        read(response.map_err(|_| FetchCause::Protocol)?, limits, sink).await
    };
    beside(connection, answer).await
}

/// Drives the connection while the response is read, without a task that could outlive the call.
async fn beside<T>(connection: impl Future, answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    tokio::select! {
        done = &mut answer => done,
        // The server may close the connection after the last byte; received data is still readable.
        _ = connection => answer.await,
    }
}

fn message(request: &FetchRequest) -> Result<Request<Full<Bytes>>, FetchCause> {
    // Already strictly parsed; the parser of the `http` crate accepts it, too.
    let target = PathAndQuery::try_from(request.url.target.as_str()).map_err(|_| FetchCause::Protocol)?;
    let host = HeaderValue::try_from(request.url.authority()).map_err(|_| FetchCause::Protocol)?;
    let mut message = Request::new(Full::new(request.body.clone()));
    *message.method_mut() = request.method.clone();
    *message.uri_mut() = Uri::from(target);
    let headers = message.headers_mut();
    headers.insert(header::HOST, host);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::USER_AGENT, USER_AGENT);
    for name in request.headers.keys() {
        headers.remove(name);
    }
    for (name, value) in &request.headers {
        headers.append(name, value.clone());
    }
    Ok(message)
}

/// Returns the limit of bytes on the wire, including interim responses and chunk framing, which no other
/// limit counts.
fn max_wire(limits: &FetchLimits) -> u64 {
    let body = limits.max_body.saturating_mul(WIRE_PER_BYTE);
    u64::try_from(body.saturating_add(MAX_BUFFER)).unwrap_or(u64::MAX)
}

async fn read(
    response: Response<Incoming>,
    limits: &FetchLimits,
    sink: Option<&mut Sink<'_>>,
) -> Result<Page, FetchCause> {
    let (head, body) = response.into_parts();
    let mut kept = Vec::new();
    let mut keep = |bytes: &[u8]| {
        kept.extend_from_slice(bytes);
        ControlFlow::Continue(())
    };
    let truncated = match (location(head.status, &head.headers), sink) {
        (Some(_), _) => false,
        (None, Some(sink)) if head.status.is_success() => pass(body, limits.max_body, sink).await?,
        (None, Some(_)) => pass(body, limits.max_body.min(MAX_BUFFER), &mut keep).await?,
        (None, None) => pass(body, limits.max_body, &mut keep).await?,
    };
    let body = kept;
    Ok(Page {
        status: head.status,
        headers: head.headers,
        body,
        truncated,
    })
}

fn location(status: StatusCode, headers: &HeaderMap) -> Option<HeaderValue> {
    let moved = matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    headers.get(header::LOCATION).filter(|_| moved).cloned()
}

/// Passes the body on, up to the limit; returns `true` if there was more, or the sink stopped early.
async fn pass(mut body: Incoming, limit: usize, sink: &mut Sink<'_>) -> Result<bool, FetchCause> {
    let mut room = limit;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| FetchCause::Protocol)?;
        let Ok(data) = frame.into_data() else { continue };
        let part = data.get(..room).unwrap_or(&data);
        if sink(part).is_break() || data.len() > room {
            return Ok(true);
        }
        room -= data.len();
    }
    Ok(false)
}
