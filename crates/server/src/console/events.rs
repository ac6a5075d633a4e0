//! Streams changes as server-sent events.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::{Body as Streamed, Bytes, Frame};
use serde_json::json;

use super::Shared;
use crate::questions::hub::{Revisions, Viewer, Watcher};
use ringfence_http::Refusal;

/// Interval of keepalive comments.
const HEARTBEAT: Duration = Duration::from_secs(10);

pub(super) fn routes(shared: Arc<Shared>) -> Router {
    Router::new().route("/api/events", get(events)).with_state(shared)
}

/// Starts a stream with the complete state, so that a page that reconnects misses nothing.
async fn events(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let viewer = shared.hub.enter(Watcher::Page).ok_or(TOO_MANY)?;
    let body = Body::new(Stream(Box::pin(next(viewer, None))));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

const TOO_MANY: Refusal = Refusal::new(
    StatusCode::SERVICE_UNAVAILABLE,
    "too_many",
    "too many pages are open",
    "close some of them",
);

/// The next event, with its viewer and the state that the viewer has.
type NextEvent = Pin<Box<dyn Future<Output = Option<(String, Viewer, Revisions)>> + Send>>;

struct Stream(NextEvent);

impl Streamed for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.as_mut().poll(context).map(|told| {
            let (text, viewer, news) = told?;
            self.0 = Box::pin(next(viewer, Some(news)));
            Some(Ok(Frame::data(text.into())))
        })
    }
}

async fn next(mut viewer: Viewer, told: Option<Revisions>) -> Option<(String, Viewer, Revisions)> {
    let changed = async {
        // Waits for a change, except for the first event.
        if told.is_some() {
            viewer.news.changed().await.ok()?;
        }
        Some(viewer.news.borrow_and_update().clone())
    };
    match tokio::time::timeout(HEARTBEAT, changed).await {
        Ok(news) => {
            let news = news?;
            Some((text(told.as_ref(), &news), viewer, news))
        }
        Err(_) => Some((":\n\n".to_owned(), viewer, told.unwrap_or_default())),
    }
}

fn text(told: Option<&Revisions>, news: &Revisions) -> String {
    let mut text = String::new();
    if told.is_none_or(|told| told.approvals != news.approvals) {
        let data = json!({"revision": news.approvals, "waiting": news.waiting});
        text.push_str(&format!("event: approvals\ndata: {data}\n\n"));
    }
    if told.is_none_or(|told| told.runs != news.runs) {
        let data = json!({"revision": news.runs});
        text.push_str(&format!("event: runs\ndata: {data}\n\n"));
    }
    text
}
