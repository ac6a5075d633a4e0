//! `ringfence sandbox cp`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use ringfence::{Failure, trust};
use ringfence_client::place::Place;
use ringfence_client::{Copied, CopyOptions, OnProgress, for_people};
use ringfence_gateway_protocol::interrupted;

use super::{failure, print_json, sandbox_only};
use crate::context::Context;
use crate::exit::{FAILED, INTERRUPTED};
use crate::ui::Ui;
use ringfence_args::SandboxCopyArgs;

/// Erases the line of a terminal.
const ERASE: &str = "\r\x1b[K";

pub(super) async fn copy(args: &SandboxCopyArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let within = async |sandbox: &str| sandbox_only(sandbox, "`cp`", &args.options, context).await;
    let options = CopyOptions {
        named_paths: context.named_paths(),
        max_size: args.max_size.0,
        guard: match args.include_protected {
            true => None,
            false => Some(trust::copy_guard(context)?),
        },
    };
    let progress = progress(context.ui);
    let copied = match (Place::parse(&args.from), Place::parse(&args.to)) {
        (Place::Here(from), Place::There { sandbox, path }) => {
            let sandbox = within(&sandbox).await?;
            sandbox.copy_in(&from, &path, &options, progress).await
        }
        (Place::There { sandbox, path }, Place::Here(to)) => {
            let sandbox = within(&sandbox).await?;
            let copying = sandbox.copy_out(&path, &to, &options, progress);
            match to.as_str() {
                "-" => copying.await,
                _ => tokio::select! {
                    copied = copying => copied,
                    // What is not complete is removed with its future.
                    () = interrupted() => return Ok(ExitCode::from(INTERRUPTED)),
                },
            }
        }
        (Place::Here(_), Place::Here(_)) | (Place::There { .. }, Place::There { .. }) => {
            return Err(Failure::usage(
                "one of the paths must be in a sandbox, and one on this machine",
                "write the path in the sandbox as NAME:PATH, as in lab:/workspace/data.csv, and a path of this machine that has a colon as ./PATH",
            )
            .into());
        }
    };
    if io::stderr().is_terminal() {
        let _ = context.ui.err(ERASE);
    }
    conclude(&copied.map_err(failure)?, args, context)
}

/// Names what was left out. A copy that lacks something is not a success.
fn conclude(copied: &Copied, args: &SandboxCopyArgs, context: &Context) -> anyhow::Result<ExitCode> {
    if args.options.json {
        print_json(&copied.described, context)?;
    }
    for left in &copied.named {
        let reason = left.reason.as_str();
        context.ui.warn(&format!("left out {}: {reason}", left.path));
    }
    if copied.skipped == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let skipped = copied.skipped;
    context
        .ui
        .error(&format!("not everything was copied: {skipped} left out"));
    context.ui.hint("the warnings name what is missing, and why");
    Ok(ExitCode::from(FAILED))
}

/// Shows the state of the copy of a directory, in a terminal.
fn progress(ui: Ui) -> OnProgress {
    match io::stderr().is_terminal() {
        // A closed standard error leaves nobody to show it to.
        true => for_people(move |progress| drop(ui.err(format!("{ERASE}{progress}")))),
        false => Box::new(|_| ()),
    }
}
