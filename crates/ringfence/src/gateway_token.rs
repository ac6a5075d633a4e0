//! The token of a gateway, from a file or from the environment.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ringfence_exec::trust::NamedPathError;

use crate::context::Context;
use crate::failure::Failure;
use crate::named_paths;

/// Maximum length of a token file.
const MAX: u64 = 4096;

/// The token of a gateway. Never shown in messages or logs.
pub struct GatewayToken {
    pub text: String,
    /// The file or the variable that holds it.
    pub place: String,
}

impl fmt::Debug for GatewayToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayToken")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// Reads the token from `file`, or from the environment variable `variable` if no file is named.
///
/// # Errors
/// If there is none, or others than this user could have written it.
pub fn find(variable: &str, file: Option<&Path>, context: &Context) -> Result<GatewayToken, Failure> {
    if let Some(file) = file {
        return Ok(GatewayToken {
            text: of_file(file, context)?,
            place: file.display().to_string(),
        });
    }
    let text = context.environment.text(variable).ok_or_else(|| {
        Failure::usage(
            format!("no token: the environment variable {variable} is not set"),
            "set it to the bot's token, or name a file that holds it with `token_file`",
        )
    })?;
    Ok(GatewayToken {
        text: text.to_owned(),
        place: variable.to_owned(),
    })
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
            other => named_paths::failure(file, other),
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
        context.log.write(&what);
    }
    let mut text = String::new();
    open.take(MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
