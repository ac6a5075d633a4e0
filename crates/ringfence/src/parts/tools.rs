//! Rules of tools: time limits, directories, approvals.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfence_policy::{Scope, Timeout, UserRoot, UserScope};
use ringfence_records::approval::Chat;
use ringfence_tools::TOOL_NAMES;
use ringfence_tools::toolbox::{AtLimit, ToolLimits};

use super::checks::{Checks, Wrong};
use super::files::{absolute, may_become_directory};
use crate::config::{Config, values};
use crate::mount_guard;

/// The rules for tools.
#[derive(Debug, Clone)]
pub struct Tools {
    /// Time limits and the maximum size of answers.
    pub limits: ToolLimits,
    /// Timeout of a command on the host.
    pub host_timeout: Timeout,
    /// The directory of each user or session, if each has its own.
    pub root: Option<UserRoot>,
    /// The chat of approval requests.
    pub chat: Chat,
}

pub(super) fn tools(checks: &mut Checks<'_>) -> Option<Tools> {
    let config = checks.config();
    let unknown = |name: &&String| !TOOL_NAMES.contains(&name.as_str());
    for name in config.permissions.denied_tools.iter().filter(unknown) {
        let near = crate::config::nearest(name, TOOL_NAMES.iter().copied());
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        checks.wrong(Wrong::new(
            "permissions.denied_tools",
            format!(
                "expected the name of a tool, found `{}`{near}",
                name.escape_debug()
            ),
            format!("the tools are {}", TOOL_NAMES.join(", ")),
        ));
    }
    let chats = checks.parse_all("gateway.chats", &config.gateway.chats);
    let root = root(checks);
    Some(Tools {
        limits: limits(config),
        host_timeout: host_timeout(config),
        root: root?,
        chat: chats?.into_iter().next().unwrap_or_else(Chat::local),
    })
}

/// Returns the directories of users or sessions; none of them may expose a hidden path.
fn root(checks: &mut Checks<'_>) -> Option<Option<UserRoot>> {
    const KEY: &str = "permissions.filesystem.user_root";
    let filesystem = &checks.config().permissions.filesystem;
    let scope = match filesystem.user_scope {
        values::UserScope::None => UserScope::None,
        values::UserScope::User => UserScope::User,
        values::UserScope::Session => UserScope::Session,
    };
    let root = UserRoot::new(scope, &filesystem.user_root)
        .map_err(|error| Wrong::new(KEY, error, super::checks::CORRECT));
    let root = checks.keep(root)?;
    if scope == UserScope::None {
        return Some(None);
    }
    // One user's directory stands for all.
    let sample = root.resolve(&Scope::local(), "session".parse().ok().as_ref());
    if let Ok(Some(sample)) = sample {
        let sample = absolute(&sample);
        let fits = may_become_directory(KEY, &sample).and_then(|()| {
            checks
                .hidden()
                .check(&mount_guard::nearest_resolved(&sample))
                .map_err(|why| Wrong::new(KEY, why, "name a directory that holds only what the users need"))
        });
        checks.keep(fits)?;
    }
    Some(Some(root))
}

/// Returns the time limits by tool. Tools that run code default to the sandbox's timeout.
fn limits(config: &Config) -> ToolLimits {
    let limits = &config.permissions.tool_limits;
    let code = config.sandbox.timeout;
    let mut timeouts = BTreeMap::from([
        ("run_code".to_owned(), code),
        ("run_python_code".to_owned(), code),
        ("sandbox_exec".to_owned(), config.code_execution.timeout),
        ("shell".to_owned(), limits.shell_timeout_secs),
        ("http_fetch".to_owned(), limits.http_timeout_secs),
    ]);
    for (name, timeout) in &limits.others {
        let tool = name.strip_suffix("_timeout_secs").unwrap_or(name);
        timeouts.insert(tool.to_owned(), *timeout);
    }
    // Waiting for a model's or a person's answer does not count towards the command's own timeout.
    let host = &config.host_execution;
    let waiting = [
        host.ask_timeout_min.0,
        host.pre_validation.timeout_ms.0,
        host_timeout(config),
    ];
    let whole = waiting
        .iter()
        .map(|timeout| timeout.as_duration())
        .sum::<Duration>();
    let whole = whole.min(Timeout::MAX);
    timeouts.extend(Timeout::try_from(whole.as_secs_f64()).map(|whole| ("host_exec".to_owned(), whole)));
    ToolLimits {
        default_timeout: limits.default_timeout_secs,
        timeouts,
        at_limit: match limits.at_limit {
            values::AtLimit::Deny => AtLimit::Deny,
            values::AtLimit::Extend => AtLimit::Extend(limits.hard_timeout_secs),
            values::AtLimit::Ask => AtLimit::Ask {
                cap: limits.hard_timeout_secs,
                patience: limits.ask_timeout_secs,
            },
        },
        max_output: limits.max_output_bytes,
    }
}

fn host_timeout(config: &Config) -> Timeout {
    let limits = &config.permissions.tool_limits;
    let own = limits.others.get("host_exec_timeout_secs").copied();
    own.unwrap_or(limits.shell_timeout_secs)
}
