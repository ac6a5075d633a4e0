//! Tags of templates: `name:tag` is a build, and a name alone means the tag `default`.

use std::collections::BTreeSet;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use ringfence_sandbox::{SnapshotInfo, Tag};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::{self, Described};
use crate::client::Client;
use crate::error::Error;
use crate::service::Service;

/// Id of builds that were made before builds had one.
const NO_BUILD: &str = "00000000-0000-0000-0000-000000000000";

#[derive(Debug, Deserialize)]
struct Assignment {
    target: String,
    tags: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Removal {
    name: String,
    tags: Vec<String>,
}

/// Assigns tags to a build.
pub(super) async fn assign(service: &Service, client: &Client, request: Request) -> Result<Response, Error> {
    let Assignment { target, tags } = body::json(request).await?;
    let tags = some(parsed(&tags)?)?;
    let build = service
        .sandboxes
        .assign_tags(&client.scope, &target, &tags)
        .map_err(missing)?;
    let tags: Vec<&str> = tags.iter().map(Tag::as_str).collect();
    let answer = json!({"tags": tags, "buildID": build_id(&build)});
    let described = Described(json!({"target": target, "tags": tags}));
    Ok((StatusCode::CREATED, Extension(described), Json(answer)).into_response())
}

/// Removes tags from a template.
pub(super) async fn remove(service: &Service, client: &Client, request: Request) -> Result<Response, Error> {
    let Removal { name, tags } = body::json(request).await?;
    let tags = some(parsed(&tags)?)?;
    if tags.iter().any(Tag::is_default) {
        return Err(Error::invalid("Cannot delete the 'default' tag"));
    }
    if name.contains(':') {
        return Err(Error::invalid(
            "Template name should not contain a tag, use the 'tags' field instead",
        ));
    }
    service
        .sandboxes
        .remove_tags(&client.scope, &name, &tags)
        .map_err(missing)?;
    let tags: Vec<&str> = tags.iter().map(Tag::as_str).collect();
    let described = Described(json!({"name": name, "tags": tags}));
    Ok((Extension(described), StatusCode::NO_CONTENT).into_response())
}

/// Lists the tags of a template's builds, the newest last.
pub(super) fn list(service: &Service, client: &Client, name: &str) -> Result<Vec<Value>, Error> {
    let name = name.split(':').next().unwrap_or_default();
    let builds = service.sandboxes.builds(&client.scope, name).map_err(missing)?;
    let tags = builds.iter().flat_map(|build| {
        let id = build_id(build);
        build.tags().into_iter().map(move |(tag, time)| (time, tag, id))
    });
    let mut tags: Vec<_> = tags.collect();
    tags.sort();
    let described =
        |(time, tag, id): (String, Tag, &str)| json!({"tag": tag.as_str(), "buildID": id, "createdAt": time});
    Ok(tags.into_iter().map(described).collect())
}

/// Returns the name of a template and the tags that a build of it gets: `default` if none is asked for.
pub(super) fn of_build(name: &str, tags: &[String]) -> Result<(String, BTreeSet<Tag>), Error> {
    let mut tags = parsed(tags)?;
    let name = match name.split_once(':') {
        Some((name, tag)) => {
            tags.insert(tag.parse().map_err(invalid)?);
            name
        }
        None => name,
    };
    if tags.is_empty() {
        tags.insert(Tag::default());
    }
    Ok((name.to_owned(), tags))
}

/// Returns the id of a build.
pub(super) fn build_id(build: &SnapshotInfo) -> &str {
    let of_template = build.template.as_ref();
    of_template
        .and_then(|template| template.build.as_deref())
        .unwrap_or(NO_BUILD)
}

fn parsed(tags: &[String]) -> Result<BTreeSet<Tag>, Error> {
    tags.iter().map(|tag| tag.parse().map_err(invalid)).collect()
}

fn invalid(error: impl std::fmt::Display) -> Error {
    Error::invalid(format!("`tags`: {error}"))
}

fn some(tags: BTreeSet<Tag>) -> Result<BTreeSet<Tag>, Error> {
    match tags.is_empty() {
        true => Err(Error::invalid("At least one tag is required")),
        false => Ok(tags),
    }
}

/// Converts the error of a build that is not there.
fn missing(error: ringfence_sandbox::Error) -> Error {
    match error {
        ringfence_sandbox::Error::NoSnapshot(name) => {
            Error::not_found(format!("you have built no template `{name}`"))
        }
        other => other.into(),
    }
}
