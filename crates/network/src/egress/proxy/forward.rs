//! Forwards requests in absolute form to their hosts.

use std::time::Instant;

use http_body_util::Either;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout_at;

use super::super::AttemptLog;
use super::answer::{Connection, ForwardError, Payload, Relayed};
use super::{MAX_HEAD, MAX_HEADERS, Proxy, inject};
use crate::fetch::{Scheme, Url, secure};

/// Hop-by-hop headers (RFC 9110, section 7.6.1), and those that would change the protocol.
const HOP_BY_HOP: &[HeaderName] = &[
    header::CONNECTION,
    header::EXPECT,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
const HOP_BY_HOP_NAMES: &[&str] = &["http2-settings", "keep-alive", "proxy-connection"];

/// Forwards a request and returns the response.
pub(super) async fn forward(
    proxy: &Proxy,
    mut request: Request<Incoming>,
    log: &AttemptLog,
) -> Result<Response<Payload>, ForwardError> {
    let url = target(&request).inspect_err(|fault| log.malformed(&request.uri().to_string(), fault))?;
    if is_echo(&request) {
        return Err(ForwardError::Echo);
    }
    let (target, injections) = inject::for_request(&proxy.injections, &url);
    let deadline = proxy.deadline();
    let stream = proxy
        .guard
        .connect(&target.host, target.port, deadline, log)
        .await?;
    address(&mut request, &target)?;
    // After the removal of hop-by-hop headers: the guest may have listed this one as such.
    inject::add(&injections, request.headers_mut()).ok_or(ForwardError::NoCredential)?;
    let sent = match target.scheme {
        Scheme::Http => send(stream, request, deadline).await,
        Scheme::Https => {
            let stream = timeout_at(deadline.into(), secure(stream, &target, &proxy.trust)).await;
            let stream = stream.map_err(|_| ForwardError::TimedOut)?;
            send(
                stream.map_err(|fault| ForwardError::Insecure(fault.to_string()))?,
                request,
                deadline,
            )
            .await
        }
    };
    let (mut head, mut relayed) = sent?.into_parts();
    if let Some(echoes) = inject::echoes(&injections) {
        echoes.mask_headers(&mut head.headers);
        relayed.echoes = Some(echoes);
    }
    Ok(Response::from_parts(head, Either::Right(relayed)))
}

/// Methods to which an honest host responds with the request, credentials included.
const ECHO_METHODS: [&str; 2] = ["TRACE", "TRACK"];

/// Headers that override the method on some hosts.
const METHOD_OVERRIDES: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];

/// Returns `true` if the request asks the host to echo it.
fn is_echo(request: &Request<Incoming>) -> bool {
    let is_echo = |method: &[u8]| {
        let method = method.trim_ascii();
        ECHO_METHODS
            .iter()
            .any(|echo| method.eq_ignore_ascii_case(echo.as_bytes()))
    };
    let overrides = METHOD_OVERRIDES
        .iter()
        .flat_map(|name| request.headers().get_all(*name));
    is_echo(request.method().as_str().as_bytes())
        || overrides.into_iter().any(|value| is_echo(value.as_bytes()))
}

/// Returns the target of a request.
fn target(request: &Request<Incoming>) -> Result<Url, ForwardError> {
    if request.uri().authority().is_none() {
        return Err(ForwardError::NotAbsolute);
    }
    let url: Url = request.uri().to_string().parse()?;
    if url.scheme == Scheme::Https {
        return Err(ForwardError::Secure);
    }
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(ForwardError::OtherHost);
    };
    let named = host
        .to_str()
        .ok()
        .and_then(|host| format!("http://{host}/").parse::<Url>().ok());
    if !named.is_some_and(|named| named.host == url.host && named.port == url.port && named.target == "/") {
        return Err(ForwardError::OtherHost);
    }
    Ok(url)
}

/// Converts a proxy request to a request for the host itself.
fn address(request: &mut Request<Incoming>, target: &Url) -> Result<(), ForwardError> {
    let path = PathAndQuery::try_from(target.target.as_str()).map_err(|_| ForwardError::NotAbsolute)?;
    let host = HeaderValue::try_from(target.authority()).map_err(|_| ForwardError::NotAbsolute)?;
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = Version::HTTP_11;
    let is_chunked = request.body().size_hint().exact().is_none();
    let headers = request.headers_mut();
    drop_hops(headers);
    if is_chunked {
        // Otherwise the library would omit the body of a GET.
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    headers.insert(header::HOST, host);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(())
}

/// Removes hop-by-hop headers, including those listed in the `Connection` header.
fn drop_hops(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        // The message needs its length and host, even if it lists them as hop-by-hop.
        .filter(|name| *name != header::CONTENT_LENGTH && *name != header::HOST)
        .collect();
    for name in named.iter().chain(HOP_BY_HOP) {
        headers.remove(name);
    }
    for name in HOP_BY_HOP_NAMES {
        headers.remove(*name);
    }
}

/// Sends a request on a connection of its own, and waits for the head of the response.
async fn send<S>(
    stream: S,
    request: Request<Incoming>,
    deadline: Instant,
) -> Result<Response<Relayed>, ForwardError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    let handshake = timeout_at(deadline.into(), builder.handshake(TokioIo::new(stream))).await;
    let (mut sender, connection) = handshake
        .map_err(|_| ForwardError::TimedOut)?
        .map_err(|_| ForwardError::Upstream)?;
    let mut connection: Option<Connection> = Some(Box::pin(async move { drop(connection.await) }));
    let mut answer = Box::pin(sender.send_request(request));
    // Without a timeout: slow hosts are the guest's business, and the idle timeout ends the connection.
    let response = loop {
        let Some(driven) = &mut connection else {
            break answer.await;
        };
        tokio::select! {
            response = &mut answer => break response,
            // The host may close the connection after the last byte; received data is still readable.
            () = driven => connection = None,
        }
    };
    let (mut head, body) = response.map_err(|_| ForwardError::Upstream)?.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ForwardError::Upstream);
    }
    drop_hops(&mut head.headers);
    head.version = Version::HTTP_11;
    // The extensions include the host's reason phrase, which could echo a credential.
    head.extensions.clear();
    let relayed = Relayed {
        connection,
        body,
        echoes: None,
    };
    Ok(Response::from_parts(head, relayed))
}
