//! Copies of sandboxes: forks and snapshots.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use ringfence_sandbox::{NewCopies, SandboxInfo, SandboxName, SnapshotInfo};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::body;
use super::super::content::{Content, NOTHING, done};
use super::super::error::ApiError;
use super::super::extract::{Client, IdOrName};
use super::super::recording::described_as;
use super::super::route::{Route, route};
use super::super::state::Api;

/// Maximum size of a request, in bytes.
const MAX: usize = 1024 * 1024;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(
            Method::POST,
            "/v1/sandboxes/{id}/fork",
            "Copy the files of a sandbox into new ones with its limits, lifetime, environment, metadata and network.",
            vec![Content::json::<Forked>()],
            |method| on(method, fork),
        )
        .with_body(Content::json::<Fork>().at_most(MAX))
        .recorded_as("sandbox.fork"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/snapshots",
            "Keep the files of a sandbox, to make others of them.",
            vec![Content::json::<SnapshotInfo>()],
            |method| on(method, snapshot),
        )
        .with_body(Content::json::<CreateSnapshot>().at_most(MAX))
        .recorded_as("sandbox.snapshot"),
        route(
            Method::GET,
            "/v1/snapshots",
            "List the snapshots, the oldest first.",
            vec![Content::json::<SnapshotList>()],
            |method| on(method, list),
        ),
        route(
            Method::GET,
            "/v1/snapshots/{id}",
            "Describe a snapshot, by its id or name.",
            vec![Content::json::<SnapshotInfo>()],
            |method| on(method, get),
        ),
        route(
            Method::DELETE,
            "/v1/snapshots/{id}",
            "Remove a snapshot. Sandboxes that were made of it stay.",
            vec![NOTHING],
            |method| on(method, remove),
        )
        .recorded_as("snapshot.remove"),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fork {
    /// Number of new sandboxes, at most 16; 1 by default.
    #[schemars(range(min = 1, max = 16))]
    count: Option<usize>,
    /// Unique name of the new sandbox, if it is one: letters, digits, `-`, `_` and `.`.
    name: Option<SandboxName>,
}

/// The sandboxes that were made of another one.
#[derive(Debug, Serialize, JsonSchema)]
struct Forked {
    sandboxes: Vec<SandboxInfo>,
    /// Parts of the first sandbox that they do not have.
    not_copied: &'static [&'static str],
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateSnapshot {
    /// Unique name: letters, digits, `-`, `_` and `.`.
    name: Option<SandboxName>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotList {
    snapshots: Vec<SnapshotInfo>,
}

async fn fork(
    State(api): State<Arc<Api>>,
    client: Client,
    IdOrName(id): IdOrName,
    request: Request,
) -> Result<Response, ApiError> {
    let Fork { count, name } = body::json(request).await?;
    let count = count.unwrap_or(1);
    let described = json!({ "count": count, "name": name });
    let copies = NewCopies {
        count,
        name,
        most: client.most_sandboxes,
    };
    let made = api.sandboxes.fork(&client.scope, &id, copies).await?;
    let sandboxes: Vec<SandboxInfo> = made.iter().map(|sandbox| sandbox.info()).collect();
    let ids: Vec<&str> = sandboxes.iter().map(|info| info.id.as_str()).collect();
    let described = described_as(&described, "ids", &ids.join(" "));
    let forked = Forked {
        not_copied: &["processes", "contexts", "name"],
        sandboxes,
    };
    Ok((described, Json(forked)).into_response())
}

async fn snapshot(
    State(api): State<Arc<Api>>,
    client: Client,
    IdOrName(id): IdOrName,
    request: Request,
) -> Result<Response, ApiError> {
    let CreateSnapshot { name } = body::json(request).await?;
    let described = json!({ "name": name });
    let made = api.sandboxes.snapshot(&client.scope, &id, name).await?;
    let described = described_as(&described, "id", made.id.as_str());
    Ok((described, Json(made)).into_response())
}

async fn list(State(api): State<Arc<Api>>, client: Client) -> Result<Response, ApiError> {
    let snapshots = api.sandboxes.snapshots(&client.scope);
    Ok(Json(SnapshotList { snapshots }).into_response())
}

async fn get(
    State(api): State<Arc<Api>>,
    client: Client,
    IdOrName(id): IdOrName,
) -> Result<Response, ApiError> {
    Ok(Json(api.sandboxes.find_snapshot(&client.scope, &id)?).into_response())
}

async fn remove(
    State(api): State<Arc<Api>>,
    client: Client,
    IdOrName(id): IdOrName,
) -> Result<Response, ApiError> {
    api.sandboxes.remove_snapshot(&client.scope, &id)?;
    Ok(done())
}
