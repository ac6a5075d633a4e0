//! The control plane: creates, finds and ends sandboxes.

mod copies;
mod create;
mod life;
mod list;
mod network;
mod sandbox;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::body;
use crate::client::{BuildKey, Client};
use crate::error::Error;
use crate::protocol::parts;
use crate::service::Service;
use crate::templates::routes as templates;
use sandbox::find;

pub(crate) async fn answer(
    service: &Service,
    client: &Client,
    key: BuildKey,
    request: Request,
) -> Result<Response, Error> {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    // Clients encode the colon of `name:tag`.
    let plain = path.replace("%3A", ":").replace("%3a", ":");
    match (method.as_str(), &parts(&plain)[..]) {
        ("POST", ["sandboxes"]) => {
            create::create(service, client, &key.begin_run, create::Version::One, request).await
        }
        ("POST", ["v2", "sandboxes"]) => {
            create::create(service, client, &key.begin_run, create::Version::Two, request).await
        }
        ("GET", ["sandboxes"] | ["v2", "sandboxes"]) => list::list(service, client, &request),
        ("GET", ["sandboxes", id]) => life::info(service, client, id),
        ("DELETE", ["sandboxes", id]) => kill(service, client, id).await,
        ("POST", ["sandboxes", id, "connect"]) => life::connect(service, client, id, request).await,
        ("POST", ["sandboxes", id, "timeout"]) => life::set_timeout(service, client, id, request).await,
        ("GET", ["sandboxes", id, "metrics"]) => life::metrics(service, client, id, &request),
        ("PUT", ["sandboxes", id, "network"]) => network::update(service, client, id, request).await,
        ("POST", ["sandboxes", id, "pause"]) => copies::pause(service, client, id, request).await,
        // The way of clients before `connect`.
        ("POST", ["sandboxes", id, "resume"]) => life::connect(service, client, id, request).await,
        ("POST", ["sandboxes", id, "snapshots"]) => copies::snapshot(service, client, id, request).await,
        ("POST", ["sandboxes", id, "fork"]) => copies::fork(service, client, id, request).await,
        ("GET", ["snapshots"]) => copies::snapshots(service, client, &request),
        ("DELETE", ["templates", id]) if *id != "tags" => copies::remove_snapshot(service, client, id),
        ("POST", ["v2", "templates", id, "builds", build]) => {
            let asked = body::json(request).await?;
            let build = templates::BuildId { template: id, build };
            templates::start_build(service, client, key, build, asked).await
        }
        (_, parts) if templates::serves(parts) => templates::answer(service, client, parts, request).await,
        (_, ["snapshots" | "volumes" | "secrets", ..]) => Err(unserved(&path)),
        (_, ["v3" | "v2" | "templates", ..]) => Err(unserved(&path)),
        _ => Err(Error::not_found("there is no such route")),
    }
}

fn unserved(path: &str) -> Error {
    Error::not_supported(
        &format!("`{}`", path.chars().take(80).collect::<String>()),
        "volumes and secrets are not served; snapshots are made of sandboxes",
    )
}

/// Ends a sandbox, and waits for that.
async fn kill(service: &Service, client: &Client, id: &str) -> Result<Response, Error> {
    let sandbox = find(service, client, id)?;
    service
        .sandboxes
        .remove(&client.scope, sandbox.id().as_str())
        .await?;
    service.forget(id);
    Ok(StatusCode::NO_CONTENT.into_response())
}
