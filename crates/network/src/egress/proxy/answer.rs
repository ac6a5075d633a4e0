//! Builds responses to a guest: a host's, or an error of the proxy.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::ext::ReasonPhrase;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};

use super::super::ConnectError;
use super::echo::Echoes;
use crate::fetch::ParseUrlError;

pub(super) type Payload = Either<Full<Bytes>, Relayed>;

/// A connection to a host, to be driven while its response is read.
pub(super) type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A host's response body as a stream. It drives its own connection, so no task is left behind.
pub(super) struct Relayed {
    pub(super) connection: Option<Connection>,
    pub(super) body: Incoming,
    /// Filter for credentials that were added to the request.
    pub(super) echoes: Option<Echoes>,
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(context).is_ready()
        {
            self.connection = None;
        }
        let relayed = &mut *self;
        loop {
            let frame = ready!(Pin::new(&mut relayed.body).poll_frame(context));
            let bytes = match (
                frame.map(|frame| frame.map(Frame::into_data)),
                &mut relayed.echoes,
            ) {
                (Some(Err(error)), _) => return Poll::Ready(Some(Err(error))),
                // Trailers are dropped: nobody needs them, and they would be unchecked headers.
                (Some(Ok(Err(_))), _) => continue,
                (Some(Ok(Ok(bytes))), None) => bytes,
                (Some(Ok(Ok(bytes))), Some(echoes)) => echoes.mask(&bytes),
                (None, Some(echoes)) if echoes.held() > 0 => echoes.rest(),
                (None, _) => return Poll::Ready(None),
            };
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held() == 0 && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (left, held) = (self.body.size_hint(), self.held() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = left.upper() {
            hint.set_upper(upper + held);
        }
        hint.set_lower(left.lower() + held);
        hint
    }
}

impl Relayed {
    fn held(&self) -> usize {
        self.echoes.as_ref().map_or(0, Echoes::held)
    }
}

/// An error of forwarding a request or receiving its response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ForwardError {
    /// The connection was not made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The target URL is invalid.
    #[error("{0}")]
    Target(#[from] ParseUrlError),
    /// The request is not in absolute form.
    #[error("the request has no target host")]
    NotAbsolute,
    /// The request would make the host echo it, including injected credentials.
    #[error("the request asks the host to send it back (TRACE)")]
    Echo,
    /// The request asks the proxy itself to use TLS.
    #[error("this proxy opens no https:// addresses by itself")]
    Secure,
    /// The CONNECT target has no port.
    #[error("the CONNECT names no port")]
    NoPort,
    /// The `Host` header is missing, or differs from the target.
    #[error("the Host header is not the host of the request")]
    OtherHost,
    /// The credential for the host is not set.
    #[error("the credential to inject for this host is not set")]
    NoCredential,
    /// The host violated HTTP/1.1.
    #[error("the host did not answer in HTTP/1.1")]
    Upstream,
    /// The TLS handshake with the host failed.
    #[error("no secure connection to the host: {0}")]
    Insecure(String),
    /// The host did not respond in time.
    #[error("the host did not answer in time")]
    TimedOut,
}

impl ForwardError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Connect(ConnectError::Refused(_)) => StatusCode::FORBIDDEN,
            Self::Connect(ConnectError::TimedOut(_)) | Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::Connect(ConnectError::NotFound(_) | ConnectError::Unreachable(..))
            | Self::NoCredential
            | Self::Upstream
            | Self::Insecure(_) => StatusCode::BAD_GATEWAY,
            Self::Echo => StatusCode::METHOD_NOT_ALLOWED,
            Self::Target(_) | Self::NotAbsolute | Self::Secure | Self::NoPort | Self::OtherHost => {
                StatusCode::BAD_REQUEST
            }
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Connect(error) => error.hint(),
            Self::Target(error) => error.hint(),
            Self::NotAbsolute => "this is a proxy; use it by way of HTTP_PROXY and HTTPS_PROXY",
            Self::Echo => "ask with another method, such as GET",
            Self::Secure | Self::NoPort => {
                "reach https:// with CONNECT and the port, as clients do with HTTPS_PROXY"
            }
            Self::OtherHost => "send one Host header, with the host of the address",
            Self::NoCredential => {
                "set the variable that `egress.inject` names for it, and restart the server"
            }
            Self::Upstream | Self::Insecure(_) => "check that the host serves HTTP at this port",
            Self::TimedOut => "try again later",
        }
    }
}

/// Returns the response to a successful CONNECT.
pub(super) fn opened() -> Response<Payload> {
    Response::new(Either::Left(Full::default()))
}

/// Returns an error response. The reason phrase has the message, too: for a failed CONNECT, clients print
/// nothing else.
pub(super) fn refusal(fault: &ForwardError) -> Response<Payload> {
    let text = format!("ringfence: {fault}\nhint: {}\n", fault.hint());
    let mut response = Response::new(Either::Left(Full::from(text)));
    *response.status_mut() = fault.status();
    if let Ok(reason) = ReasonPhrase::try_from(fault.to_string().into_bytes()) {
        response.extensions_mut().insert(reason);
    }
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
