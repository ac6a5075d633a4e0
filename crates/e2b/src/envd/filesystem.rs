//! `filesystem.Filesystem`: describes, lists and changes files.

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use ringfence_sandbox::Error as SandboxError;
use ringfence_sandbox::files::{Entry, EntryType, FileErrorKind, MadeDirectory, Operation};
use ringfence_sandbox::rfc3339;
use serde::Deserialize;
use serde_json::{Value, json};

use super::paths::{USER, absolute};
use crate::rpc::{self, Code, RpcError};
use crate::service::Opened;

/// Id of a sandbox's user and of its group.
const USER_ID: u32 = 1000;

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

pub(super) async fn call(opened: Opened, method: &str, request: Request) -> Result<Response, RpcError> {
    let answer = match method {
        "Stat" => {
            let At { path } = rpc::message(request).await?;
            json!({"entry": stat(&opened, absolute(&path)).await?})
        }
        "ListDir" => {
            let ListRequest { path, depth } = rpc::message(request).await?;
            list(&opened, absolute(&path), depth.max(1)).await?
        }
        "MakeDir" => {
            let At { path } = rpc::message(request).await?;
            make(&opened, absolute(&path)).await?
        }
        "Move" => {
            let FromTo { source, destination } = rpc::message(request).await?;
            rename(&opened, absolute(&source), absolute(&destination)).await?
        }
        "Remove" => {
            let At { path } = rpc::message(request).await?;
            remove(&opened, absolute(&path)).await?
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
pub(super) async fn stat(opened: &Opened, path: String) -> Result<Value, RpcError> {
    let entry: Entry = opened.sandbox.change(&Operation::Stat { path }).await?;
    Ok(described(&entry))
}

async fn list(opened: &Opened, path: String, depth: usize) -> Result<Value, RpcError> {
    let listing = opened.sandbox.list_files(path, depth).await?;
    let mut entries: Vec<&Entry> = listing.entries.iter().collect();
    entries.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
    let entries: Vec<Value> = entries.into_iter().map(described).collect();
    Ok(json!({ "entries": entries }))
}

async fn make(opened: &Opened, path: String) -> Result<Value, RpcError> {
    let made: MadeDirectory = opened
        .sandbox
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
        true => Ok(json!({"entry": described(&made.entry)})),
        false => Err(RpcError::new(
            Code::AlreadyExists,
            format!("directory already exists: {}", made.entry.path),
        )),
    }
}

async fn rename(opened: &Opened, from: String, to: String) -> Result<Value, RpcError> {
    let entry: Entry = opened.sandbox.change(&Operation::Move { from, to }).await?;
    Ok(json!({"entry": described(&entry)}))
}

async fn remove(opened: &Opened, path: String) -> Result<Value, RpcError> {
    match opened.sandbox.remove_file(path).await {
        Err(error) if !is(&error, FileErrorKind::NotFound) => Err(error.into()),
        _ => Ok(json!({})),
    }
}

/// Renders a description as E2B's `EntryInfo`.
pub(super) fn described(entry: &Entry) -> Value {
    let modified =
        std::time::UNIX_EPOCH + std::time::Duration::from_nanos(entry.modified.max(0).unsigned_abs());
    let mut info = json!({
        "name": entry.name,
        "type": match entry.kind {
            EntryType::Directory => "FILE_TYPE_DIRECTORY",
            EntryType::Symlink => "FILE_TYPE_SYMLINK",
            EntryType::File | EntryType::Fifo | EntryType::Socket | EntryType::Device => "FILE_TYPE_FILE",
        },
        "path": entry.path,
        "size": entry.size.to_string(),
        "mode": entry.mode & 0o777,
        "permissions": permissions(entry),
        "owner": name(entry.uid),
        "group": name(entry.gid),
        "modifiedTime": rfc3339(modified),
    });
    if let Some(target) = &entry.target {
        info["symlinkTarget"] = target.as_str().into();
        info["isSymlink"] = true.into();
    }
    info
}

/// Returns the name of a user or group.
fn name(id: u32) -> String {
    match id {
        0 => "root".to_owned(),
        USER_ID => USER.to_owned(),
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
