//! Routes of templates.

use std::sync::Arc;

use axum::extract::{Query, Request};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use ringfence_policy::{Bytes, Cpus, memory};
use ringfence_sandbox::{SandboxId, SandboxLimits, SandboxName, SnapshotInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use super::build::{Base, Build, MAX_COMMAND, Step, in_json};
use super::files::{self, Archive, Upload};
use super::registry::{Status, Template, Templates, lock, not_open};
use super::tags;
use crate::body::{self, Described};
use crate::client::{BuildKey, Client};
use crate::error::Error;
use crate::protocol::{ENVD_VERSION, is_machine, parts};
use crate::service::Service;
use crate::token::{Token, header};

/// Memory of a template's sandboxes if none is asked for, and the most that there is.
const MEMORY: u64 = 1024;
const MAX_MEMORY: u64 = 4096;
/// Most cores.
const MAX_CPUS: f64 = 4.0;
/// Entries of a log in one answer, as E2B has it.
const PAGE: usize = 100;
const MAX_STEPS: usize = 256;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewTemplate {
    name: Option<String>,
    alias: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    cpu_count: Option<f64>,
    #[serde(rename = "memoryMB")]
    memory: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartBuild {
    from_image: Option<String>,
    from_template: Option<String>,
    from_image_registry: Option<Value>,
    #[serde(default)]
    steps: Vec<NewStep>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
}

impl StartBuild {
    /// Refuses commands that a record has no room for.
    fn check_commands(&self) -> Result<(), Error> {
        for (member, command) in [("startCmd", &self.start_cmd), ("readyCmd", &self.ready_cmd)] {
            if command
                .as_deref()
                .is_some_and(|command| in_json(command) > MAX_COMMAND)
            {
                let message =
                    format!("`{member}` has at most {MAX_COMMAND} bytes: let it run a file of the template");
                return Err(Error::invalid(message));
            }
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewStep {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    args: Vec<String>,
    files_hash: Option<String>,
}

impl NewStep {
    /// Returns what the record of a build shows. Of variables only the names: values may be credentials.
    fn shown(&self) -> Value {
        let every = if self.kind == "ENV" { 2 } else { 1 };
        let shown: Vec<&String> = self.args.iter().step_by(every).collect();
        json!([self.kind, shown])
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogQuery {
    #[serde(default)]
    logs_offset: usize,
    limit: Option<usize>,
}

/// Returns `true` for the parts of a path that is served here.
pub(crate) fn serves(parts: &[&str]) -> bool {
    matches!(
        parts,
        ["v3", "templates"]
            | ["templates"]
            | ["templates", "tags"]
            | ["templates", _, "tags"]
            | ["templates", "aliases", _]
            | ["templates", _, "files", _]
            | ["templates", _, "builds", _, "status"]
    )
}

pub(crate) async fn answer(
    service: &Service,
    client: &Client,
    parts: &[&str],
    request: Request,
) -> Result<Response, Error> {
    match (request.method().as_str(), parts) {
        ("POST", ["v3", "templates"]) => create(service, client, request).await,
        ("GET", ["templates"]) => Ok(Json(list(service, client)).into_response()),
        ("POST", ["templates", "tags"]) => tags::assign(service, client, request).await,
        ("DELETE", ["templates", "tags"]) => tags::remove(service, client, request).await,
        ("GET", ["templates", name, "tags"]) => Ok(Json(tags::list(service, client, name)?).into_response()),
        ("GET", ["templates", "aliases", name]) => alias(service, client, name),
        ("GET", ["templates", id, "files", hash]) => upload_address(service, client, &request, id, hash),
        ("PUT", ["templates", id, "files", hash]) => upload(service, client, id, hash, request).await,
        ("GET", ["templates", id, "builds", build, "status"]) => status(service, client, id, build, &request),
        _ => Err(Error::not_found("there is no such route")),
    }
}

/// Requests a template, whose id its snapshot gets.
async fn create(service: &Service, client: &Client, request: Request) -> Result<Response, Error> {
    if service.templates.images.is_empty() {
        return Err(not_open());
    }
    let new: NewTemplate = body::json(request).await?;
    let name = new.name.or(new.alias).unwrap_or_default();
    let (name, tags) = tags::of_build(&name, &new.tags)?;
    let name: SandboxName = name
        .parse()
        .map_err(|error| Error::invalid(format!("`name`: {error}")))?;
    let memory = new.memory.unwrap_or(MEMORY);
    let cpus = new.cpu_count.unwrap_or(1.0);
    if memory > MAX_MEMORY || cpus > MAX_CPUS {
        return Err(Error::invalid(format!(
            "a template has at most {MAX_MEMORY} MiB and {MAX_CPUS} cores"
        )));
    }
    let of_memory = |error| Error::invalid(format!("`memoryMB`: {error}"));
    let memory = memory::check(Bytes::mib(memory)).map_err(of_memory)?;
    let random = || SandboxId::random().map_err(|error| Error::internal(error.to_string()));
    let (id, build) = (random()?, uuid()?);
    let limits = SandboxLimits {
        memory,
        // Files count as memory.
        disk: Bytes(memory.0 / 2),
        cpus: Cpus::try_from(cpus).map_err(|error| Error::invalid(format!("`cpuCount`: {error}")))?,
        ..SandboxLimits::default()
    }
    // Clients ask for two without being asked.
    .on_this_machine();
    let template = Template {
        tags: tags.clone(),
        ..Template::new(client.clone(), id.clone(), name.clone(), build.clone(), limits)
    };
    service.templates.add(template)?;
    let answer = json!({
        "templateID": id.as_str(), "buildID": build, "public": false,
        "names": [name.as_str()], "tags": tags, "aliases": [name.as_str()],
    });
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// Returns a random id of E2B's form.
fn uuid() -> Result<String, Error> {
    let token = Token::random().ok_or_else(|| Error::internal("no random bytes".to_owned()))?;
    let digits = token.as_str();
    Ok(format!(
        "{}-{}-4{}-8{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..15],
        &digits[15..18],
        &digits[18..30]
    ))
}

fn list(service: &Service, client: &Client) -> Vec<Value> {
    let own = service.sandboxes.snapshots(&client.scope);
    let templates = own.iter().filter(|snapshot| snapshot.template.is_some());
    templates.map(described).collect()
}

fn described(snapshot: &SnapshotInfo) -> Value {
    let names: Vec<&str> = snapshot.name.iter().map(|name| name.as_str()).collect();
    json!({
        "templateID": snapshot.id.as_str(), "buildID": tags::build_id(snapshot), "public": false,
        "names": names, "aliases": names, "tags": snapshot.tags().into_keys().collect::<Vec<_>>(),
        "cpuCount": snapshot.limits().cpus.get().ceil() as u64,
        "memoryMB": snapshot.memory_limit >> 20, "diskSizeMB": snapshot.disk_limit >> 20,
        "createdAt": snapshot.created_at, "updatedAt": snapshot.created_at, "createdBy": null,
        "lastSpawnedAt": null, "spawnCount": 0, "buildCount": 1, "buildStatus": "ready",
        "envdVersion": ENVD_VERSION,
    })
}

fn alias(service: &Service, client: &Client, name: &str) -> Result<Response, Error> {
    if is_machine(name) {
        return Ok(Json(json!({"templateID": name, "public": true})).into_response());
    }
    // A name alone is that of any build.
    let found = match name.contains(':') {
        true => service.sandboxes.find_snapshot(&client.scope, name).ok(),
        false => service
            .sandboxes
            .builds(&client.scope, name)
            .ok()
            .and_then(|mut builds| builds.pop()),
    };
    match found.filter(|snapshot| snapshot.template.is_some()) {
        Some(snapshot) => {
            Ok(Json(json!({"templateID": snapshot.id.as_str(), "public": false})).into_response())
        }
        None => Err(Error::not_found("no template has this name")),
    }
}

/// Returns the address to which the files of a step are sent: whoever knows it may send them.
fn upload_address(
    service: &Service,
    client: &Client,
    request: &Request,
    id: &str,
    hash: &str,
) -> Result<Response, Error> {
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hash {
        return Err(Error::invalid(
            "the hash of the files is no SHA-256 in hexadecimal digits",
        ));
    }
    let token = Token::random().ok_or_else(|| Error::internal("no random bytes".to_owned()))?;
    let upload = service.templates.with(&client.scope, id, |template| {
        if template.uploads.len() >= files::MAX_FILES && !template.uploads.contains_key(hash) {
            let most = files::MAX_FILES;
            return Err(Error::invalid(format!(
                "a template has at most {most} steps with files"
            )));
        }
        let upload = Upload { token, archive: None };
        Ok(template.uploads.entry(hash.to_owned()).or_insert(upload).clone())
    })??;
    let headers = request.headers();
    let is_encrypted = client.domain.is_some() || header(headers, "x-forwarded-proto") == Some("https");
    let scheme = if is_encrypted { "https" } else { "http" };
    let host = header(headers, "host").ok_or_else(|| Error::invalid("missing header `Host`"))?;
    let token = upload.token.as_str();
    let answer = json!({
        "present": upload.archive.is_some(),
        "url": format!("{scheme}://{host}/templates/{id}/files/{hash}?upload={token}"),
    });
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

async fn upload(
    service: &Service,
    client: &Client,
    id: &str,
    hash: &str,
    request: Request,
) -> Result<Response, Error> {
    let is_known = service.templates.with(&client.scope, id, |template| {
        template.status == Status::Waiting && template.uploads.contains_key(hash)
    })?;
    if !is_known {
        return Err(Error::not_found("no files with this hash are waited for"));
    }
    let _slot = service.templates.receive(&client.scope)?;
    let archive = Archive::receive(&service.sandboxes, request).await?;
    service.templates.with(&client.scope, id, |template| {
        if let Some(upload) = template.uploads.get_mut(hash) {
            upload.archive = Some(archive);
        }
    })?;
    Ok(StatusCode::OK.into_response())
}

impl Service {
    /// Returns the client to whom the address of an upload was given, if a request is one.
    pub fn uploader(&self, request: &Request) -> Option<Client> {
        let parts = parts(request.uri().path());
        let ["templates", id, "files", hash] = parts[..] else {
            return None;
        };
        let given = request.uri().query()?.strip_prefix("upload=")?;
        let all = self.templates.lock();
        let template = all.get(id).filter(|_| request.method() == Method::PUT)?;
        let upload = template.uploads.get(hash)?;
        upload.token.is(given).then(|| template.client.clone())
    }
}

/// The build of a template, by its ids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BuildId<'a> {
    pub(crate) template: &'a str,
    pub(crate) build: &'a str,
}

/// Starts the build of a template, which ends with its client's key.
pub(crate) async fn start_build(
    service: &Service,
    client: &Client,
    key: BuildKey,
    BuildId { template: id, build }: BuildId<'_>,
    asked: StartBuild,
) -> Result<Response, Error> {
    let uploads = service.templates.with(&client.scope, id, |template| {
        (template.build == build).then(|| template.uploads.clone())
    })?;
    let uploads = uploads.ok_or_else(|| Error::not_found("the template has no such build"))?;
    if asked.from_image_registry.is_some() {
        return Err(Error::not_supported(
            "images of registries with a password",
            "the operator pulls them: `ringfence image pull`",
        ));
    }
    if asked.steps.len() > MAX_STEPS {
        return Err(Error::invalid(format!(
            "a template has at most {MAX_STEPS} steps"
        )));
    }
    let shown = asked.steps.iter().map(NewStep::shown);
    let described = Described(json!({
        "from": asked.from_image.as_ref().or(asked.from_template.as_ref()),
        "steps": shown.collect::<Vec<_>>(),
        "start": asked.start_cmd,
        "ready": asked.ready_cmd,
    }));
    asked.check_commands()?;
    let base = base(service, client, asked.from_image, asked.from_template).await?;
    let mut steps = Vec::new();
    for step in asked.steps {
        let upload = step.files_hash.and_then(|hash| uploads.get(&hash).cloned());
        steps.push(Step::new(
            &step.kind,
            &step.args,
            upload.and_then(|upload| upload.archive),
        )?);
    }
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    service.templates.begin(&client.scope, id)?;
    let (id, name, tags, limits) = service.templates.with(&client.scope, id, |template| {
        (
            template.id.clone(),
            template.name.clone(),
            template.tags.clone(),
            template.limits,
        )
    })?;
    let build = Build {
        sandboxes: Arc::clone(&service.sandboxes),
        all: Arc::clone(&service.templates.all),
        client: client.clone(),
        id,
        name,
        tags,
        build: build.to_owned(),
        limits,
        base,
        steps,
        start: filled(asked.start_cmd),
        ready: filled(asked.ready_cmd),
    };
    service.templates.spawn(build, key);
    Ok((Extension(described), StatusCode::ACCEPTED).into_response())
}

/// Returns the image or template that a build begins with.
async fn base(
    service: &Service,
    client: &Client,
    image: Option<String>,
    template: Option<String>,
) -> Result<Base, Error> {
    match (image, template) {
        (Some(image), None) => {
            if !service.templates.images.contains(&image) {
                let image: String = image.chars().take(200).collect();
                let all = service.templates.images.join("`, `");
                return Err(Error::forbidden(&format!(
                    "no template can be built on the image `{image}`: the operator allows `{all}` \
                     (`ringfence image pull IMAGE`, and `ringfence serve --template-image IMAGE`)"
                )));
            }
            Ok(Base::Image(service.sandboxes.image(&image).await?))
        }
        (None, Some(name)) if is_machine(&name) => Ok(Base::Machine),
        (None, Some(name)) => {
            let found = service.sandboxes.find_snapshot(&client.scope, &name);
            let found = found.ok().filter(|snapshot| snapshot.template.is_some());
            found
                .map(|snapshot| Base::Template(Box::new(snapshot)))
                .ok_or_else(|| {
                    let name: String = name.chars().take(80).collect();
                    Error::not_found(format!("you have built no template `{name}`"))
                })
        }
        _ => Err(Error::invalid(
            "a build needs one of `fromImage` and `fromTemplate`",
        )),
    }
}

fn status(
    service: &Service,
    client: &Client,
    id: &str,
    build: &str,
    request: &Request,
) -> Result<Response, Error> {
    let query: Query<LogQuery> =
        Query::try_from_uri(request.uri()).map_err(|rejection| Error::invalid(rejection.body_text()))?;
    let Query(query) = query;
    let answer = service.templates.with(&client.scope, id, |template| {
        (template.build == build).then(|| {
            let limit = query.limit.unwrap_or(PAGE).min(PAGE);
            let entries: Vec<&Value> = template.log.iter().skip(query.logs_offset).take(limit).collect();
            let mut answer = json!({
                "templateID": id, "buildID": build, "status": template.status.as_str(),
                "logs": [], "logEntries": entries,
            });
            if let Status::Failed { message, step } = &template.status {
                answer["reason"] = json!({
                    "message": message,
                    "step": step.map_or_else(|| "base".to_owned(), |step| step.to_string()),
                });
            }
            answer
        })
    })?;
    let answer = answer.ok_or_else(|| Error::not_found("the template has no such build"))?;
    Ok(Json(answer).into_response())
}

impl Templates {
    fn spawn(&self, build: Build, key: BuildKey) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(build.run(key));
    }
}
