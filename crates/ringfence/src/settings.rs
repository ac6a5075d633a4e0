//! Settings of runs that the configuration determines.

use std::path::{Path, PathBuf};

use ringfence_exec::artifact::{Keep, Store, StorePolicy};
use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_policy::{Bytes, EnvName, Family, Limits, Network, RuntimeKind};

use crate::config::values::{NetworkKind, VariableName};
use crate::config::{Config, Problems};
use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::parts::Interpreters;
use crate::{audit, mount_guard, trust};

/// Settings of the local runtime beside the request.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The Python interpreter: absolute, or a bare name to be found on the PATH.
    pub python: Option<PathBuf>,
    /// Node or Deno: absolute, or a bare name to be found on the PATH.
    pub javascript: Option<PathBuf>,
    /// Modules imported in advance.
    pub preload: Vec<String>,
    /// Modules that the import check rejects; empty if it is off.
    pub blocked_imports: Vec<String>,
    /// Modules that the import check rejects in Pyodide.
    pub blocked_in_pyodide: Vec<String>,
    /// Selection of the runs that are stored.
    pub store: StorePolicy,
    /// The directory of stored runs; absolute.
    pub artifacts_dir: PathBuf,
    /// Retention limits of stored runs.
    pub artifacts_keep: Keep,
}

/// Returns the configured settings of the local runtime.
///
/// # Errors
/// If the configuration cannot be used.
pub fn settings(context: &Context) -> Result<Settings, Error> {
    let config = context.config()?;
    context.paths.check_state()?;
    let Interpreters { python, javascript } = context.parts()?.interpreters.clone();
    Ok(Settings {
        python,
        javascript,
        preload: config.sandbox.preload.clone(),
        blocked_imports: if config.sandbox.block_dangerous_imports {
            config.sandbox.blocked_imports.clone()
        } else {
            Vec::new()
        },
        blocked_in_pyodide: config.skills.sandbox.blocked_imports.clone(),
        store: config.artifacts.store,
        artifacts_dir: artifacts_dir(context)?,
        artifacts_keep: config.artifacts.kept(),
    })
}

/// Returns the directory of stored runs.
fn artifacts_dir(context: &Context) -> Result<PathBuf, Error> {
    Ok(match &context.config()?.artifacts.dir {
        Some(dir) => trust::resolve(dir, context)?.path,
        None => context.paths.state.join("artifacts"),
    })
}

/// Returns the store of runs.
///
/// # Errors
/// If the configuration cannot be used.
pub fn store(context: &Context) -> Result<Store, Error> {
    context.paths.check_state()?;
    Ok(Store::new(
        &artifacts_dir(context)?,
        context.config()?.artifacts.kept(),
    ))
}

/// Returns the configured limits, without a command line.
pub fn default_limits(config: &Config) -> Limits {
    limits_on(config, config.sandbox.runtime)
}

/// Returns the configured limits on a runtime: containers have their own memory and CPU limits, Pyodide its
/// own memory limit and timeout.
pub fn limits_on(config: &Config, runtime: RuntimeKind) -> Limits {
    let sandbox = &config.sandbox;
    let (container, pyodide) = (&sandbox.docker, &config.skills.sandbox);
    let general = Limits {
        timeout: sandbox.timeout,
        max_output: sandbox.max_output,
        memory: sandbox.memory,
        cpus: sandbox.cpus,
        pids: sandbox.pids,
        disk: sandbox.disk,
    };
    match runtime.traits().family {
        Family::General | Family::Remote => general,
        Family::Container => Limits {
            memory: container.memory_limit,
            cpus: container.cpu_limit,
            ..general
        },
        Family::Pyodide => Limits {
            timeout: pyodide.timeout_seconds,
            memory: Bytes::mib(u64::from(pyodide.memory_limit_mb)),
            ..general
        },
    }
}

/// Returns the caller's environment variables that programs may see.
///
/// # Errors
/// If the configuration cannot be used.
pub fn passed_variables(context: &Context) -> Result<Vec<(EnvName, String)>, Problems> {
    let names = context.config()?.sandbox.pass_env.iter();
    let passed = names.filter_map(|VariableName(name)| {
        let value = context.environment.text(name.as_str())?;
        Some((name.clone(), value.to_owned()))
    });
    Ok(passed.collect())
}

/// Rejects a resolved path that would expose a hidden path.
///
/// # Errors
/// If it would, or the configuration cannot be used.
pub fn check_shown(path: &Path, context: &Context) -> Result<(), Failure> {
    mount_guard::check(path, &context.paths, &audit::directory(context)?)
}

/// Resolves the existing part of a path, and rejects links that a program may have made.
///
/// # Errors
/// If it cannot be resolved.
pub fn resolved(path: &Path, context: &Context) -> Result<PathBuf, Failure> {
    let found = mount_guard::resolve_new(path)?;
    trust::check_links(&found, context)?;
    Ok(found.path)
}

/// Returns our own directories, which no program may see.
///
/// # Errors
/// If the configuration cannot be used.
pub fn hidden(context: &Context) -> Result<DeniedPaths, Failure> {
    Ok(mount_guard::hidden(&context.paths, &audit::directory(context)?))
}

/// Resolves a workspace to its absolute path without links.
///
/// # Errors
/// If it does not exist, or mounting it would expose a hidden path.
pub fn workspace(path: &Path, context: &Context) -> Result<PathBuf, Failure> {
    let found = mount_guard::resolve(path)?;
    if !found.path.is_dir() {
        return Err(Failure::usage(
            format!("cannot work in {}: it is not a directory", path.display()),
            "name a directory",
        ));
    }
    check_shown(&found.path, context)?;
    trust::check_links(&found, context)?;
    Ok(found.path)
}

/// The warning about an allowlist without hosts.
pub const NO_HOSTS: &str = "no host is allowed, so the program reaches none; name them with `--allow-host` or `egress.allowed_hosts`";

/// Returns the hosts of a sandbox's allowlist: the named ones and, as for runs, those of the configuration. Warns if there
/// are none.
///
/// # Errors
/// If the configuration cannot be used.
pub fn allowlist(named: &[String], context: &Context) -> Result<Vec<String>, Problems> {
    context.tell_passed_over()?;
    let configured = context.parts()?.egress.policy.allowed.iter();
    let hosts: Vec<_> = named
        .iter()
        .cloned()
        .chain(configured.map(ToString::to_string))
        .collect();
    if hosts.is_empty() {
        context.log.write(NO_HOSTS);
    }
    Ok(hosts)
}

/// Returns the network of code that tools run.
///
/// # Errors
/// If the configuration cannot be used.
pub fn default_network(context: &Context) -> Result<Network, Problems> {
    Ok(match context.config()?.sandbox.network {
        NetworkKind::None => Network::None,
        NetworkKind::Allowlist => Network::Allowlist(context.parts()?.egress.policy.clone()),
    })
}
