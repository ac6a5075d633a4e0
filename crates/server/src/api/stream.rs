//! Response bodies that are made as the client reads them, so that a slow client slows only its own, and that hold something.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use hyper::HeaderMap;
use hyper::body::{Body as Streamed, Bytes, Frame, SizeHint};

/// The next part of a body, with the state after it; `None` at its end.
type Next<S> = Pin<Box<dyn Future<Output = Option<(Bytes, S)>> + Send>>;

struct Stream<S> {
    step: fn(S) -> Next<S>,
    next: Next<S>,
}

/// Returns a body of the parts that `step` makes, one after the other. Dropping the body drops the state.
pub(super) fn body<S: 'static>(state: S, step: fn(S) -> Next<S>) -> Body {
    Body::new(Stream {
        step,
        next: step(state),
    })
}

impl<S> Streamed for Stream<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.next.as_mut().poll(context).map(|part| {
            let (bytes, state) = part?;
            self.next = (self.step)(state);
            Some(Ok(Frame::data(bytes)))
        })
    }
}

/// A body that holds something until it is sent or dropped.
struct Holding<G> {
    body: Body,
    _guard: G,
}

/// Returns an answer whose body holds `guard` until it is sent or dropped.
pub(super) fn holding<G: Send + Unpin + 'static>(response: Response, guard: G) -> Response {
    match response.body().is_end_stream() {
        true => response,
        false => response.map(|body| Body::new(Holding { body, _guard: guard })),
    }
}

impl<G: Unpin> HttpBody for Holding<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    // Not known before it is asked for the next part, which happens once most of this one is sent.
    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The next part of a body that may fail.
type Attempt<S, E, P = Bytes> = Pin<Box<dyn Future<Output = Result<Option<(P, S)>, E>> + Send>>;

struct Fallible<S, E, P> {
    step: fn(S) -> Attempt<S, E, P>,
    next: Attempt<S, E, P>,
}

/// A part of a body that may end with headers (trailers, RFC 9110, section 6.5).
pub(super) enum Part {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl From<Part> for Frame<Bytes> {
    fn from(part: Part) -> Self {
        match part {
            Part::Data(bytes) => Self::data(bytes),
            Part::Trailers(headers) => Self::trailers(headers),
        }
    }
}

impl From<Bytes> for Part {
    fn from(bytes: Bytes) -> Self {
        Self::Data(bytes)
    }
}

/// Returns a body of the parts that `step` makes. An error breaks the connection off: the client must not take what has
/// arrived for the whole.
pub(super) fn fallible<S, E, P>(state: S, step: fn(S) -> Attempt<S, E, P>) -> Body
where
    S: 'static,
    E: std::error::Error + Send + Sync + 'static,
    P: Into<Part> + 'static,
{
    Body::new(Fallible {
        step,
        next: step(state),
    })
}

impl<S, E, P: Into<Part>> Streamed for Fallible<S, E, P> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        self.next.as_mut().poll(context).map(|part| match part {
            Ok(Some((part, state))) => {
                self.next = (self.step)(state);
                Some(Ok(part.into().into()))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        })
    }
}
