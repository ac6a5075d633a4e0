//! Sends one request and reads the response, on a connection of their own.

use std::future::Future;
use std::io;
use std::pin::pin;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use ringfence_policy::Host;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

use super::FetchLimits;
use super::error::{Fault, TlsFault};
use super::request::FetchRequest;
use super::trust::Trust;
use super::url::{Scheme, Url};

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("ringfence/", env!("CARGO_PKG_VERSION")));

/// Buffer size. A flood of interim responses is parsed without yielding, which delays the deadline.
const MAX_BUFFER: usize = 64 * 1024;

/// A server's response.
#[derive(Debug)]
pub(super) enum Answer {
    /// A redirect. Its body is not read.
    Redirect {
        status: StatusCode,
        location: HeaderValue,
    },
    Page(Page),
}

/// A response that is not a redirect.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    /// Set if the body was truncated.
    pub(super) truncated: bool,
}

/// Sends a request on this connection, and reads the response; then closes the connection.
pub(super) async fn exchange(
    stream: TcpStream,
    request: &FetchRequest,
    trust: &Trust,
    limits: &FetchLimits,
) -> Result<Answer, Fault> {
    match request.url.scheme {
        Scheme::Http => speak(stream, request, limits).await,
        Scheme::Https => speak(secure(stream, &request.url, trust).await?, request, limits).await,
    }
}

/// Performs the TLS handshake with the host of the URL.
pub async fn secure(stream: TcpStream, url: &Url, trust: &Trust) -> Result<TlsStream<TcpStream>, Fault> {
    let connector = TlsConnector::from(trust.config().await?);
    let name = match &url.host {
        Host::Name(name) => ServerName::try_from(name.as_str().to_owned()),
        Host::Address(address) => Ok(ServerName::from(*address)),
    };
    let name = name.map_err(|_| Fault::Tls(TlsFault::OtherHost))?;
    connector
        .connect(name, stream)
        .await
        .map_err(|error| Fault::Tls(tls_fault(&error)))
}

fn tls_fault(error: &io::Error) -> TlsFault {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    inner.map_or(TlsFault::Handshake, TlsFault::from)
}

async fn speak<S>(stream: S, request: &FetchRequest, limits: &FetchLimits) -> Result<Answer, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = http1::Builder::new();
    builder
        .max_buf_size(MAX_BUFFER)
        .max_headers(limits.max_headers)
        .max_header_size(limits.max_header_bytes);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| Fault::Protocol)?;
    let message = message(request)?;
    let answer = async {
        let response = sender.send_request(message).await;
        read(response.map_err(|_| Fault::Protocol)?, limits).await
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

fn message(request: &FetchRequest) -> Result<Request<Full<Bytes>>, Fault> {
    // Already strictly parsed; the parser of the `http` crate accepts it, too.
    let target = PathAndQuery::try_from(request.url.target.as_str()).map_err(|_| Fault::Protocol)?;
    let host = HeaderValue::try_from(request.url.authority()).map_err(|_| Fault::Protocol)?;
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

async fn read(response: Response<Incoming>, limits: &FetchLimits) -> Result<Answer, Fault> {
    let (head, body) = response.into_parts();
    if let Some(location) = location(head.status, &head.headers) {
        return Ok(Answer::Redirect {
            status: head.status,
            location,
        });
    }
    let (body, truncated) = collect(body, limits.max_body).await?;
    Ok(Answer::Page(Page {
        status: head.status,
        headers: head.headers,
        body,
        truncated,
    }))
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

/// Reads the body up to the limit; returns `true` with it if there was more.
async fn collect(mut body: Incoming, limit: usize) -> Result<(Vec<u8>, bool), Fault> {
    let mut kept = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Fault::Protocol)?;
        let Ok(data) = frame.into_data() else { continue };
        let room = limit.saturating_sub(kept.len());
        kept.extend_from_slice(data.get(..room).unwrap_or(&data));
        if data.len() > room {
            return Ok((kept, true));
        }
    }
    Ok((kept, false))
}
