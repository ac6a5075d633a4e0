//! Parses engine responses ourselves where Podman's do not fit the types of Docker's client.

use std::collections::HashMap;

use bollard::errors::Error as Told;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use ringfence_policy::EngineKind;

use super::inspected::{Id, Inspected, Listed, Status};
use super::wire::Wire;

/// Size limit of a response, in bytes.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// `{"name": ["fw-sandbox-"]}`: the engine matches substrings of names.
const OURS: &str = "all=true&filters=%7B%22name%22%3A%5B%22fw-sandbox-%22%5D%7D";

/// A container in the engine's list.
#[derive(Deserialize)]
struct Summary {
    #[serde(rename = "Names", default)]
    names: Vec<String>,
    #[serde(rename = "Labels", default)]
    labels: Option<HashMap<String, String>>,
    #[serde(rename = "State", default)]
    state: String,
    #[serde(rename = "Created", default)]
    created: i64,
}

#[derive(Deserialize)]
struct Container {
    #[serde(rename = "Id")]
    id: String,
    #[serde(rename = "State")]
    state: State,
}

#[derive(Deserialize)]
struct State {
    #[serde(rename = "Status")]
    status: String,
    #[serde(rename = "ExitCode", default)]
    exit_code: Option<i64>,
    #[serde(rename = "OOMKilled", default)]
    oom_killed: bool,
    /// Of the first process on the host; 0 if there is none.
    #[serde(rename = "Pid", default)]
    pid: u32,
}

/// Lists the containers whose names contain our prefix.
pub(super) async fn containers(wire: &Wire) -> Result<Vec<Listed>, Told> {
    let found: Vec<Summary> = get(wire, &format!("/containers/json?{OURS}")).await?;
    let listed = |container: Summary| {
        Some(Listed {
            name: container.names.first()?.trim_start_matches('/').to_owned(),
            labels: container.labels.unwrap_or_default(),
            state: container.state,
            created: container.created,
        })
    };
    Ok(found.into_iter().filter_map(listed).collect())
}

/// Inspects a container; `None` if the engine's response is inconsistent.
pub(super) async fn container(wire: &Wire, id: &Id) -> Result<Option<Inspected>, Told> {
    let found: Container = get(wire, &format!("/containers/{id}/json")).await?;
    Ok(inspected(found))
}

fn inspected(found: Container) -> Option<Inspected> {
    let status = status(&found.state.status)?;
    Some(Inspected {
        id: Id::new(&found.id)?,
        status,
        exit_code: found.state.exit_code.filter(|_| status == Status::Exited),
        oom_killed: found.state.oom_killed,
        pid: Some(found.state.pid).filter(|pid| *pid != 0),
    })
}

/// Maps the status names of both engines.
fn status(word: &str) -> Option<Status> {
    Some(match word {
        "created" | "configured" | "initialized" => Status::Created,
        "running" | "stopping" => Status::Running,
        "paused" => Status::Paused,
        "exited" | "dead" | "stopped" => Status::Exited,
        "removing" => Status::Removing,
        // None of our containers is ever restarted.
        _ => return None,
    })
}

/// The range of API versions that an engine speaks.
#[derive(Deserialize)]
pub(super) struct Versions {
    #[serde(rename = "ApiVersion", default)]
    pub(super) newest: String,
    #[serde(rename = "MinAPIVersion", default)]
    pub(super) oldest: String,
}

/// An engine's description of itself. Docker lists "rootless" among its security options, Podman has a field
/// for it.
#[derive(Deserialize)]
pub(super) struct EngineInfo {
    #[serde(rename = "Runtimes", default)]
    pub(super) runtimes: Option<HashMap<String, IgnoredAny>>,
    #[serde(rename = "DefaultRuntime", default)]
    pub(super) default_runtime: String,
    #[serde(rename = "SecurityOptions", default)]
    pub(super) security_options: Option<Vec<String>>,
    #[serde(rename = "Rootless", default)]
    pub(super) rootless: bool,
    #[serde(rename = "CgroupVersion", default)]
    pub(super) cgroup_version: Option<String>,
    #[serde(rename = "MemoryLimit", default)]
    pub(super) memory_limit: bool,
    #[serde(rename = "PidsLimit", default)]
    pub(super) pids_limit: bool,
    #[serde(rename = "CpuCfsQuota", default)]
    pub(super) cpu_limit: bool,
}

/// Queries the engine's description of itself.
pub(super) async fn engine_info(wire: &Wire) -> Result<EngineInfo, Told> {
    get(wire, "/info").await
}

/// Queries the supported API versions. Podman's `/version` looks up the packages of its components, which
/// takes a fifth of a second; every Podman response names its version, so we use `/_ping`.
pub(super) async fn versions(wire: &Wire, engine_kind: EngineKind) -> Result<Versions, Told> {
    match engine_kind {
        EngineKind::Docker => read(wire.ask("/version").await?).await,
        EngineKind::Podman => {
            let answer = wire.ask("/_ping").await?;
            let newest = answer.headers().get("api-version");
            let newest = newest.and_then(|version| version.to_str().ok());
            Ok(Versions {
                newest: newest.unwrap_or_default().to_owned(),
                oldest: String::new(),
            })
        }
    }
}

async fn get<T: DeserializeOwned>(wire: &Wire, path: &str) -> Result<T, Told> {
    let request = Request::builder().method(Method::GET).uri(path);
    let response = wire
        .clone()
        .request(request.body(bollard::body_full(Bytes::new()))?)
        .await?;
    read(response).await
}

async fn read<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Told> {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    let body = body
        .map_err(|error| std::io::Error::other(error.to_string()))?
        .to_bytes();
    if status.is_success() {
        return Ok(serde_json::from_slice(&body)?);
    }
    #[derive(Deserialize)]
    struct Problem {
        message: String,
    }
    let message = match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => problem.message,
        Err(_) => String::from_utf8_lossy(&body).into_owned(),
    };
    Err(Told::DockerResponseServerError {
        status_code: status.as_u16(),
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_both_engines_are_known() {
        let check = |word: &str, expected: Option<Status>| {
            let text = format!(r#"{{"Id": "ab", "State": {{"Status": "{word}", "ExitCode": 3}}}}"#);
            let found = inspected(serde_json::from_str(&text).unwrap());
            assert_eq!(found.as_ref().map(|found| found.status), expected, "{word}");
            let ended = expected == Some(Status::Exited);
            assert_eq!(
                found.and_then(|found| found.exit_code),
                ended.then_some(3),
                "{word}"
            );
        };
        check("exited", Some(Status::Exited));
        check("stopped", Some(Status::Exited));
        check("running", Some(Status::Running));
        check("configured", Some(Status::Created));
        check("restarting", None);
        check("", None);
    }
}
