//! Descriptions of files, as E2B's `EntryInfo`.

use ringfence_policy::Account;
use ringfence_sandbox::files::{Entry, EntryType, Files, Operation};
use ringfence_sandbox::rfc3339;
use serde_json::{Value, json};

use super::paths::USER;
use crate::known::Opened;
use crate::rpc::RpcError;

/// Id of a sandbox's user and of its group.
const USER_ID: u32 = 1000;
/// Links that are followed from one entry, as in path_resolution(7).
const MAX_LINKS: usize = 40;

/// Describes a file. A link is described with the type and mode of what it leads to.
pub(super) async fn stat(opened: &Opened, files: Files<'_>, path: String) -> Result<Value, RpcError> {
    let entry: Entry = files.change(&Operation::Stat { path }).await?;
    Ok(followed(opened, files, &entry).await)
}

/// Describes an entry: a link with the type and mode of what it leads to, if that is there.
pub(super) async fn followed(opened: &Opened, files: Files<'_>, entry: &Entry) -> Value {
    let mut info = described(opened, entry);
    let mut current = entry.clone();
    for _ in 0..MAX_LINKS {
        let Some(target) = &current.target else { break };
        let parent = current.path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let path = normal(parent, target);
        let Ok(next) = files.change::<Entry>(&Operation::Stat { path }).await else {
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

/// Renders a description as E2B's `EntryInfo`.
pub(super) fn described(opened: &Opened, entry: &Entry) -> Value {
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
