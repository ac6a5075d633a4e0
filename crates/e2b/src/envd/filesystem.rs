//! `filesystem.Filesystem`: describes, lists and changes files.

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use ringfence_policy::Account;
use ringfence_sandbox::Error as SandboxError;
use ringfence_sandbox::files::{Entry, EntryType, FileErrorKind, Files, MadeDirectory, Operation};
use ringfence_sandbox::rfc3339;
use serde::Deserialize;
use serde_json::{Value, json};

use super::paths::{USER, User};
use super::watch;
use crate::rpc::{self, Code, RpcError};
use crate::service::Opened;

/// Id of a sandbox's user and of its group.
const USER_ID: u32 = 1000;
/// Links that are followed from one entry, as in path_resolution(7).
const MAX_LINKS: usize = 40;
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

/// Describes a file. A link is described with the type and mode of what it leads to.
pub(super) async fn stat(opened: &Opened, files: Files<'_>, path: String) -> Result<Value, RpcError> {
    let entry: Entry = files.change(&Operation::Stat { path }).await?;
    Ok(followed(opened, &entry).await)
}

/// Describes an entry: a link with the type and mode of what it leads to, if that is there.
async fn followed(opened: &Opened, entry: &Entry) -> Value {
    let mut info = described(opened, entry);
    let mut current = entry.clone();
    for _ in 0..MAX_LINKS {
        let Some(target) = &current.target else { break };
        let parent = current.path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let path = normal(parent, target);
        let Ok(next) = opened.sandbox.change::<Entry>(&Operation::Stat { path }).await else {
            return info;
        };
        current = next;
    }
    if entry.target.is_some() && current.target.is_none() {
        info["symlinkTarget"] = current.path.as_str().into();
        info["type"] = kind(&current).into();
        info["mode"] = (current.mode & 0o777).into();
        info["size"] = current.size.to_string().into();
        add_metadata(opened, &current, &mut info);
    }
    info
}

/// Joins the target of a link to its directory, without `.` and `..`.
fn normal(parent: &str, target: &str) -> String {
    let all = if target.starts_with('/') {
        target.to_owned()
    } else {
        format!("{parent}/{target}")
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in all.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

async fn list(opened: &Opened, files: Files<'_>, path: String, depth: usize) -> Result<Value, RpcError> {
    let listing = files.list(path, depth).await?;
    let mut entries: Vec<&Entry> = listing.entries.iter().collect();
    entries.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
    let (mut infos, mut links) = (Vec::new(), 0);
    for entry in entries {
        links += usize::from(entry.target.is_some());
        infos.push(match entry.target.is_some() && links <= MAX_FOLLOWED {
            true => followed(opened, entry).await,
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

/// Renders a description as E2B's `EntryInfo`.
fn described(opened: &Opened, entry: &Entry) -> Value {
    let modified =
        std::time::UNIX_EPOCH + std::time::Duration::from_nanos(entry.modified.max(0).unsigned_abs());
    let mut info = json!({
        "name": entry.name,
        "type": kind(entry),
        "path": entry.path,
        "size": entry.size.to_string(),
        "mode": entry.mode & 0o777,
        "permissions": permissions(entry),
        "owner": name(entry.uid, opened.sandbox.account()),
        "group": name(entry.gid, opened.sandbox.account()),
        "modifiedTime": rfc3339(modified),
    });
    if let Some(target) = &entry.target {
        info["symlinkTarget"] = target.as_str().into();
        info["isSymlink"] = true.into();
    }
    add_metadata(opened, entry, &mut info);
    info
}

fn add_metadata(opened: &Opened, entry: &Entry, info: &mut Value) {
    if let Some(metadata) = opened.known.shared.file_metadata.of(entry.identity) {
        info["metadata"] = json!(*metadata);
    }
}

fn kind(entry: &Entry) -> &'static str {
    match entry.kind {
        EntryType::Directory => "FILE_TYPE_DIRECTORY",
        EntryType::Symlink => "FILE_TYPE_SYMLINK",
        EntryType::File | EntryType::Fifo | EntryType::Socket | EntryType::Device => "FILE_TYPE_FILE",
    }
}

/// Returns the name of a user or group; where a sandbox may have any, its number, but for root's.
fn name(id: u32, account: Account) -> String {
    match id {
        0 => "root".to_owned(),
        USER_ID if !account.is_root() => USER.to_owned(),
        id => id.to_string(),
    }
}

/// Renders the type and the permission bits as Go does.
fn permissions(entry: &Entry) -> String {
    let kind = match entry.kind {
        EntryType::File => '-',
        EntryType::Directory => 'd',
        EntryType::Symlink => 'L',
        EntryType::Fifo => 'p',
        EntryType::Socket => 'S',
        EntryType::Device => 'D',
    };
    let bits = (0..9).rev().zip("rwxrwxrwx".chars());
    let bits = bits.map(|(bit, letter)| if entry.mode >> bit & 1 == 1 { letter } else { '-' });
    std::iter::once(kind).chain(bits).collect()
}
