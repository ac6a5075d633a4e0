//! `ringfence sandbox cp`.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence::{Failure, named_paths, source};
use ringfence_client::Error;
use ringfence_client::sandbox::{Place, Sandbox, target};
use ringfence_exec::trust::Replacement;
use ringfence_gateway_protocol::interrupted;
use serde_json::{Value, json};

use super::{failure, print_json, sandbox_only, text};
use crate::context::Context;
use crate::exit::INTERRUPTED;
use ringfence_args::SandboxCopyArgs;

/// Permission bits that let some user execute a file.
const EXECUTE: u64 = 0o111;

pub(super) async fn copy(args: &SandboxCopyArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let within = async |sandbox: &str| sandbox_only(sandbox, "`cp`", &args.options, context).await;
    let copied = match (Place::parse(&args.from), Place::parse(&args.to)) {
        (Place::Here(from), Place::There { sandbox, path }) => {
            Some(upload(&within(&sandbox).await?, &from, &path, context).await?)
        }
        (Place::There { sandbox, path }, Place::Here(to)) => {
            download(&within(&sandbox).await?, &path, &to, context).await?
        }
        (Place::Here(_), Place::Here(_)) | (Place::There { .. }, Place::There { .. }) => {
            return Err(Failure::usage(
                "one of the paths must be in a sandbox, and one on this machine",
                "write the path in the sandbox as NAME:/PATH, from the root: lab:/workspace/data.csv",
            )
            .into());
        }
    };
    match (copied, args.options.json) {
        (None, _) => Ok(ExitCode::from(INTERRUPTED)),
        (Some(told), true) => print_json(&told, context),
        (Some(_), false) => Ok(ExitCode::SUCCESS),
    }
}

async fn upload(sandbox: &Sandbox, from: &str, to: &str, context: &Context) -> anyhow::Result<Value> {
    let to = target(from, to);
    if from == "-" {
        let sent = sandbox.upload(io::stdin(), &to, None, None);
        return sent.await.map_err(failure);
    }
    let file = source::open(Path::new(from), &context.named_paths())?;
    let meta = file.metadata()?;
    // Pipes and files of /proc do not know their length.
    let size = Some(meta.len()).filter(|size| *size > 0);
    let sent = sandbox.upload(file, &to, size, mode(&meta));
    sent.await.map_err(failure)
}

/// Returns the mode of a copy of an executable file; `None` for any other, which gets the usual one.
fn mode(file: &Metadata) -> Option<u32> {
    let is_executable = is_executable(file.permissions().mode().into());
    (file.is_file() && is_executable).then_some(0o755)
}

const fn is_executable(mode: u64) -> bool {
    mode & EXECUTE != 0
}

/// Copies a file of the sandbox to this machine. `None` if a signal ended the copy.
async fn download(
    sandbox: &Sandbox,
    from: &str,
    to: &str,
    context: &Context,
) -> anyhow::Result<Option<Value>> {
    let copied = match to {
        "-" => sandbox.download(from, || Ok(io::stdout())).await,
        to => {
            let file = destination(from, to, context)?;
            tokio::select! {
                copied = receive(sandbox, from, &file) => copied,
                // What has arrived is removed with its future.
                () = interrupted() => return Ok(None),
            }
        }
    };
    let bytes = copied.map_err(failure)?;
    Ok(Some(json!({ "bytes": bytes })))
}

/// Resolves the path of a copy: a name below a directory, if `to` is one.
fn destination(from: &str, to: &str, context: &Context) -> Result<PathBuf, Failure> {
    let resolve = |path: &Path| {
        let found = context.named_paths().resolve(path);
        let found = found.map_err(|error| named_paths::failure(path, error))?;
        Ok::<_, Failure>(found.path)
    };
    let found = resolve(Path::new(to))?;
    match Path::new(from).file_name() {
        Some(name) if to.ends_with('/') || found.is_dir() => resolve(&found.join(name)),
        _ => Ok(found),
    }
}

/// Copies a file of the sandbox to a resolved path, and makes it executable if it is so there.
async fn receive(sandbox: &Sandbox, from: &str, to: &Path) -> Result<u64, Error> {
    let mut new = None;
    let opened = &mut new;
    let bytes = sandbox
        .download(from, move || Ok(opened.insert(Replacement::begin(to)?)))
        .await?;
    // A link is described itself, and is no reason to fail.
    let entry = sandbox.stat(from).await.unwrap_or_default();
    let is_executable = text(&entry, "type") == "file" && entry["mode"].as_u64().is_some_and(is_executable);
    if let Some(new) = new {
        if is_executable {
            new.make_executable().map_err(Error::Output)?;
        }
        new.commit().map_err(Error::Output)?;
    }
    Ok(bytes)
}
