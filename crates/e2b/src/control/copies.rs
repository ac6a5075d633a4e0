//! Pauses, snapshots and forks of sandboxes.

use axum::Json;
use axum::extract::{Query, Request};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ringfence_policy::Timeout;
use ringfence_sandbox::{NewCopies, PausedProcesses, SandboxState, SnapshotInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use super::sandbox::{find, handed_over};
use super::{create, life};
use crate::body;
use crate::client::Client;
use crate::error::Error;
use crate::known::Settings;
use crate::protocol::LIFETIME;
use crate::service::Service;

/// Time for which a paused sandbox is kept: the longest that there is.
const KEPT: Timeout = Timeout::seconds(24 * 60 * 60);
/// Maximum number of snapshots on a page.
const PAGE: usize = 100;

#[derive(Debug, Deserialize)]
struct PauseRequest {
    memory: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct SnapshotRequest {
    name: Option<String>,
    memory: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ForkRequest {
    timeout: Option<u64>,
    count: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListQuery {
    #[serde(rename = "sandboxID")]
    sandbox: Option<String>,
    name: Option<String>,
    limit: Option<usize>,
    next_token: Option<String>,
}

/// Pauses a sandbox, which is kept for a day, with its processes or without.
pub(super) async fn pause(
    service: &Service,
    client: &Client,
    id: &str,
    request: Request,
) -> Result<Response, Error> {
    let sandbox = find(service, client, id)?;
    let PauseRequest { memory } = body::json(request).await?;
    if sandbox.state() == SandboxState::Paused {
        return Err(Error::new(
            StatusCode::CONFLICT,
            format!("sandbox `{id}` is paused already"),
        ));
    }
    service
        .sandboxes
        .pause_with(&client.scope, id, processes(memory))
        .await?;
    life::set(service, client, id, KEPT)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns the fate of processes at a pause with memory, which is the usual one, or without.
pub(super) fn processes(memory: Option<bool>) -> PausedProcesses {
    match memory {
        Some(false) => PausedProcesses::Ended,
        Some(true) | None => PausedProcesses::Kept,
    }
}

/// Keeps the files of a sandbox, of which others can be created.
pub(super) async fn snapshot(
    service: &Service,
    client: &Client,
    id: &str,
    request: Request,
) -> Result<Response, Error> {
    find(service, client, id)?;
    let SnapshotRequest { name, memory } = body::json(request).await?;
    if memory == Some(true) {
        return Err(Error::not_supported(
            "snapshots that keep processes and their memory",
            "leave `mode` out, which keeps the files, or pause the sandbox",
        ));
    }
    let name = name.map(|name| name.parse()).transpose();
    let name = name.map_err(|error| Error::invalid(format!("`name`: {error}")))?;
    let made = service.sandboxes.snapshot(&client.scope, id, name);
    Ok((StatusCode::CREATED, Json(described(&made.await?))).into_response())
}

fn described(snapshot: &SnapshotInfo) -> Value {
    let names: Vec<&str> = snapshot.name.iter().map(|name| name.as_str()).collect();
    json!({"snapshotID": snapshot.id.as_str(), "names": names})
}

/// Lists the snapshots of a client, the newest first.
pub(super) fn snapshots(service: &Service, client: &Client, request: &Request) -> Result<Response, Error> {
    let query: Query<ListQuery> =
        Query::try_from_uri(request.uri()).map_err(|rejection| Error::invalid(rejection.body_text()))?;
    let Query(query) = query;
    let mut found = service.sandboxes.snapshots(&client.scope);
    found.reverse();
    found.retain(|snapshot| {
        let is_of = query
            .sandbox
            .as_ref()
            .is_none_or(|id| snapshot.sandbox.as_str() == id);
        let is_named = query.name.as_ref().is_none_or(|wanted| {
            snapshot.name.as_ref().is_some_and(|name| name.as_str() == wanted)
                || snapshot.id.as_str() == wanted
        });
        is_of && is_named
    });
    // The token is the last id of the page before; one that is gone by now begins anew.
    let seen = query
        .next_token
        .as_ref()
        .and_then(|last| found.iter().position(|snapshot| snapshot.id.as_str() == last));
    let rest = found.split_off(seen.map_or(0, |at| at + 1));
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let page: Vec<Value> = rest.iter().take(limit).map(described).collect();
    let next = rest.get(limit - 1).filter(|_| rest.len() > limit);
    let next = next.and_then(|last| HeaderValue::from_str(last.id.as_str()).ok());
    let mut response = Json(page).into_response();
    if let Some(next) = next {
        response.headers_mut().insert("x-next-token", next);
    }
    Ok(response)
}

/// Removes a snapshot, which is a template to E2B's clients: by its id, or all builds of a name.
pub(super) fn remove_snapshot(service: &Service, client: &Client, id: &str) -> Result<Response, Error> {
    if id.contains(':') {
        return Err(Error::invalid(
            "name a template without a tag: a build goes with the last of its tags (`DELETE /templates/tags`)",
        ));
    }
    let builds = service.sandboxes.builds(&client.scope, id).unwrap_or_default();
    if builds.is_empty() || builds.iter().any(|build| build.id.as_str() == id) {
        service.sandboxes.remove_snapshot(&client.scope, id)?;
    } else {
        for build in builds {
            service
                .sandboxes
                .remove_snapshot(&client.scope, build.id.as_str())?;
        }
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Copies the files of a sandbox into new ones.
pub(super) async fn fork(
    service: &Service,
    client: &Client,
    id: &str,
    request: Request,
) -> Result<Response, Error> {
    let sandbox = find(service, client, id)?;
    let ForkRequest { timeout, count } = body::json(request).await?;
    let timeout = create::timeout(timeout.unwrap_or(LIFETIME))?;
    let known = service.know(client, &sandbox, Settings::default())?;
    let copies = NewCopies {
        most: client.most_sandboxes,
        ..NewCopies::of(count.unwrap_or(1))
    };
    let made = service.sandboxes.fork(&client.scope, id, copies).await?;
    let mut forks = Vec::new();
    for fork in made {
        life::set(service, client, fork.id().as_str(), timeout)?;
        let known = service.know(client, &fork, known.shared.settings.clone())?;
        let Json(handed_over) = handed_over(client, &fork, &known);
        forks.push(json!({"sandbox": handed_over}));
    }
    Ok((StatusCode::CREATED, Json(forks)).into_response())
}
