//! Events in the lives of sandboxes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use hyper::body::Bytes as Piece;
use ringfence_sandbox::{LifeEvents, LifeItem};
use serde_json::json;

use super::super::content::Content;
use super::super::error::ApiError;
use super::super::extract::{Client, IdOrName};
use super::super::route::{Route, route};
use super::super::state::Api;
use super::super::{events, stream};

const EVENTS: Content = Content::new(&[events::MEDIA], |_| {
    schemars::json_schema!({
        "type": "string",
        "description": "Events from now on: `ready`; then `created`, `paused`, `resumed`, `expiry_changed`, `forked`, \
            `snapshot_created`, and at the end `expired`, `removed` or `ended`, each with `{\"type\", \"time\", \"sandbox\"}` and, \
            where there are any, `name`, `reason`, `expires_at`, `copies` and `snapshot`; `lost` with the number of `events` for a \
            client that reads too slowly. Comments keep the connection open.",
    })
});

pub(super) fn routes() -> Vec<Route> {
    vec![
        // No sandbox can have this path, whatever its name is.
        route(
            Method::GET,
            "/v1/sandbox-events",
            "Follow the events in the lives of all your sandboxes.",
            vec![EVENTS],
            |method| on(method, of_all),
        ),
        route(
            Method::GET,
            "/v1/sandboxes/{id}/events",
            "Follow the events in the life of a sandbox, to its end.",
            vec![EVENTS],
            |method| on(method, of_one),
        ),
    ]
}

async fn of_all(State(api): State<Arc<Api>>, client: Client) -> Result<Response, ApiError> {
    Ok(followed(api.sandboxes.events(&client.scope, None)?))
}

async fn of_one(
    State(api): State<Arc<Api>>,
    client: Client,
    IdOrName(id): IdOrName,
) -> Result<Response, ApiError> {
    Ok(followed(api.sandboxes.events(&client.scope, Some(&id))?))
}

/// The state of a response of events.
struct Following {
    /// The first event, until it is sent.
    ready: Option<String>,
    life: LifeEvents,
}

fn followed(life: LifeEvents) -> Response {
    let ready = events::event("ready", &json!({ "type": "ready", "sandbox": life.only() }));
    let following = Following {
        ready: Some(ready),
        life,
    };
    let body = stream::body(following, |following| Box::pin(next(following)));
    ([(header::CONTENT_TYPE, events::MEDIA)], body).into_response()
}

async fn next(mut following: Following) -> Option<(Piece, Following)> {
    if let Some(ready) = following.ready.take() {
        return Some((ready.into(), following));
    }
    let text = match tokio::time::timeout(events::HEARTBEAT, following.life.next()).await {
        Ok(Some(LifeItem::Event(event))) => events::event(event.kind.as_str(), &json!(event)),
        Ok(Some(LifeItem::Lost(count))) => events::event("lost", &json!({ "type": "lost", "events": count })),
        Ok(None) => return None,
        Err(_) => events::COMMENT.to_owned(),
    };
    Some((text.into(), following))
}
