//! The toolbox, built from the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_exec::backend::Backend;
use ringfence_exec::protected::Protected;
use ringfence_exec::runner::Runner;
use ringfence_network::egress::{Guard, Resolver};
use ringfence_network::fetch::{Fetcher, Trust};
use ringfence_network::redact::Redactor;
use ringfence_policy::{EnvName, RuntimeKind, Scope};
use ringfence_records::approval::Service;
use ringfence_records::audit::{AnswerLog, Log, RedactedLog};
use ringfence_tools::files::Rules;
use ringfence_tools::host::{HostSettings, ObeyedPlaces};
use ringfence_tools::shell::{Host, ShellRunner};
use ringfence_tools::skills::Skills;
use ringfence_tools::toolbox::{Approvals, CodeLimits, CodeSettings, Parts, Surface, Toolbox};
use ringfence_tools::workspaces::Workspaces;

use crate::config::values::{self, ShellFallback};
use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::parts::missing_key;
use crate::{audit, container, local, packages, paths, settings, trust};

/// Variables of the host that commands on the host need: search path, identity, locale.
const HOST_VARIABLES: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR",
];

/// Builds the toolbox of the server's clients: programs run on `backend`, without a directory of the host and without
/// functions of skills.
///
/// # Errors
/// If the configuration cannot be used.
pub fn for_clients(backend: Arc<dyn Backend>, context: &Context) -> Result<Toolbox, Error> {
    let mut parts = parts(backend, None, Workspaces::none(rules(context)?), context)?;
    parts.closed = ringfence_tools::host_tools().map(str::to_owned).collect();
    finished(parts)
}

/// Builds a toolbox whose code runs on `backend` and may call `skills`, and whose callers work in `workspaces`.
///
/// # Errors
/// If the configuration cannot be used.
pub fn build(
    backend: Arc<dyn Backend>,
    skills: Option<Arc<Skills>>,
    workspaces: Workspaces,
    context: &Context,
) -> Result<Toolbox, Error> {
    finished(parts(backend, skills, workspaces, context)?)
}

fn finished(parts: Parts) -> Result<Toolbox, Error> {
    // Validation of the configuration has already checked the tool names.
    Toolbox::new(parts)
        .map_err(|error| Failure::usage(error.to_string(), "`ringfence tool --list` lists the tools").into())
}

fn parts(
    backend: Arc<dyn Backend>,
    skills: Option<Arc<Skills>>,
    workspaces: Workspaces,
    context: &Context,
) -> Result<Parts, Error> {
    let config = context.config()?;
    context.tell_passed_over()?;
    let settings = settings::settings(context)?;
    let sandbox = container::of_calls(context)?;
    let directory = workspaces.directory();
    let opened: Vec<&Path> = directory
        .iter()
        .map(PathBuf::as_path)
        .chain(sandbox.opened())
        .collect();
    let trusted = trust::trusted(trust::Named::default(), &opened, context)?;
    trust::note_directories(&opened, directory.as_deref(), trust::Named::default(), context)?;
    let workspaces = workspaces.keeping(trusted.clone());
    Ok(Parts {
        runner: Runner::new(
            packages::with_defaults(backend, Surface::Library, context)?,
            local::rules(&settings, context)?,
        ),
        code: CodeSettings {
            runtime: config.sandbox.runtime,
            fallback: config.sandbox.docker.fallback.into(),
            limits: CodeLimits {
                local: settings::limits_on(config, RuntimeKind::Local),
                container: settings::limits_on(config, RuntimeKind::Docker),
                pyodide: settings::limits_on(config, RuntimeKind::Pyodide),
            },
            fence: config.sandbox.isolation.fence(),
            trusted,
            variables: settings::passed_variables(context)?,
            network: settings::default_network(context)?,
        },
        limits: context.parts()?.tools.limits.clone(),
        denied: config.permissions.denied_tools.clone(),
        closed: Vec::new(),
        sandbox: Some(sandbox),
        shell: runner(context)?,
        host: host(context)?,
        workspaces,
        fetcher: fetcher(context)?,
        scratch: std::env::temp_dir(),
        approvals: Some(asked(context)?),
        skills,
        audit: Some(audit_log(context)?),
        egress_meter: None,
    })
}

/// Returns the settings of commands on the host; `None` if they are disabled.
fn host(context: &Context) -> Result<Option<HostSettings>, Error> {
    let config = context.config()?;
    if !config.host_execution.enabled {
        return Ok(None);
    }
    let assessor = context.parts()?.host.assessor.as_deref();
    if let Some(sentence) = assessor.and_then(missing_key) {
        context.log.write(&sentence);
    }
    host_settings(context).map(Some)
}

/// Returns the settings of commands on the host, even if they are disabled.
///
/// # Errors
/// If the configuration, or the working directory, cannot be used.
pub fn host_settings(context: &Context) -> Result<HostSettings, Error> {
    let parts = context.parts()?;
    Ok(HostSettings {
        rules: parts.host.rules(),
        assessor: parts.host.assessor.clone(),
        variables: host_variables(context),
        directory: paths::working_directory()?,
        timeout: parts.tools.host_timeout,
        patience: context.config()?.host_execution.ask_timeout_min.0,
        own: own_files(context)?,
        ledger: trust::ledger(context),
        obeyed: ObeyedPlaces {
            trusted: trust::configured_paths(context)?,
            protected: Protected::new(&context.config()?.permissions.filesystem.protected),
        },
    })
}

/// Returns our own directories and configuration files, which commands on the host do not show without
/// approval.
///
/// # Errors
/// If the configuration cannot be used.
fn own_files(context: &Context) -> Result<Vec<std::path::PathBuf>, Error> {
    let paths = &context.paths;
    let mut own = vec![
        paths.state.clone(),
        paths.runtime.clone(),
        audit::directory(context)?,
    ];
    own.extend(paths.config.clone());
    own.extend(context.loaded()?.files.clone());
    Ok(own)
}

/// Returns the approval service of this user.
///
/// # Errors
/// If the state directory cannot be used.
pub fn approvals(context: &Context) -> Result<Service, Error> {
    let state = context.paths.make_state()?;
    let redactor = Redactor::from_environment(context.environment.lossy_pairs());
    let log = AnswerLog::new(audit::directory(context)?, audit::limits(context)?, redactor);
    Ok(Service::recorded(state, Some(log)))
}

/// Returns the destination of approval requests.
///
/// # Errors
/// If the configuration, or the state directory, cannot be used.
pub fn asked(context: &Context) -> Result<Approvals, Error> {
    Ok(Approvals {
        service: approvals(context)?,
        chat: context.parts()?.tools.chat.clone(),
    })
}

/// Returns the workspaces of callers: a directory named on the command line, else those that the
/// configuration gives each user.
///
/// # Errors
/// If a directory cannot be used.
pub fn workspaces(named: Option<&Path>, context: &Context) -> Result<Workspaces, Error> {
    if let Some(named) = named {
        return directory(&settings::workspace(named, context)?, context);
    }
    let rules = rules(context)?;
    let Some(root) = context.parts()?.tools.root.clone() else {
        return Ok(Workspaces::none(rules));
    };
    let below = paths::working_directory()?;
    // One user's directory stands for all: none of them may contain a path that must stay hidden.
    let sample = root.resolve(&Scope::local(), "session".parse().ok().as_ref());
    let sample = sample
        .map_err(|error| Failure::usage(error.to_string(), "correct `permissions.filesystem.user_root`"))?;
    if let Some(sample) = sample {
        settings::check_shown(&below.join(sample), context)?;
    }
    Ok(Workspaces::each(root, below, rules))
}

/// Returns one workspace for all callers.
///
/// # Errors
/// If it cannot be opened.
pub fn directory(path: &Path, context: &Context) -> Result<Workspaces, Error> {
    Workspaces::one(path, rules(context)?)
        .map_err(|error| Failure::usage(error.to_string(), error.hint()).into())
}

/// Opens the log of every tool call, and of every skill call of a program.
///
/// # Errors
/// If it cannot be used.
pub fn audit_log(context: &Context) -> Result<Log, Error> {
    let config = &context.config()?.audit;
    let directory = audit::directory(context)?;
    if config.dir.is_none() {
        context.paths.make_state()?;
    }
    Ok(Log::open(&directory, audit::limits(context)?).map_err(audit::failure)?)
}

/// Opens the log of clients' operations without a tool.
///
/// # Errors
/// If it cannot be used.
pub fn operations_log(context: &Context) -> Result<RedactedLog, Error> {
    let redactor = Redactor::from_environment(context.environment.lossy_pairs());
    Ok(RedactedLog::new(audit_log(context)?, redactor))
}

/// Creates the fetcher of pages from the allowed hosts.
fn fetcher(context: &Context) -> Result<Fetcher, Error> {
    let policy = context.parts()?.egress.policy.clone();
    let guard = Guard::new(policy, Resolver::system());
    let trust = Trust::opened_by(
        context.config()?.egress.ca_file.clone(),
        context.named_paths().opener(),
    );
    Ok(Fetcher::new(Arc::new(guard), trust))
}

/// Returns the rules of file tools.
pub(crate) fn rules(context: &Context) -> Result<Rules, Error> {
    let permissions = &context.config()?.permissions;
    Ok(Rules {
        max_read: usize::try_from(permissions.tool_limits.max_output_bytes.0).unwrap_or(usize::MAX),
        protected: Protected::new(&permissions.filesystem.protected),
        ..Rules::standard()
    })
}

fn runner(context: &Context) -> Result<ShellRunner, Error> {
    Ok(match context.config()?.permissions.shell.runner {
        values::ShellRunner::Fenced => ShellRunner::Fenced,
        values::ShellRunner::Container => {
            let fallback = match context.config()?.permissions.shell.container_fallback {
                ShellFallback::None => None,
                ShellFallback::Fenced => Some(ShellRunner::Fenced),
                ShellFallback::Host => Some(on_host(context)?),
            };
            ShellRunner::Container(container::of_shell(context, fallback)?)
        }
        values::ShellRunner::Host => on_host(context)?,
    })
}

fn on_host(context: &Context) -> Result<ShellRunner, Error> {
    Ok(ShellRunner::Host(Host {
        variables: host_variables(context),
        directory: paths::working_directory()?,
    }))
}

fn host_variables(context: &Context) -> Vec<(EnvName, String)> {
    let variables = HOST_VARIABLES.iter().filter_map(|name| {
        let value = context.environment.text(name)?.to_owned();
        name.parse().ok().map(|name| (name, value))
    });
    variables.collect()
}
