//! `ringfence packages`: the packages that are kept for runs.

use std::process::ExitCode;
use std::time::SystemTime;

use ringfence::Failure;
use ringfence::packages::{self, Kept, Removal, Store};
use ringfence_args::{PackagesCommand, PackagesRmArgs};
use serde_json::json;

use crate::context::Context;
use crate::ui::visible;

/// Digits of an id that `ls` prints.
const SHORT: usize = 12;

pub(crate) fn run(command: &PackagesCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let store = packages::store(context)?;
    let kept = packages::kept(&store)?;
    let text = match command {
        PackagesCommand::Ls { json: true } => {
            let all: Vec<_> = kept.iter().map(object).collect();
            serde_json::to_string_pretty(&all)? + "\n"
        }
        PackagesCommand::Ls { json: false } => kept.iter().map(line).collect(),
        PackagesCommand::Rm(args) => {
            for kept in chosen(args, &kept)? {
                remove(&store, kept, args, context)?;
            }
            String::new()
        }
    };
    context.ui.out(text)?;
    Ok(ExitCode::SUCCESS)
}

fn object(kept: &Kept) -> serde_json::Value {
    let used = kept
        .used
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    json!({
        "id": kept.key,
        "packages": kept.packages,
        "bytes": kept.size.0,
        "used": used.as_secs(),
    })
}

fn line(kept: &Kept) -> String {
    let size = kept.size.0.div_ceil(1024 * 1024);
    format!("{}  {size:>5} MiB  {}\n", short(kept), kept.packages.join(", "))
}

fn short(kept: &Kept) -> &str {
    kept.key.as_str().get(..SHORT).unwrap_or_default()
}

/// Returns what the arguments name.
fn chosen<'a>(args: &PackagesRmArgs, kept: &'a [Kept]) -> Result<Vec<&'a Kept>, Failure> {
    if args.all {
        return Ok(kept.iter().collect());
    }
    let one = |id: &String| {
        let mut found = kept
            .iter()
            .filter(|kept| kept.key.as_str().starts_with(id.as_str()));
        match (found.next(), found.next()) {
            (Some(kept), None) if !id.is_empty() => Ok(kept),
            (None, _) => Err(unknown(id, "begins with")),
            (Some(_), _) => Err(unknown(id, "alone begins with")),
        }
    };
    args.ids.iter().map(one).collect()
}

fn unknown(id: &str, verb: &str) -> Failure {
    let what = format!("no id of kept packages {verb} `{}`", visible(id));
    Failure::usage(what, "`ringfence packages ls` lists them")
}

/// Removes an environment. One in use is an error if it was named.
fn remove(store: &Store, kept: &Kept, args: &PackagesRmArgs, context: &Context) -> Result<(), Failure> {
    match packages::remove(store, kept)? {
        Removal::Removed => Ok(()),
        Removal::InUse if args.all => {
            context
                .ui
                .warn(&format!("{} are in use and were left", short(kept)));
            Ok(())
        }
        Removal::InUse => Err(Failure::refused(
            format!("a program uses the packages {}", short(kept)),
            "wait until it has ended",
        )),
    }
}
