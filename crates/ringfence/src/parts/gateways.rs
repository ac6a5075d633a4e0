//! Checks of the gateways' addresses and token sources.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ringfence_network::address::{Address, BadAddress};

use super::checks::{Checks, Wrong};
use crate::config::nearest;

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
    check_chats(checks);
}

/// Prefixes of chats that only Ringfence's own gateways serve.
const OURS: [&str; 2] = ["telegram", "discord"];

/// Warns of the first chat, which is asked, if no configured gateway serves it. A third party's gateway may
/// serve any name without these prefixes.
fn check_chats(checks: &mut Checks<'_>) {
    let gateway = &checks.config().gateway;
    let telegram = gateway.telegram.chats.iter().map(|id| format!("telegram_{id}"));
    let discord = gateway
        .discord
        .channels
        .iter()
        .map(|id| format!("discord_{}", id.0));
    let served: Vec<String> = telegram.chain(discord).chain(["local".to_owned()]).collect();
    for chat in &gateway.chats {
        let resembles = |name: &str| nearest(name, OURS).is_some() || OURS.contains(&name);
        let prefix = chat.split('_').next().unwrap_or_default();
        let near = nearest(chat, served.iter().map(String::as_str));
        if served.contains(chat) || !(resembles(prefix) || near.is_some()) {
            continue;
        }
        let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        let message = format!("no gateway serves `{}`{meant}", chat.escape_debug());
        checks.warn("gateway.chats", message);
    }
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
