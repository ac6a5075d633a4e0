//! Response bodies that are made as the client reads them: a slow client slows only its own.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use hyper::body::{Body as Streamed, Bytes, Frame};

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
