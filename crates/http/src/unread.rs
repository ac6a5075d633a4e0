//! Adds `Connection: close` to an answer if the request's body was not read to its end (RFC 9112, section
//! 9.6).
//!
//! The HTTP library closes such a connection after the answer: the next request cannot begin before that body
//! ends. Without the header a client sends its next request there, and gets no answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// A request's body.
struct Tracked {
    body: Body,
    is_read: bool,
    /// Set once the body is dropped before its end. Until then, an answer that has begun may still read it.
    is_abandoned: Arc<AtomicBool>,
}

/// Answers a request.
pub(crate) async fn announce_close(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let is_abandoned = Arc::new(AtomicBool::new(false));
    let request = request.map(|body| {
        Body::new(Tracked {
            body,
            is_read: false,
            is_abandoned: Arc::clone(&is_abandoned),
        })
    });
    let mut response = next.run(request).await;
    if is_abandoned.load(Ordering::Acquire) && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.is_abandoned.fetch_or(!self.is_read, Ordering::Release);
    }
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.is_read |= frame.is_none() || self.body.is_end_stream();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
