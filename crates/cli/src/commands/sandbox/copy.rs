//! `ringfence sandbox cp`.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use ringfence::{Failure, named_paths, source};
use ringfence_client::Error;
use ringfence_client::sandbox::{Place, Sandbox, target};
use serde_json::{Value, json};

use super::{failure, print_json, sandbox_only};
use crate::context::Context;
use ringfence_args::SandboxCopyArgs;

pub(super) async fn copy(args: &SandboxCopyArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let within = async |sandbox: &str| sandbox_only(sandbox, "`cp`", &args.options, context).await;
    let told = match (Place::parse(&args.from), Place::parse(&args.to)) {
        (Place::Here(from), Place::There { sandbox, path }) => {
            upload(&within(&sandbox).await?, &from, &path, context).await?
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
    match args.options.json {
        true => print_json(&told, context),
        false => Ok(ExitCode::SUCCESS),
    }
}

async fn upload(sandbox: &Sandbox, from: &str, to: &str, context: &Context) -> anyhow::Result<Value> {
    let to = target(from, to);
    if from == "-" {
        return sandbox.upload(io::stdin(), &to, None).await.map_err(failure);
    }
    let file = source::open(Path::new(from), &context.named_paths())?;
    // Pipes and files of /proc do not know their length.
    let size = Some(file.metadata()?.len()).filter(|size| *size > 0);
    sandbox.upload(file, &to, size).await.map_err(failure)
}

async fn download(sandbox: &Sandbox, from: &str, to: &str, context: &Context) -> anyhow::Result<Value> {
    let copied = match to {
        "-" => sandbox.download(from, || Ok(io::stdout())).await,
        to => {
            let named = Path::new(to);
            let found = context.named_paths().resolve(named);
            let found = found.map_err(|error| named_paths::failure(named, error))?.path;
            let file = match to.ends_with('/') || found.is_dir() {
                true => target(from, &format!("{}/", found.display())).into(),
                false => found,
            };
            receive(sandbox, from, &file).await
        }
    };
    let bytes = copied.map_err(failure)?;
    Ok(json!({ "bytes": bytes }))
}

/// Copies a file of the sandbox to a resolved path.
async fn receive(sandbox: &Sandbox, from: &str, to: &Path) -> Result<u64, Error> {
    let mut begun = false;
    let create = || File::create(to).inspect(|_| begun = true);
    let copied = sandbox.download(from, create).await;
    // What has arrived is not a copy; a device stays.
    if copied.is_err() && begun && to.is_file() {
        let _ = std::fs::remove_file(to);
    }
    copied
}
