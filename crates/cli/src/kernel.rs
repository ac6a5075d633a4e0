//! The kernel, set up from the configuration.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::{EnvName, RuntimeKind, Scope, Timeout, UserRoot, UserScope};
use ringfence_runtime::approval::{Chat, Service};
use ringfence_runtime::audit::{self, Log};
use ringfence_runtime::backend::{Backend, InContainers};
use ringfence_runtime::egress::{Guard, Resolver};
use ringfence_runtime::fetch::{Fetcher, Trust};
use ringfence_runtime::files::{Protected, Rules};
use ringfence_runtime::host::HostSettings;
use ringfence_runtime::kernel::{Approvals, AtLimit, CodeLimits, CodeSettings, Kernel, Parts, ToolLimits};
use ringfence_runtime::shell::{Host, Runner};
use ringfence_runtime::skills::Skills;
use ringfence_runtime::workspaces::Workspaces;

use crate::config::Config;
use crate::config::values::{self, ShellFallback, ShellRunner};
use crate::context::Context;
use crate::exit::Failure;
use crate::{container, high, local};

/// Variables of the host that its own commands need: where things are, who we are, which language we speak.
const HOST_VARIABLES: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR",
];

/// A kernel whose code runs on `backend`, in `containers` or in `pyodide` and may call `skills`, and whose callers work in
/// `workspaces`.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn build(
    backend: Arc<dyn Backend>,
    (containers, pyodide): (Arc<dyn InContainers>, Arc<dyn Backend>),
    skills: Option<Arc<Skills>>,
    workspaces: Workspaces,
    context: &Context,
) -> anyhow::Result<Kernel> {
    let config = context.config()?;
    context.tell_passed_over()?;
    let settings = high::settings(None, context)?;
    let parts = Parts {
        backend,
        containers: Some(containers),
        pyodide: Some(pyodide),
        rules: local::rules(&settings, context),
        code: CodeSettings {
            runtime: config.sandbox.runtime,
            fallback: config.sandbox.docker.fallback.into(),
            limits: CodeLimits {
                local: high::limits_on(config, RuntimeKind::Local),
                container: high::limits_on(config, RuntimeKind::Docker),
                pyodide: high::limits_on(config, RuntimeKind::Pyodide),
            },
            fence: high::default_fence(config).into(),
            variables: high::passed_variables(context)?,
            network: high::egress::default_network(config)?,
        },
        limits: limits(config),
        denied: config.permissions.denied_tools.clone(),
        sandbox: Some(container::of_calls(context)?),
        shell: runner(context)?,
        host: host(context)?,
        workspaces,
        fetcher: fetcher(config)?,
        scratch: std::env::temp_dir(),
        approvals: Some(asked(context)?),
        skills,
        audit: Some(audit_log(context)?),
    };
    Kernel::new(parts).map_err(|unknown| {
        Failure::usage(
            format!("`permissions.denied_tools`: there is no tool `{}`", unknown.name),
            format!("the tools are {}", unknown.known),
        )
        .into()
    })
}

/// How commands run on this machine itself, if they may.
fn host(context: &Context) -> anyhow::Result<Option<HostSettings>> {
    let config = context.config()?;
    if !config.host_execution.enabled {
        return Ok(None);
    }
    let assessor = high::host::assessor(config, &context.environment)?;
    if let Some(sentence) = assessor.as_ref().and_then(high::host::missing_key) {
        context.ui.warn(&sentence);
    }
    Ok(Some(HostSettings {
        rules: high::host::rules(config)?,
        assessor: assessor.map(Arc::new),
        variables: host_variables(context),
        directory: std::env::current_dir()?,
        timeout: host_timeout(config),
        patience: config.host_execution.ask_timeout_min.0,
    }))
}

/// How long a command of the host may run.
fn host_timeout(config: &Config) -> Timeout {
    let limits = &config.permissions.tool_limits;
    let own = limits.others.get("host_exec_timeout_secs").copied();
    own.unwrap_or(limits.shell_timeout_secs)
}

/// The questions of this user, and their answers.
///
/// # Errors
/// If the state directory cannot be used.
pub(crate) fn approvals(context: &Context) -> anyhow::Result<Service> {
    Ok(Service::at(context.paths.make_state()?))
}

/// Whom a person's word is asked of.
///
/// # Errors
/// If the configuration, or the state directory, cannot be used.
pub(crate) fn asked(context: &Context) -> anyhow::Result<Approvals> {
    Ok(Approvals {
        service: approvals(context)?,
        chat: chat(context.config()?)?,
    })
}

/// Where the person is asked.
fn chat(config: &Config) -> Result<Chat, Failure> {
    let mut chats = parsed("gateway.chats", &config.gateway.chats)?;
    Ok(if chats.is_empty() {
        Chat::local()
    } else {
        chats.swap_remove(0)
    })
}

/// Where callers work: a directory named on the command line, else those that the configuration gives each user.
///
/// # Errors
/// If a directory cannot be used.
pub(crate) fn workspaces(named: Option<&Path>, context: &Context) -> anyhow::Result<Workspaces> {
    if let Some(named) = named {
        return directory(&high::workspace(named, context)?, context);
    }
    let filesystem = &context.config()?.permissions.filesystem;
    let rules = rules(context)?;
    let scope = match filesystem.user_scope {
        values::UserScope::None => return Ok(Workspaces::none(rules)),
        values::UserScope::User => UserScope::User,
        values::UserScope::Session => UserScope::Session,
    };
    let root = UserRoot::new(scope, &filesystem.user_root).map_err(|error| {
        Failure::usage(
            format!("`permissions.filesystem.user_root`: {error}"),
            "correct it; `ringfence config schema` describes it",
        )
    })?;
    let below = std::env::current_dir()?;
    // One user's directory stands for all: what must stay hidden lies in none of them.
    let sample = root.resolve(&Scope::local(), "session".parse().ok().as_ref())?;
    if let Some(sample) = sample {
        high::check_shown(&below.join(sample), context)?;
    }
    Ok(Workspaces::each(root, below, rules))
}

/// All callers in one directory.
///
/// # Errors
/// If it cannot be opened.
pub(crate) fn directory(path: &Path, context: &Context) -> anyhow::Result<Workspaces> {
    Workspaces::one(path, rules(context)?)
        .map_err(|error| Failure::usage(error.to_string(), error.hint()).into())
}

/// The log of every use of a tool, and of every function that a program calls.
///
/// # Errors
/// If it cannot be used.
pub(crate) fn audit_log(context: &Context) -> anyhow::Result<Log> {
    let config = &context.config()?.audit;
    let directory = high::audit::directory(context)?;
    if config.dir.is_none() {
        context.paths.make_state()?;
    }
    let limits = audit::Limits {
        max_file_bytes: config.max_file.0,
        max_files: config.max_files as usize,
    };
    Ok(Log::open(&directory, limits).map_err(high::audit::failure)?)
}

/// What fetches pages from the hosts that the configuration names.
fn fetcher(config: &Config) -> anyhow::Result<Fetcher> {
    let egress = &config.egress;
    let policy = high::egress::policy(egress)?;
    let guard = Guard::new(policy, Resolver::system());
    Ok(Fetcher::new(Arc::new(guard), Trust::new(egress.ca_file.clone())))
}

fn parsed<T: FromStr<Err: Display>>(key: &str, texts: &[String]) -> Result<Vec<T>, Failure> {
    let parse = |text: &String| {
        text.parse().map_err(|error| {
            Failure::usage(
                format!("`{key}`: {error}"),
                "correct it; `ringfence config schema` describes it",
            )
        })
    };
    texts.iter().map(parse).collect()
}

fn rules(context: &Context) -> anyhow::Result<Rules> {
    let permissions = &context.config()?.permissions;
    Ok(Rules {
        max_read: usize::try_from(permissions.tool_limits.max_output_bytes.0)?,
        protected: Protected::new(&permissions.filesystem.protected),
        ..Rules::standard()
    })
}

/// Time limits by tool. Those that run code have the sandbox's, unless they have one of their own.
fn limits(config: &Config) -> ToolLimits {
    let limits = &config.permissions.tool_limits;
    let code = config.sandbox.timeout;
    let mut timeouts = std::collections::BTreeMap::from([
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
    // Waiting for an answer, of a model or a person, is no part of the command's own time.
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

fn runner(context: &Context) -> anyhow::Result<Runner> {
    Ok(match context.config()?.permissions.shell.runner {
        ShellRunner::Fenced => Runner::Fenced,
        ShellRunner::Container => {
            let fallback = match context.config()?.permissions.shell.container_fallback {
                ShellFallback::None => None,
                ShellFallback::Fenced => Some(Runner::Fenced),
                ShellFallback::Host => Some(on_host(context)?),
            };
            Runner::Container(container::of_shell(context, fallback)?)
        }
        ShellRunner::Host => on_host(context)?,
    })
}

fn on_host(context: &Context) -> anyhow::Result<Runner> {
    Ok(Runner::Host(Host {
        variables: host_variables(context),
        directory: std::env::current_dir()?,
    }))
}

fn host_variables(context: &Context) -> Vec<(EnvName, String)> {
    let variables = HOST_VARIABLES.iter().filter_map(|name| {
        let value = context.environment.text(name)?.to_owned();
        name.parse().ok().map(|name| (name, value))
    });
    variables.collect()
}
