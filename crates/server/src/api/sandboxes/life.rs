//! Sandboxes: create, list, get, set the time of their expiry or their hosts, remove.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use ringfence_container::sandboxes::SandboxInfo as ContainerInfo;
use ringfence_policy::{Account, Bytes, Cpus, EgressPolicy, EnvName, HostPattern, Pids, Scope, Timeout};
use ringfence_sandbox::{
    Digest, ListPosition, NewSandbox, OnExpiry, PausedProcesses, Runtime, SandboxFence, SandboxInfo,
    SandboxLimits, SandboxName, SandboxPackages, Sandboxes, SnapshotInfo,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::body;
use super::super::content::{Content, NOTHING, done};
use super::super::error::{ApiError, Reason};
use super::super::extract::{Client, IdOrName, InSandbox, Params};
use super::super::recording::{Described, described_as};
use super::super::route::{Form, Parameter, Place, Route, route};
use super::super::state::Api;
use super::super::tenant::Account as Holder;

/// Maximum size of a request, in bytes.
const MAX: usize = 1024 * 1024;

const INFO: Content = Content::json::<SandboxInfo>();

const ALL: Parameter = Parameter {
    place: Place::Query,
    name: "all",
    required: false,
    form: Form::Flag,
    description: "List those of all users and keys, each with its owner: true or false. The server's user alone may ask so.",
};

const METADATA: Parameter = Parameter {
    place: Place::Members,
    name: "metadata",
    required: false,
    form: Form::Text,
    description: "List those alone whose metadata have these values: `metadata.NAME=VALUE`, or `metadata[NAME]=VALUE`.",
};

const LIMIT: Parameter = Parameter {
    place: Place::Query,
    name: "limit",
    required: false,
    form: Form::Number,
    description: "Most sandboxes to list, 1000 at most; all if it is left out.",
};

const AFTER: Parameter = Parameter {
    place: Place::Query,
    name: "after",
    required: false,
    form: Form::Text,
    description: "List sandboxes behind the last one of a page: `next` of that page. It is good also when that sandbox is gone.",
};

/// Most sandboxes of a page.
const MAX_PAGE: usize = 1000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(
            Method::POST,
            "/v1/sandboxes",
            "Create a sandbox.",
            vec![INFO],
            |method| on(method, create),
        )
        .with_body(Content::json::<CreateSandbox>().at_most(MAX))
        .recorded_as("sandbox.create"),
        route(
            Method::GET,
            "/v1/sandboxes",
            "List the sandboxes, the oldest first, in pages if `limit` is given; `metadata.NAME=VALUE` selects by metadata.",
            vec![Content::json::<SandboxList>()],
            |method| on(method, list),
        )
        .with_parameters(&[ALL, METADATA, LIMIT, AFTER]),
        route(
            Method::GET,
            "/v1/sandboxes/{id}",
            "Describe a sandbox, by its id or name.",
            vec![INFO],
            |method| on(method, get),
        ),
        route(
            Method::DELETE,
            "/v1/sandboxes/{id}",
            "End a sandbox with everything in it.",
            vec![NOTHING],
            |method| on(method, remove),
        )
        .recorded_as("sandbox.remove"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/timeout",
            "Set the time until a sandbox expires, from now on.",
            vec![INFO],
            |method| on(method, set_timeout),
        )
        .with_body(Content::json::<SetTimeout>().at_most(MAX))
        .recorded_as("sandbox.timeout"),
        route(
            Method::PUT,
            "/v1/sandboxes/{id}/network",
            "Replace the hosts that the programs of a sandbox may reach. Connections to other hosts are closed before the answer, and \
             the next ones are judged by the new list.",
            vec![INFO],
            |method| on(method, set_network),
        )
        .with_body(Content::json::<SetNetwork>().at_most(MAX))
        .recorded_as("sandbox.network"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/pause",
            "Stop all processes of a sandbox: they use no processor and keep their memory.",
            vec![INFO],
            |method| on(method, pause),
        )
        .recorded_as("sandbox.pause"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/resume",
            "Continue the processes of a paused sandbox.",
            vec![INFO],
            |method| on(method, resume),
        )
        .recorded_as("sandbox.resume"),
    ]
}

/// A sandbox to create.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateSandbox {
    /// Unique name: letters, digits, `-`, `_` and `.`.
    name: Option<SandboxName>,
    #[serde(default)]
    runtime: Runtime,
    /// The fence of a local sandbox: `box` makes its programs root over users and a root file system of their own. It needs a
    /// server that runs as root. Not with a key of the API. By default that of the snapshot's sandbox, else `run`.
    fence: Option<SandboxFence>,
    /// Memory limit, such as `512MiB`.
    #[schemars(with = "Option<Amount>")]
    memory: Option<Bytes>,
    /// Processor limit, in cores.
    #[schemars(with = "Option<f64>", range(min = 0.01, max = 1024.0))]
    cpus: Option<Cpus>,
    /// Limit of processes and threads.
    #[schemars(with = "Option<u32>", range(min = 1, max = 32768))]
    pids: Option<Pids>,
    /// Size limit of all its files together; 256 MiB by default, and at most half of the memory.
    #[schemars(with = "Option<Amount>")]
    disk: Option<Bytes>,
    /// Hosts that its programs may reach; without any, it has no network. With a key of the API such as the operator has opened.
    /// `PUT /v1/sandboxes/{id}/network` replaces them.
    #[serde(default)]
    allowed_hosts: Vec<String>,
    /// Let its programs listen on TCP ports, which `POST /v1/sandboxes/{id}/ports/{port}` reaches. Its programs have sockets then, so
    /// that hosts can be opened to them later.
    #[serde(default)]
    ports: bool,
    /// Default environment of its programs.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Labels, by which it can be found.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    /// Time until it expires; an hour by default.
    timeout: Option<Timeout>,
    /// The event at its expiry.
    #[serde(default)]
    on_expiry: OnExpiry,
    /// Id or name of a snapshot whose files it begins with, and whose limits of memory, disk and cores it has unless others are asked
    /// for.
    snapshot: Option<String>,
    /// Key of kept packages, which `ringfence packages ls --json` lists, or a list of such keys: one of Python's packages, one
    /// of npm's. Not with a key of the API.
    packages: Option<PackageKeys>,
    /// Image that takes the place of this machine's files: the reference or digest of one that `ringfence image ls` lists. None is
    /// pulled. Not with a key of the API.
    image: Option<String>,
}

/// Keys of kept packages.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a key of kept packages, 64 hexadecimal digits, or a list of such keys"
)]
enum PackageKeys {
    One(#[schemars(with = "String")] Digest),
    Several(#[schemars(with = "Vec<String>")] Vec<Digest>),
}

impl From<&PackageKeys> for Vec<Digest> {
    fn from(keys: &PackageKeys) -> Self {
        match keys {
            PackageKeys::One(key) => vec![key.clone()],
            PackageKeys::Several(keys) => keys.clone(),
        }
    }
}

/// A number of bytes, or a text such as `512MiB`.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "describes what another type parses")]
pub(super) enum Amount {
    Bytes(u64),
    Text(#[schemars(regex(pattern = r"^[0-9]+(\.[0-9]+)? ?([KMGTkmgt]i?[Bb]?|[Bb])?$"))] String),
}

/// The parameters of a list, beside those of metadata.
#[derive(Debug, Deserialize)]
struct ListQuery {
    #[serde(default)]
    all: bool,
    user: Option<Scope>,
    limit: Option<usize>,
    after: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SandboxList {
    sandboxes: Vec<ListedSandbox>,
    /// `after` of the next page; null at the end.
    next: Option<String>,
    /// Containers of templates, in lists of the server's user without metadata, which they have not; all with the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    containers: Option<Vec<ListedContainer>>,
}

/// A container of a template.
#[derive(Debug, Serialize, JsonSchema)]
struct ListedContainer {
    name: String,
    /// Its container engine: docker or podman.
    engine: &'static str,
    template: String,
    state: String,
    age_seconds: f64,
    /// Seconds until its end.
    left_seconds: f64,
    /// The user on whose behalf the server's user acts on it; present in a list of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ListedSandbox {
    #[serde(flatten)]
    info: SandboxInfo,
    /// Present in a list of all.
    #[serde(flatten)]
    owner: Option<SandboxOwner>,
}

/// The owner of a sandbox.
#[derive(Debug, Serialize, JsonSchema)]
struct SandboxOwner {
    /// The user on whose behalf the server's user acts on it: the parameter `user` of other requests.
    user: String,
    /// The tenant (`tenant:NAME`) or key that has it, if one does.
    account: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SetTimeout {
    /// Seconds, or a text such as `5m`.
    timeout: Timeout,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SetNetwork {
    /// All hosts that its programs may reach; empty: none. With a key of the API such as the operator has opened. A sandbox that was
    /// created without `allowed_hosts` and `ports` can have none.
    allowed_hosts: Vec<String>,
}

/// Limits that the holder of a key may ask for at most.
const KEY_MEMORY: Bytes = Bytes::mib(4096);
const KEY_CPUS: f64 = 4.0;
const KEY_PIDS: u32 = 1024;

impl CreateSandbox {
    fn package_keys(&self) -> Vec<Digest> {
        self.packages.as_ref().map(Into::into).unwrap_or_default()
    }

    fn limits(&self, snapshot: Option<&SnapshotInfo>) -> SandboxLimits {
        let mut default = snapshot.map_or_else(SandboxLimits::default, SnapshotInfo::limits);
        let memory = self.memory.unwrap_or(default.memory);
        if snapshot.is_none() {
            // Files count as memory.
            default.disk = default.disk.min(Bytes(memory.0 / 2));
        }
        SandboxLimits {
            memory,
            cpus: self.cpus.unwrap_or(default.cpus),
            pids: self.pids.unwrap_or(default.pids),
            disk: self.disk.unwrap_or(default.disk),
        }
    }

    fn fence(&self, snapshot: Option<&SnapshotInfo>) -> SandboxFence {
        let of_snapshot = snapshot.and_then(|snapshot| snapshot.fence);
        self.fence.or(of_snapshot).unwrap_or_default()
    }

    /// Refuses what keys cannot have.
    fn check_of_key(&self, fence: SandboxFence, limits: &SandboxLimits) -> Result<(), ApiError> {
        let unavailable = [
            (
                !self.package_keys().is_empty(),
                "have no packages",
                "leave `packages` out",
            ),
            // The images of the server's user, private ones among them, are nobody else's.
            (self.image.is_some(), "have no images", "leave `image` out"),
            // More of the kernel is open to its programs.
            (
                fence == SandboxFence::Box,
                "have the fence `run`",
                "leave `fence` out",
            ),
        ];
        let asked = unavailable.into_iter().find(|(is_asked, ..)| *is_asked);
        if let Some((_, what, hint)) = asked {
            let message = format!("sandboxes of keys {what}");
            return Err(ApiError::new(Reason::PermissionDenied, message, hint));
        }
        if limits.memory > KEY_MEMORY || limits.pids.get() > KEY_PIDS || limits.cpus.get() > KEY_CPUS {
            return Err(ApiError::new(
                Reason::PermissionDenied,
                format!(
                    "a sandbox of a key has at most {KEY_MEMORY}, {KEY_CPUS} cores and {KEY_PIDS} processes"
                ),
                "ask for less",
            ));
        }
        Ok(())
    }

    fn checked(
        self,
        client: &Client,
        snapshot: Option<&SnapshotInfo>,
        sandboxes: &Sandboxes,
    ) -> Result<NewSandbox, ApiError> {
        let invalid = |message: String| ApiError::new(Reason::InvalidArguments, message, body::SCHEMA_HINT);
        let limits = self.limits(snapshot);
        let fence = self.fence(snapshot);
        if !client.is_owner {
            self.check_of_key(fence, &limits)?;
        }
        let egress = egress(&self.allowed_hosts, client, sandboxes)?;
        let mut env = Vec::new();
        for (name, value) in self.env {
            let name: EnvName = name.parse().map_err(|error| invalid(format!("`env`: {error}")))?;
            env.push((name, value));
        }
        Ok(NewSandbox {
            account: match fence {
                SandboxFence::Run => Account::Sandbox,
                SandboxFence::Box => Account::Root,
            },
            name: self.name,
            runtime: self.runtime,
            limits,
            egress,
            ports: self.ports,
            env,
            metadata: self.metadata,
            timeout: self.timeout,
            on_expiry: self.on_expiry,
            at_expiry: PausedProcesses::Kept,
            snapshot: self.snapshot,
            packages: SandboxPackages::default(),
            directory: None,
            user: snapshot.and_then(|snapshot| snapshot.user.clone()),
            image: None,
            most: client.most_sandboxes,
        })
    }
}

/// Returns the policy of a sandbox whose programs may reach these hosts; `None` without any.
fn egress(
    allowed_hosts: &[String],
    client: &Client,
    sandboxes: &Sandboxes,
) -> Result<Option<EgressPolicy>, ApiError> {
    if allowed_hosts.is_empty() {
        return Ok(None);
    }
    let hosts = allowed_hosts.iter().map(|host| {
        host.parse().map_err(|error| {
            let message = format!("`allowed_hosts`: {error}");
            ApiError::new(Reason::InvalidArguments, message, body::SCHEMA_HINT)
        })
    });
    let allowed = hosts.collect::<Result<Vec<HostPattern>, _>>()?;
    let policy = match client.is_owner {
        true => Ok(sandboxes.opened_by_user(allowed)),
        false => sandboxes.key_hosts().only(allowed),
    };
    policy.map(Some).map_err(|closed| {
        let hint = "leave it out of `allowed_hosts`, or ask the operator to add it to `engine.sandbox_hosts`";
        ApiError::new(Reason::PermissionDenied, closed.to_string(), hint)
    })
}

async fn create(State(api): State<Arc<Api>>, client: Client, request: Request) -> Result<Response, ApiError> {
    let new: CreateSandbox = body::json(request).await?;
    let snapshot = match &new.snapshot {
        Some(snapshot) => Some(api.sandboxes.find_snapshot(&client.scope, snapshot)?),
        None => None,
    };
    let described = json!({
        "name": new.name,
        "runtime": new.runtime,
        "fence": new.fence(snapshot.as_ref()),
        "allowed_hosts": new.allowed_hosts,
        "snapshot": new.snapshot,
        "packages": new.package_keys(),
        "image": new.image,
    });
    let (keys, image) = (new.package_keys(), new.image.clone());
    let new = new.checked(&client, snapshot.as_ref(), &api.sandboxes)?;
    let packages = api.sandboxes.packages(&keys)?;
    let image = match &image {
        Some(image) => Some(api.sandboxes.image(image).await?),
        None => None,
    };
    let new = NewSandbox {
        packages,
        image,
        ..new
    };
    let made = api.sandboxes.create(&client.scope, new).await?.info();
    let described = described_as(&described, "id", made.id.as_str());
    Ok((described, Json(made)).into_response())
}

async fn list(
    State(api): State<Arc<Api>>,
    client: Client,
    Params(query): Params<ListQuery>,
    Params(parameters): Params<BTreeMap<String, String>>,
) -> Result<Response, ApiError> {
    let metadata = parameters.into_iter().filter_map(|(name, value)| {
        let member = METADATA.member(&name)?.to_owned();
        Some((member, value))
    });
    let metadata: BTreeMap<String, String> = metadata.collect();
    let after: Option<ListPosition> = query.after.as_deref().map(str::parse).transpose()?;
    let has_containers = client.is_owner && metadata.is_empty() && after.is_none();
    let accounts = owners(&api, &client, &query)?;
    let scope = (!query.all).then_some(&client.scope);
    let page = api
        .sandboxes
        .page(scope, &metadata, after.as_ref(), page_size(&query)?);
    let listed = |(user, info): (Scope, SandboxInfo)| {
        let owner = accounts.as_ref().map(|accounts| SandboxOwner {
            account: accounts.get(&user).map(|account| account.as_str().to_owned()),
            user: user.as_str().to_owned(),
        });
        ListedSandbox { info, owner }
    };
    let list = SandboxList {
        sandboxes: page.sandboxes.into_iter().map(listed).collect(),
        next: page.next.map(|next| next.to_string()),
        containers: has_containers.then(|| list_containers(&api, &client, &query)),
    };
    Ok(Json(list).into_response())
}

/// Returns the most sandboxes that a page may have.
fn page_size(query: &ListQuery) -> Result<usize, ApiError> {
    match query.limit {
        None => Ok(usize::MAX),
        Some(limit @ 1..=MAX_PAGE) => Ok(limit),
        Some(limit) => Err(ApiError::new(
            Reason::InvalidArguments,
            format!("`limit` must be from 1 to {MAX_PAGE}, got {limit}"),
            "leave it out for all sandboxes at once",
        )),
    }
}

/// Returns the accounts of all owners, for a list of the sandboxes of all users and keys; `None` for a list of the client's own.
fn owners(
    api: &Api,
    client: &Client,
    query: &ListQuery,
) -> Result<Option<BTreeMap<Scope, Holder>>, ApiError> {
    if !query.all {
        return Ok(None);
    }
    if query.user.is_some() {
        return Err(ApiError::new(
            Reason::InvalidArguments,
            "`all` is of all users",
            "leave `user` or `all` out",
        ));
    }
    if !client.is_owner {
        return Err(ApiError::new(
            Reason::PermissionDenied,
            "a key has its own sandboxes and no others",
            "leave `all` out",
        ));
    }
    Ok(Some(api.keys.accounts()?))
}

/// Lists the containers of templates, of one user or of all.
fn list_containers(api: &Api, client: &Client, query: &ListQuery) -> Vec<ListedContainer> {
    let listed = |user: Option<Scope>, info: ContainerInfo| ListedContainer {
        name: info.name,
        engine: info.engine.as_str(),
        template: info.template,
        state: info.state,
        age_seconds: info.age_seconds,
        left_seconds: info.left_seconds,
        user: user.map(|user| user.as_str().to_owned()),
    };
    match query.all {
        true => {
            let all = api.containers.list_all().into_iter();
            all.map(|(user, info)| listed(Some(user), info)).collect()
        }
        false => {
            let own = api.containers.list(&client.scope).into_iter();
            own.map(|info| listed(None, info)).collect()
        }
    }
}

async fn get(InSandbox(sandbox): InSandbox) -> Result<Response, ApiError> {
    Ok(Json(sandbox.measured_info().await).into_response())
}

async fn remove(
    State(api): State<Arc<Api>>,
    client: Client,
    IdOrName(id): IdOrName,
) -> Result<Response, ApiError> {
    api.sandboxes.remove(&client.scope, &id).await?;
    Ok(done())
}

async fn set_timeout(
    State(api): State<Arc<Api>>,
    client: Client,
    IdOrName(id): IdOrName,
    request: Request,
) -> Result<Response, ApiError> {
    let SetTimeout { timeout } = body::json(request).await?;
    let info = api.sandboxes.set_timeout(&client.scope, &id, timeout)?;
    Ok(Json(info).into_response())
}

async fn set_network(
    State(api): State<Arc<Api>>,
    client: Client,
    InSandbox(sandbox): InSandbox,
    request: Request,
) -> Result<Response, ApiError> {
    let SetNetwork { allowed_hosts } = body::json(request).await?;
    sandbox.set_network(egress(&allowed_hosts, &client, &api.sandboxes)?)?;
    let described = Extension(Described(json!({"allowed_hosts": allowed_hosts})));
    Ok((described, Json(sandbox.info())).into_response())
}

async fn pause(
    State(api): State<Arc<Api>>,
    client: Client,
    IdOrName(id): IdOrName,
) -> Result<Response, ApiError> {
    Ok(Json(api.sandboxes.pause(&client.scope, &id).await?).into_response())
}

async fn resume(
    State(api): State<Arc<Api>>,
    client: Client,
    IdOrName(id): IdOrName,
) -> Result<Response, ApiError> {
    Ok(Json(api.sandboxes.resume(&client.scope, &id).await?).into_response())
}
