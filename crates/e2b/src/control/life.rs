//! Descriptions and lifetimes of sandboxes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{Query, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringfence_policy::Timeout;
use ringfence_sandbox::{OnExpiry, SandboxInfo, SandboxState, rfc3339};
use serde::Deserialize;
use serde_json::{Value, json};

use super::create;
use super::network;
use super::sandbox::{find, handed_over};
use crate::body;
use crate::client::Client;
use crate::error::Error;
use crate::known::Settings;
use crate::protocol::{ENVD_VERSION, LIFETIME};
use crate::service::Service;

const MIB: u64 = 1024 * 1024;

#[derive(Debug, Deserialize)]
struct TimeoutRequest {
    timeout: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct ConnectRequest {
    timeout: Option<u64>,
    /// `false` to resume it without its processes.
    memory: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Period {
    start: Option<i64>,
    end: Option<i64>,
}

/// Describes a sandbox as lists do.
pub(super) fn listed(service: &Service, info: &SandboxInfo) -> Value {
    let resources = &info.resources;
    json!({
        "sandboxID": info.id.as_str(),
        "templateID": service.template_of(info.id.as_str()),
        "clientID": "ringfence",
        "cpuCount": resources.cpu_limit.map_or(1, |cpus| cpus.ceil() as u64),
        "memoryMB": resources.memory_limit.unwrap_or_default() / MIB,
        "diskSizeMB": resources.disk_limit / MIB,
        "startedAt": info.created_at,
        "endAt": info.expires_at,
        "state": state(info.state),
        "envdVersion": ENVD_VERSION,
        "metadata": info.metadata,
    })
}

/// Describes a sandbox.
pub(super) fn info(service: &Service, client: &Client, id: &str) -> Result<Response, Error> {
    let sandbox = find(service, client, id)?;
    let known = service.know(client, &sandbox, Settings::default())?;
    let mut detail = listed(service, &sandbox.info());
    detail["envdAccessToken"] = known.token.as_str().into();
    detail["domain"] = client.domain.clone().into();
    detail["network"] = known.shared.settings.ingress.to_json();
    network::describe(&mut detail, &sandbox.info().allowed_hosts);
    if !sandbox.info().ports {
        // Nobody can visit its programs, which have no sockets.
        detail["network"]["allowPublicTraffic"] = false.into();
    }
    let on_timeout = match sandbox.info().on_expiry {
        OnExpiry::Kill => "kill",
        OnExpiry::Pause => "pause",
    };
    detail["lifecycle"] = json!({"onTimeout": on_timeout, "autoResume": known.shared.settings.auto_resume});
    Ok(Json(detail).into_response())
}

/// Returns the name of a state.
pub(super) const fn state(state: SandboxState) -> &'static str {
    match state {
        SandboxState::Running => "running",
        SandboxState::Paused => "paused",
    }
}

/// Hands a sandbox over to one more client, and lets it live at least as long as that asks. A paused one is resumed.
pub(super) async fn connect(
    service: &Service,
    client: &Client,
    id: &str,
    request: Request,
) -> Result<Response, Error> {
    let sandbox = find(service, client, id)?;
    let ConnectRequest { timeout, memory } = body::json(request).await?;
    let timeout = create::timeout(timeout.unwrap_or(LIFETIME))?;
    let known = service.know(client, &sandbox, Settings::default())?;
    if sandbox.state() == SandboxState::Paused {
        service.sandboxes.resume(&client.scope, id).await?;
        if memory == Some(false) {
            sandbox.end_programs().await?;
        }
        set(service, client, id, timeout)?;
        return Ok((StatusCode::CREATED, handed_over(client, &sandbox, &known)).into_response());
    }
    // Times of one form are in the order of their texts.
    if rfc3339(SystemTime::now() + timeout.as_duration()) > sandbox.info().expires_at {
        set(service, client, id, timeout)?;
    }
    Ok(handed_over(client, &sandbox, &known).into_response())
}

pub(super) async fn set_timeout(
    service: &Service,
    client: &Client,
    id: &str,
    request: Request,
) -> Result<Response, Error> {
    find(service, client, id)?;
    let TimeoutRequest { timeout } = body::json(request).await?;
    let timeout = timeout.ok_or_else(|| Error::invalid("`timeout` is missing"))?;
    set(service, client, id, create::timeout(timeout)?)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) fn set(service: &Service, client: &Client, id: &str, timeout: Timeout) -> Result<(), Error> {
    service.sandboxes.set_timeout(&client.scope, id, timeout)?;
    Ok(())
}

/// Returns the usage of a sandbox: now, and not over time.
pub(super) fn metrics(
    service: &Service,
    client: &Client,
    id: &str,
    request: &Request,
) -> Result<Response, Error> {
    let sandbox = find(service, client, id)?;
    let query: Query<Period> =
        Query::try_from_uri(request.uri()).map_err(|rejection| Error::invalid(rejection.body_text()))?;
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // A client asks for the time up to its own now, which may be a little before ours.
    let is_asked_for = |at: i64| {
        query.start.is_none_or(|start| start <= at)
            && query.end.is_none_or(|end| at <= end.saturating_add(10))
    };
    if !is_asked_for(since.cast_signed()) {
        return Ok(Json(json!([])).into_response());
    }
    let resources = sandbox.info().resources;
    let (Some(memory), Some(limit)) = (resources.memory_bytes, resources.memory_limit) else {
        return Err(Error::not_supported(
            "metrics",
            "this machine lacks control groups",
        ));
    };
    let cpus = resources.cpu_limit.unwrap_or(1.0);
    let age = sandbox.age().max(Duration::from_millis(1)).as_secs_f64();
    let percent = resources.cpu_seconds.unwrap_or_default() / age / cpus * 100.0;
    let metric = json!({
        "cpuCount": cpus.ceil() as u64,
        "cpuUsedPct": percent,
        "memUsed": memory,
        "memTotal": limit,
        "memCache": 0,
        "diskUsed": resources.disk_bytes.unwrap_or_default(),
        "diskTotal": resources.disk_limit,
        "timestamp": rfc3339(now),
        "timestampUnix": since,
    });
    Ok(Json(json!([metric])).into_response())
}
