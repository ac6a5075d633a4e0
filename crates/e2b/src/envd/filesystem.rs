//! `filesystem.Filesystem`: describes, lists and changes files.

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use ringfence_sandbox::Error as SandboxError;
use ringfence_sandbox::files::{Entry, FileErrorKind, Files, MadeDirectory, Operation};
use serde::Deserialize;
use serde_json::{Value, json};

use super::entry::{described, followed, stat};
use super::paths::User;
use super::watch;
use crate::known::Opened;
use crate::rpc::{self, Code, RpcError};

/// Links of a list that are followed.
const MAX_FOLLOWED: usize = 64;

#[derive(Debug, Deserialize)]
struct At {
    #[serde(default)]
    path: String,
}

#[derive(Debug, Deserialize)]
struct FromTo {
    #[serde(default)]
    source: String,
    #[serde(default)]
    destination: String,
}

#[derive(Debug, Deserialize)]
struct ListRequest {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: usize,
}

pub(super) async fn call(
    opened: Opened,
    user: User,
    method: &str,
    request: Request,
) -> Result<Response, RpcError> {
    let files = user.files(&opened.sandbox);
    let absolute = async |path: &str| user.absolute(&opened.sandbox, path).await;
    let answer = match method {
        "WatchDir" => return watch::follow(opened.clone(), &user, request).await,
        "CreateWatcher" => watch::create(&opened, &user, request).await?,
        "GetWatcherEvents" => watch::events(&opened, request).await?,
        "RemoveWatcher" => watch::remove(&opened, request).await?,
        "Stat" => {
            let At { path } = rpc::message(request).await?;
            json!({"entry": stat(&opened, files, absolute(&path).await?).await?})
        }
        "ListDir" => {
            let ListRequest { path, depth } = rpc::message(request).await?;
            list(&opened, files, absolute(&path).await?, depth.max(1)).await?
        }
        "MakeDir" => {
            let At { path } = rpc::message(request).await?;
            make(&opened, files, absolute(&path).await?).await?
        }
        "Move" => {
            let FromTo { source, destination } = rpc::message(request).await?;
            let (from, to) = (absolute(&source).await?, absolute(&destination).await?);
            rename(&opened, files, from, to).await?
        }
        "Remove" => {
            let At { path } = rpc::message(request).await?;
            remove(files, absolute(&path).await?).await?
        }
        _ => return Err(RpcError::new(Code::Unimplemented, "there is no such method")),
    };
    Ok(Json(answer).into_response())
}

/// Returns `true` for an error of this kind on a file.
fn is(error: &SandboxError, kind: FileErrorKind) -> bool {
    matches!(error, SandboxError::File(file) if file.kind == kind)
}

async fn list(opened: &Opened, files: Files<'_>, path: String, depth: usize) -> Result<Value, RpcError> {
    let listing = files.list(path, depth, None).await?;
    let mut entries: Vec<&Entry> = listing.entries.iter().collect();
    entries.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
    let (mut infos, mut links) = (Vec::new(), 0);
    for entry in entries {
        links += usize::from(entry.target.is_some());
        infos.push(match entry.target.is_some() && links <= MAX_FOLLOWED {
            true => followed(opened, files, entry).await,
            false => described(opened, entry),
        });
    }
    Ok(json!({ "entries": infos }))
}

async fn make(opened: &Opened, files: Files<'_>, path: String) -> Result<Value, RpcError> {
    let made: MadeDirectory =
        files
            .change(&Operation::MakeDirectory { path })
            .await
            .map_err(|error| {
                match is(&error, FileErrorKind::NotADirectory) || is(&error, FileErrorKind::Exists) {
                    true => RpcError::new(
                        Code::InvalidArgument,
                        format!("the path is no directory: {error}"),
                    ),
                    false => error.into(),
                }
            })?;
    match made.created {
        true => Ok(json!({"entry": described(opened, &made.entry)})),
        false => Err(RpcError::new(
            Code::AlreadyExists,
            format!("directory already exists: {}", made.entry.path),
        )),
    }
}

async fn rename(opened: &Opened, files: Files<'_>, from: String, to: String) -> Result<Value, RpcError> {
    let entry: Entry = files.change(&Operation::Move { from, to }).await?;
    Ok(json!({"entry": described(opened, &entry)}))
}

async fn remove(files: Files<'_>, path: String) -> Result<Value, RpcError> {
    match files.remove(path).await {
        Err(error) if !is(&error, FileErrorKind::NotFound) => Err(error.into()),
        _ => Ok(json!({})),
    }
}
