//! The functions that programs may call, and their sources.

use std::path::{Path, PathBuf};

use ringfence_exec::trust;
use ringfence_tools::skills::{PathPattern, Policy, Rules, ServerPlan};

use super::checks::{Checks, Wrong};
use super::files::absolute;
use super::servers;
use crate::config::schema;

/// Skills, with the rules for calls.
#[derive(Debug, Clone)]
pub struct Skills {
    /// Permissions and call limits.
    pub rules: Rules,
    /// The MCP servers.
    pub servers: Vec<ServerPlan>,
    /// The installation directory of Deno and Pyodide; `None` means the state directory.
    pub pyodide: Option<PathBuf>,
}

pub(super) fn skills(checks: &mut Checks<'_>) -> Option<Skills> {
    let config = &checks.config().skills;
    let directory = match &config.path {
        Some(path) => check_directory(checks, path),
        None => Some(()),
    };
    let rules = rules(checks, config);
    let servers = servers::plans(checks);
    directory?;
    Some(Skills {
        rules: rules?,
        servers: servers?,
        pyodide: config.sandbox.directory.as_deref().map(absolute),
    })
}

/// Checks the directory of skill files, which is mounted in their processes. Each use resolves it anew, since
/// the links on the way to it are checked then.
fn check_directory(checks: &mut Checks<'_>, path: &Path) -> Option<()> {
    const KEY: &str = "skills.path";
    let expected = |found: &str| {
        let message = format!(
            "expected a directory of skill files, found {}: {found}",
            path.display()
        );
        Wrong::new(
            KEY,
            message,
            "make the directory, name another one, or leave the key out",
        )
    };
    let found = checks.keep(trust::resolve(path).map_err(|error| expected(&error.to_string())))?;
    let resolved = found.path;
    if !found.exists {
        let missing = format!("there is no directory {}, and so no skills of it", path.display());
        checks.warn(KEY, missing);
    } else if !resolved.is_dir() {
        checks.wrong(expected("it is not a directory"));
        return None;
    }
    let shown = checks.hidden().check(&resolved).map_err(|why| {
        let message = format!("refusing to show {} to programs: {why}", path.display());
        Wrong::new(KEY, message, "name a directory that holds skill files alone")
    });
    checks.keep(shown)
}

fn rules(checks: &mut Checks<'_>, config: &schema::Skills) -> Option<Rules> {
    let mut rules = Rules {
        scopes: Vec::new(),
        others: Vec::new(),
        policies: Vec::new(),
        max_calls: config.max_calls,
        calls_per_second: config.calls_per_second,
        call_timeout: config.call_timeout,
        patience: config.ask_timeout,
    };
    let mut complete = true;
    for text in &config.allow {
        complete &= allow(checks, text, &mut rules).is_some();
    }
    for (key, list, policy) in [
        ("skills.notify", &config.notify, Policy::Notify),
        ("skills.ask", &config.ask, Policy::Ask),
    ] {
        for text in list {
            match checks.parse::<PathPattern>(key, text.trim()) {
                Some(pattern) => rules.policies.push((pattern, policy)),
                None => complete = false,
            }
        }
    }
    complete.then_some(rules)
}

/// Adds one element of `skills.allow`.
fn allow(checks: &mut Checks<'_>, text: &str, rules: &mut Rules) -> Option<()> {
    const KEY: &str = "skills.allow";
    let Some((user, path)) = text.split_once(':') else {
        rules.others.push(checks.parse(KEY, text.trim())?);
        return Some(());
    };
    let user = checks.parse(KEY, user.trim());
    let path = checks.parse(KEY, path.trim());
    let (user, path) = (user?, path?);
    match rules.scopes.iter_mut().find(|(named, _)| *named == user) {
        Some((_, paths)) => paths.push(path),
        None => rules.scopes.push((user, vec![path])),
    }
    Some(())
}
