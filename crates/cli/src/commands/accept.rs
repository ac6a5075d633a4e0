//! `ringfence accept`: records that a person accepts the current content of files.

use std::process::ExitCode;

use crate::context::Context;
use crate::ui::visible;
use ringfence::Failure;
use ringfence::named_paths;
use ringfence_args::AcceptArgs;

pub(crate) fn run(args: &AcceptArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let accepted = named_paths::accepted(&context.paths);
    for file in &args.files {
        let path = named_paths::find(file)?.path;
        if !path.is_file() {
            let found = if path.exists() { "something else" } else { "none" };
            return Err(Failure::usage(
                format!(
                    "cannot accept {}: expected a regular file, found {found}",
                    path.display()
                ),
                "name an existing file of at most 1 MiB",
            )
            .into());
        }
        accepted.give(std::slice::from_ref(&path)).map_err(|error| {
            Failure::refused(
                format!("cannot accept {}: {error}", path.display()),
                "name a readable file of at most 1 MiB; the state directory must be yours (`ringfence doctor`)",
            )
        })?;
        let name = path.display().to_string();
        context.ui.out(format!("accepted {}\n", visible(&name)))?;
    }
    Ok(ExitCode::SUCCESS)
}
