//! Changes as they happen, as a stream of server-sent events.

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
use super::hub::{News, Viewer};
use crate::http::Refusal;

/// How often a page is told that the engine is still there.
const HEARTBEAT: Duration = Duration::from_secs(10);

pub(super) fn routes(shared: Arc<Shared>) -> Router {
    Router::new().route("/api/events", get(events)).with_state(shared)
}

/// Whoever reads anew is told of everything at once, and so misses nothing.
async fn events(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let viewer = shared.hub.enter().ok_or(TOO_MANY)?;
    let body = Body::new(Stream(Box::pin(next(viewer, None))));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

const TOO_MANY: Refusal = Refusal::new(
    StatusCode::SERVICE_UNAVAILABLE,
    ("too_many", "too many pages are open"),
    "close some of them",
);

/// What comes next, with the page that is told it and what it has been told.
type Next = Pin<Box<dyn Future<Output = Option<(String, Viewer, News)>> + Send>>;

struct Stream(Next);

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

async fn next(mut viewer: Viewer, told: Option<News>) -> Option<(String, Viewer, News)> {
    let changed = async {
        // Nothing new since the page was told; at first, everything is.
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

fn text(told: Option<&News>, news: &News) -> String {
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
