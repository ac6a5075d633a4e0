//! Checks of the gateways' addresses and token sources.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ringfence_server::gateway::{Address, BadAddress};

use super::checks::{Checks, Wrong};

pub(super) fn check(checks: &mut Checks<'_>) {
    let gateway = &checks.config().gateway;
    for (key, name) in [
        ("gateway.telegram.token_env", &gateway.telegram.token_env),
        ("gateway.discord.token_env", &gateway.discord.token_env),
    ] {
        if !is_variable(name) {
            // The value is not repeated: it could be the token itself.
            checks.wrong(Wrong::new(
                key,
                "expected the name of an environment variable, found something else",
                "name the variable that holds the token, and never write the token itself into a configuration",
            ));
        }
    }
    for (key, file) in [
        ("gateway.telegram.token_file", &gateway.telegram.token_file),
        ("gateway.discord.token_file", &gateway.discord.token_file),
    ] {
        let checked = file.as_deref().map_or(Ok(()), |file| check_token_file(key, file));
        checks.keep(checked);
    }
    let base = Address::http(&gateway.telegram.base_url).map_err(|_| {
        let found = &gateway.telegram.base_url;
        Wrong::new(
            "gateway.telegram.base_url",
            format!("expected an https address, found `{}`", found.escape_debug()),
            "write `https://` and a host, without user, query or fragment; `http://` is for this machine alone",
        )
    });
    checks.keep(base);
    let misplaced = |key: &str, error: BadAddress| {
        Wrong::new(
            format!("gateway.discord.{key}"),
            format!("it cannot be used: {error}"),
            "correct it, or leave it out for Discord's own",
        )
    };
    let rest = Address::http(&gateway.discord.base_url).map_err(|error| misplaced("base_url", error));
    let events =
        Address::websocket(&gateway.discord.gateway_url).map_err(|error| misplaced("gateway_url", error));
    checks.keep(rest);
    checks.keep(events);
}

/// Rejects a missing file, and one that others could change. It need not be readable: its gateway may run as
/// another user.
fn check_token_file(key: &str, file: &Path) -> Result<(), Wrong> {
    let wrong = |found: &str, hint: String| {
        let message = format!("expected a file with a token, found {}: {found}", file.display());
        Err(Wrong::new(key, message, hint))
    };
    match file.metadata() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) => wrong(
            &error.to_string(),
            "make the file, or leave the key out".to_owned(),
        ),
        Ok(meta) if !meta.is_file() => wrong(
            "it is not a file",
            "name a file that holds the token alone".to_owned(),
        ),
        Ok(meta) if meta.permissions().mode() & 0o022 != 0 => wrong(
            "others may write to it",
            format!("run `chmod 600 {}`", file.display()),
        ),
        Ok(_) => Ok(()),
    }
}

/// Returns `true` for variable names in upper or lower case, since users choose their own.
fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(plain)
}
