//! Sources of a gateway's token.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ringfence_exec::trust::NamedPathError;
use ringfence_server::gateway::Secret;

use crate::context::Context;
use ringfence::Failure;
use ringfence::trust;

/// Maximum length of a token file.
const MAX: u64 = 4096;

/// Reads the token from `file`, or from the environment variable `variable` if no file is named.
pub(super) fn token(variable: &str, file: Option<&Path>, context: &Context) -> Result<Secret, Failure> {
    let (text, place) = match file {
        Some(file) => (of_file(file, context)?, file.display().to_string()),
        None => {
            let text = context.environment.text(variable).ok_or_else(|| {
                Failure::usage(
                    format!("no token: the environment variable {variable} is not set"),
                    "set it to the bot's token, or name a file that holds it with `token_file`",
                )
            })?;
            (text.to_owned(), variable.to_owned())
        }
    };
    Secret::new(&text)
        .map_err(|error| Failure::usage(format!("{place}: {error}"), "copy the bot's token again"))
}

fn of_file(file: &Path, context: &Context) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        Failure::usage(
            format!("cannot read the token in {}: {error}", file.display()),
            "check `token_file` and the file's permissions",
        )
    };
    let (open, _) = context
        .named_paths()
        .open_file(file)
        .map_err(|error| match error {
            NamedPathError::Unusable(error) => failed(error),
            other => trust::failure(file, other),
        })?;
    let mode = open.metadata().map_err(failed)?.permissions().mode();
    if mode & 0o022 != 0 {
        return Err(Failure::usage(
            format!("{} holds a token and others may write to it", file.display()),
            format!("run `chmod 600 {}`", file.display()),
        ));
    }
    if mode & 0o004 != 0 {
        // A warning only: secrets mounted into a container have this mode.
        let what = format!(
            "{} holds a token and everybody on this machine may read it",
            file.display()
        );
        context.ui.warn(&what);
    }
    let mut text = String::new();
    open.take(MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
