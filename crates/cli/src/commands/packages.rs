//! `ringfence packages`: the packages that are kept for runs.

use std::process::ExitCode;
use std::time::SystemTime;

use ringfence::Failure;
use ringfence::packages::{self, EnvironmentInfo, Removal, Store};
use ringfence_args::{PackagesCommand, PackagesRmArgs};
use serde_json::json;

use crate::context::Context;
use crate::ui::{table, visible};

/// Digits of an id that `ls` prints.
const SHORT: usize = 12;

pub(crate) fn run(command: &PackagesCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let store = packages::store(context)?;
    let kept = packages::list(&store)?;
    match command {
        PackagesCommand::Ls { json: true } => {
            let all: Vec<_> = kept.iter().map(object).collect();
            context.ui.json(&all)?;
        }
        PackagesCommand::Ls { json: false } => {
            note_if_empty(&kept, context);
            context
                .ui
                .out(table(["ID", "SIZE", "PACKAGES"], kept.iter().map(row)))?;
        }
        PackagesCommand::Rm(args) => {
            if args.all {
                note_if_empty(&kept, context);
            }
            for environment in chosen(args, &kept)? {
                remove(&store, environment, args, context)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn note_if_empty(kept: &[EnvironmentInfo], context: &Context) {
    if kept.is_empty() {
        context.ui.note("no packages are kept");
    }
}

fn object(environment: &EnvironmentInfo) -> serde_json::Value {
    let used = environment
        .used
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    json!({
        "id": environment.key,
        "packages": environment.packages,
        "bytes": environment.size.0,
        "used": used.as_secs(),
    })
}

/// Returns the cells of packages in a list.
fn row(environment: &EnvironmentInfo) -> [String; 3] {
    let size = format!("{} KiB", environment.size.0.div_ceil(1024));
    [
        short(environment).to_owned(),
        size,
        environment.packages.join(", "),
    ]
}

fn short(environment: &EnvironmentInfo) -> &str {
    environment.key.as_str().get(..SHORT).unwrap_or_default()
}

/// Returns the environments that the arguments name.
fn chosen<'a>(
    args: &PackagesRmArgs,
    kept: &'a [EnvironmentInfo],
) -> Result<Vec<&'a EnvironmentInfo>, Failure> {
    if args.all {
        return Ok(kept.iter().collect());
    }
    let one = |id: &String| {
        let mut found = kept
            .iter()
            .filter(|kept| kept.key.as_str().starts_with(id.as_str()));
        match (found.next(), found.next()) {
            (Some(one), None) if !id.is_empty() => Ok(one),
            (None, _) => Err(unknown(format!("no kept packages have the id `{}`", visible(id)))),
            (Some(_), _) => Err(unknown(format!("more than one id begins with `{}`", visible(id)))),
        }
    };
    args.ids.iter().map(one).collect()
}

fn unknown(message: String) -> Failure {
    Failure::usage(message, "`ringfence packages ls` lists the ids")
}

/// Removes an environment. One in use is an error if it was named.
fn remove(
    store: &Store,
    environment: &EnvironmentInfo,
    args: &PackagesRmArgs,
    context: &Context,
) -> Result<(), Failure> {
    let id = short(environment);
    match packages::remove(store, environment)? {
        Removal::Removed => context.ui.note(&format!("removed the packages {id}")),
        Removal::InUse if args.all => context
            .ui
            .warn(&format!("the packages {id} are in use and were left")),
        Removal::InUse => {
            return Err(Failure::refused(
                format!("a program uses the packages {id}"),
                "wait until it has ended",
            ));
        }
    }
    Ok(())
}
