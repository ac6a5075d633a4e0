//! A reverse proxy (RFC 9110, section 3.7) for programs that listen on ports of a sandbox.
//!
//! - `headers`: the headers that are passed on, and those that are not.
//! - `stream`: the connection to a program.
//! - `tunnel`: the rest of a connection whose protocol a program has switched.
//!
//! Heads are parsed and written anew in both directions.

mod headers;
mod stream;
mod tunnel;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use ringfence_sandbox::{Error as SandboxError, Sandbox};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

pub use tunnel::Tunnel;

use crate::body::Described;
use crate::error::Error;
use tunnel::Switch;

/// Time for a program to accept a connection.
const CONNECTING: Duration = Duration::from_secs(10);
/// Time for a program to answer.
const ANSWERING: Duration = Duration::from_secs(10 * 60);
/// Maximum size of the head of a program's answer.
const MAX_HEAD: usize = 64 * 1024;
/// Maximum number of headers of a program's answer.
const MAX_HEADERS: usize = 100;

/// Marks the answer of a program: attached to the response.
#[derive(Debug, Clone, Copy)]
pub struct OfProgram;

/// A port of a sandbox that somebody visits.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) port: u16,
    /// Value of `Host` that the program sees, in place of the visitor's.
    pub(crate) host: Option<HeaderValue>,
    /// Place of an anonymous visitor; `None` for one with a credential.
    pub(crate) anonymous: Option<OwnedSemaphorePermit>,
}

/// A connection to a program, which is closed when this is dropped.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    /// Limit on what the program sends before its answer.
    before_answer: stream::Limit,
    /// Passes the bytes on.
    _tasks: JoinSet<()>,
    _anonymous: Option<OwnedSemaphorePermit>,
}

/// Passes a request on to the program, and the answer back.
pub(crate) async fn answer(mut visit: Visit, mut request: Request) -> Result<Response, Error> {
    if request.method() == Method::CONNECT {
        return Err(Error::invalid("programs take no `CONNECT`"));
    }
    let switch = Switch::of(&mut request)?;
    if switch.is_some() && request.body().size_hint().exact() != Some(0) {
        return Err(Error::invalid("a request with `Upgrade` has no body"));
    }
    let is_head = request.method() == Method::HEAD;
    let outgoing = visit.outgoing(request, switch.as_ref())?;
    let mut connection = visit.connect().await?;
    let answered = tokio::time::timeout(ANSWERING, connection.sender.send_request(outgoing)).await;
    let mut answer = answered
        .map_err(|_| visit.no_http())?
        .map_err(|_| visit.no_http())?;
    connection.before_answer.lift();
    let described = json!({"id": visit.sandbox.id().as_str(), "port": visit.port});
    let marks = (Extension(OfProgram), Extension(Described(described)));
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok((marks, passed_on(answer, connection, is_head)).into_response());
    }
    let upgraded = hyper::upgrade::on(&mut answer);
    let switch = switch.filter(|switch| switch.is_to(answer.headers()));
    let switch = switch.ok_or_else(|| visit.no_http())?;
    let mut response = passed_on(answer, (), is_head);
    switch.accept(response.headers_mut(), upgraded, connection);
    Ok((marks, response).into_response())
}

/// Returns an answer as visitors get it. `held` is kept until the body ends or is dropped.
fn passed_on(answer: hyper::Response<Incoming>, held: impl Send + 'static, is_head: bool) -> Response {
    let (parts, body) = answer.into_parts();
    let mut headers = parts.headers;
    let has_length_only = is_head || parts.status == StatusCode::NOT_MODIFIED;
    headers::clean_answer(&mut headers, has_length_only);
    let size = match has_length_only {
        true => SizeHint::default(),
        false => body.size_hint(),
    };
    let passing = Passing {
        body,
        size,
        _held: held,
    };
    let mut response = Response::new(Body::new(passing));
    *response.status_mut() = parts.status;
    *response.headers_mut() = headers;
    response
}

/// The body of an answer.
struct Passing<T> {
    body: Incoming,
    /// The length that its program has announced, which the server then announces, too.
    size: SizeHint,
    /// Kept until the body is dropped.
    _held: T,
}

impl<T> Unpin for Passing<T> {}

impl<T> HttpBody for Passing<T> {
    type Data = <Incoming as HttpBody>::Data;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.size
    }
}

impl Visit {
    async fn connect(&mut self) -> Result<Connection, Error> {
        let connecting = tokio::time::timeout(CONNECTING, self.sandbox.connect(self.port));
        let Ok(connected) = connecting.await else {
            return Err(self.closed());
        };
        let (reader, sending) = connected.map_err(|error| self.refused(error))?;
        let mut tasks = JoinSet::new();
        let before_answer = stream::Limit::default();
        let stream = stream::open(reader, sending, before_answer.clone(), &mut tasks);
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
        // As most programs have seen names written, though case means nothing.
        builder.title_case_headers(true);
        let made = builder.handshake(TokioIo::new(stream)).await;
        let (sender, driver) = made.map_err(|_| self.no_http())?;
        tasks.spawn(async move { drop(driver.with_upgrades().await) });
        Ok(Connection {
            sender,
            before_answer,
            _tasks: tasks,
            _anonymous: self.anonymous.take(),
        })
    }

    /// Returns the request as the program gets it.
    fn outgoing(&self, request: Request, switch: Option<&Switch>) -> Result<hyper::Request<Body>, Error> {
        let (parts, body) = request.into_parts();
        let target = parts.uri.into_parts().path_and_query;
        let target = target.ok_or_else(|| Error::invalid("the request has no path"))?;
        let is_chunked = body.size_hint().exact().is_none();
        let mut outgoing = hyper::Request::new(body);
        *outgoing.method_mut() = parts.method;
        *outgoing.uri_mut() = Uri::from(target);
        let headers = outgoing.headers_mut();
        *headers = parts.headers;
        headers::clean_request(headers, self.host.as_ref());
        match switch {
            Some(switch) => switch.ask(headers),
            None => drop(headers.insert(header::CONNECTION, HeaderValue::from_static("close"))),
        }
        if is_chunked {
            // Otherwise the library would omit the body of a GET.
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Ok(outgoing)
    }

    fn refused(&self, error: SandboxError) -> Error {
        match error {
            SandboxError::NothingListens(_) => self.closed(),
            SandboxError::NoPorts => Error::not_supported(
                "ports of a sandbox without sockets",
                "create it at an address below `--domain`, or with `allowPublicTraffic: true`",
            ),
            SandboxError::Paused(_) => Error::gone(self.sandbox.id().as_str()),
            error => error.into(),
        }
    }

    fn closed(&self) -> Error {
        Error::closed_port(self.sandbox.id().as_str(), self.port)
    }

    fn no_http(&self) -> Error {
        Error::no_http(self.sandbox.id().as_str(), self.port)
    }
}
