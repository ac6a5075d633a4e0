//! Resolves arguments and configuration into a plan of what to run.

pub(crate) mod audit;
pub(crate) mod egress;
mod mount_guard;
mod options;
mod source;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_container::Flavor;
use ringfence_exec::artifact::{Keep, Store, StorePolicy};
use ringfence_exec::local::check_output_directory;
use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::NamedPaths;
use ringfence_policy::{Bytes, EnvName, Limits, Mount, Request, RuntimeKind, Scope, Trusted};
use ringfence_tools::kernel::ToolError;

use crate::args::{IsolationArg, RunArgs};
use crate::config::values::{IsolationChoice, UserScope, VariableName};
use crate::config::{Config, Problems};
use crate::context::Context;
use crate::exit::Failure;
use crate::parts::{Interpreters, interpreter, is_bare};
use crate::paths::Paths;
use crate::{kernel, trust};
use source::Source;

/// A run, fully resolved.
#[derive(Debug)]
pub(crate) struct RunPlan {
    /// The request and its limits.
    pub(crate) request: Request,
    /// Standard input of the program.
    pub(crate) stdin: StdinSource,
    /// Use of a running server.
    pub(crate) engine: Engine,
    /// The destination of files in `/output`; absolute, without links, existing.
    pub(crate) output_dir: Option<PathBuf>,
    /// The output format.
    pub(crate) report: Report,
    pub(crate) runtime: RuntimeKind,
    /// Required strength of the fence.
    pub(crate) fence: Fence,
    /// The directory of skills that the program may call.
    pub(crate) skills: Option<PathBuf>,
    /// Set if the program may call the tools of MCP servers.
    pub(crate) servers: bool,
    /// Settings of the local runtime beside the request.
    pub(crate) settings: Settings,
}

/// Standard input of a program.
#[derive(Debug, Clone)]
pub(crate) enum StdinSource {
    /// End of file at once.
    Empty,
    /// Our own standard input.
    Inherit,
    /// This file, opened before anything runs.
    File(Arc<File>),
}

/// Use of a running server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Uses a server if one is running.
    Use,
    /// Runs in this process.
    Avoid,
}

/// The output format of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The program's own output, as it arrives.
    Stream,
    /// One JSON object at the end.
    Json,
    /// JSON objects, one per line: output as it arrives, the result at the end.
    JsonLines,
}

/// Required strength of the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Refuses the run if a layer is missing.
    Required,
    /// Reports a missing layer in the result.
    BestEffort,
    /// Required wherever namespaces work, best effort elsewhere.
    Default,
    /// No fence at all; only the command line can ask for it.
    Unfenced,
}

/// Settings of the local runtime beside the request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The Python interpreter: absolute, or a bare name to be found on the PATH.
    pub(crate) python: Option<PathBuf>,
    /// Node or Deno: absolute, or a bare name to be found on the PATH.
    pub(crate) javascript: Option<PathBuf>,
    /// Modules imported in advance.
    pub(crate) preload: Vec<String>,
    /// Modules that the import check rejects; empty if it is off.
    pub(crate) blocked_imports: Vec<String>,
    /// Modules that the import check rejects in Pyodide.
    pub(crate) blocked_in_pyodide: Vec<String>,
    /// Selection of the runs that are stored.
    pub(crate) store: StorePolicy,
    /// The directory of stored runs; absolute.
    pub(crate) artifacts_dir: PathBuf,
    /// Retention limits of stored runs.
    pub(crate) artifacts_keep: Keep,
}

/// Resolves a run.
///
/// # Errors
/// If an argument or a setting cannot be used, or names something that comes with a later version.
pub(crate) fn plan(args: &RunArgs, context: &Context) -> anyhow::Result<RunPlan> {
    let config = context.config()?;
    let source = Source::of(args)?;
    let named = context.named_paths();
    let stdin = stdin(args, &source, &named)?;
    let program = source.read(args.language, &named)?;
    let runtime = args.runtime.unwrap_or(config.sandbox.runtime);
    options::check(args, program.language, runtime)?;
    let mut plan = RunPlan {
        request: Request {
            code: program.code,
            name: program.name,
            language: program.language,
            args: args.args.clone(),
            env: env(args, context)?,
            limits: limits(args, config, runtime),
            network: egress::network(args, context)?,
            mounts: mounts(args, context)?,
            workspace: workspace_of(args, context)?,
            working_directory: None,
            trusted: Trusted::none(),
            scope: args.user.clone().unwrap_or_else(Scope::local),
            session: args.session.clone(),
        },
        stdin,
        engine: if args.no_engine {
            Engine::Avoid
        } else {
            Engine::Use
        },
        output_dir: output_dir(args, context)?,
        report: report(args),
        runtime,
        fence: fence(args, config),
        skills: args.skills.clone(),
        servers: args.servers,
        settings: settings(Some(args), context)?,
    };
    let named = trust::Named {
        skills: args.skills.as_deref(),
        python: args.python.as_deref(),
    };
    trust::keep(&mut plan.request, (named, plan.output_dir.as_deref()), context)?;
    // Last, so that a rejected plan leaves nothing behind.
    if let Some(dir) = &plan.output_dir {
        make_output_dir(dir, &plan.request, config)?;
        // What is delivered is the program's, too.
        trust::note_directories((&[dir], None), named, context)?;
    }
    Ok(plan)
}

/// Returns the settings of the local runtime for a command line or, without one, for a server.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn settings(args: Option<&RunArgs>, context: &Context) -> anyhow::Result<Settings> {
    let config = context.config()?;
    let Interpreters { python, javascript } = context.parts()?.interpreters.clone();
    let python = match args.and_then(|args| args.python.as_deref()) {
        Some(path) => {
            let named = interpreter("--python", &absolute_unless_bare(path)?).map_err(Failure::from)?;
            check_on_path(&named, context)?;
            Some(named)
        }
        None => python,
    };
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
fn artifacts_dir(context: &Context) -> anyhow::Result<PathBuf> {
    Ok(match &context.config()?.artifacts.dir {
        Some(dir) => trust::resolve(dir, context)?.path,
        None => context.paths.state.join("artifacts"),
    })
}

/// Returns the store of runs.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn store(context: &Context) -> anyhow::Result<Store> {
    Ok(Store::new(
        &artifacts_dir(context)?,
        context.config()?.artifacts.kept(),
    ))
}

/// Returns the configured limits, without a command line.
pub(crate) fn default_limits(config: &Config) -> Limits {
    limits_on(config, config.sandbox.runtime)
}

/// Returns the configured limits on a runtime: containers have their own memory and CPU limits, Pyodide its
/// own memory limit and timeout.
pub(crate) fn limits_on(config: &Config, runtime: RuntimeKind) -> Limits {
    let sandbox = &config.sandbox;
    let container = Flavor::of(runtime).map(|_| &sandbox.docker);
    let pyodide = (runtime == RuntimeKind::Pyodide).then_some(&config.skills.sandbox);
    let limits = Limits {
        timeout: sandbox.timeout,
        max_output: sandbox.max_output,
        memory: container.map_or(sandbox.memory, |container| container.memory_limit),
        cpus: container.map_or(sandbox.cpus, |container| container.cpu_limit),
        pids: sandbox.pids,
        disk: sandbox.disk,
    };
    match pyodide {
        Some(pyodide) => Limits {
            timeout: pyodide.timeout_seconds,
            memory: Bytes::mib(u64::from(pyodide.memory_limit_mb)),
            ..limits
        },
        None => limits,
    }
}

fn limits(args: &RunArgs, config: &Config, runtime: RuntimeKind) -> Limits {
    let limits = limits_on(config, runtime);
    Limits {
        timeout: args.timeout.unwrap_or(limits.timeout),
        max_output: args.max_output.unwrap_or(limits.max_output),
        memory: args.memory.unwrap_or(limits.memory),
        cpus: args.cpus.unwrap_or(limits.cpus),
        pids: args.pids.unwrap_or(limits.pids),
        disk: args.disk.unwrap_or(limits.disk),
    }
}

fn report(args: &RunArgs) -> Report {
    match (args.json, args.json_stream) {
        (true, _) => Report::Json,
        (false, true) => Report::JsonLines,
        (false, false) => Report::Stream,
    }
}

fn fence(args: &RunArgs, config: &Config) -> Fence {
    match args.isolation {
        _ if args.unfenced => Fence::Unfenced,
        Some(IsolationArg::Required) => Fence::Required,
        Some(IsolationArg::BestEffort) => Fence::BestEffort,
        None => default_fence(config),
    }
}

/// Returns the configured fence, without a command line.
pub(crate) fn default_fence(config: &Config) -> Fence {
    match config.sandbox.isolation {
        IsolationChoice::Required => Fence::Required,
        IsolationChoice::BestEffort => Fence::BestEffort,
        IsolationChoice::Auto => Fence::Default,
    }
}

fn stdin(args: &RunArgs, source: &Source, named: &NamedPaths) -> Result<StdinSource, Failure> {
    match &args.stdin {
        None => Ok(StdinSource::Empty),
        Some(path) if path.as_os_str() == "-" && *source == Source::Stdin => Err(Failure::usage(
            "standard input cannot be both the program and its input",
            "give the program as a file or with -c",
        )),
        Some(path) if path.as_os_str() == "-" => Ok(StdinSource::Inherit),
        Some(path) => source::open(path, named).map(|file| StdinSource::File(Arc::new(file))),
    }
}

/// Returns the caller's environment variables that programs may see.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn passed_variables(context: &Context) -> Result<Vec<(EnvName, String)>, Problems> {
    let names = context.config()?.sandbox.pass_env.iter();
    let passed = names.filter_map(|VariableName(name)| {
        let value = context.environment.text(name.as_str())?;
        Some((name.clone(), value.to_owned()))
    });
    Ok(passed.collect())
}

fn env(args: &RunArgs, context: &Context) -> Result<Vec<(EnvName, String)>, Problems> {
    let mut variables = passed_variables(context)?;
    for (name, value) in &args.env {
        variables.retain(|(known, _)| known != name);
        variables.push((name.clone(), value.clone()));
    }
    Ok(variables)
}

/// Rejects a resolved path that would expose what must stay hidden.
///
/// # Errors
/// If it would, or the configuration cannot be used.
pub(crate) fn check_shown(path: &Path, context: &Context) -> Result<(), Failure> {
    mount_guard::check(path, &context.paths, &audit::directory(context)?)
}

/// Resolves the existing part of a path, and rejects links that a program may have made.
///
/// # Errors
/// If it cannot be resolved.
pub(crate) fn resolved(path: &Path, context: &Context) -> Result<PathBuf, Failure> {
    let found = mount_guard::resolve_new(path)?;
    trust::check_links(&found, context)?;
    Ok(found.path)
}

/// Returns our own directories, which no program may see.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn hidden(context: &Context) -> Result<DeniedPaths, Failure> {
    Ok(hidden_of(context.config()?, &context.paths))
}

/// Returns our own directories under a configuration, which no program may see.
pub(crate) fn hidden_of(config: &Config, paths: &Paths) -> DeniedPaths {
    mount_guard::hidden(paths, &audit::directory_of(config, paths))
}

/// Resolves the existing part of a path, to check what it would expose.
pub(crate) fn nearest_resolved(path: &Path) -> PathBuf {
    mount_guard::nearest_resolved(path)
}

fn mounts(args: &RunArgs, context: &Context) -> Result<Vec<Mount>, Failure> {
    let mut mounts: Vec<Mount> = Vec::with_capacity(args.mount.len());
    for mount in &args.mount {
        let found = mount_guard::resolve(&mount.host)?;
        check_shown(&found.path, context)?;
        trust::check_links(&found, context)?;
        let host = found.path;
        if let Some(other) = mounts.iter().find(|other| other.guest() == mount.guest()) {
            return Err(Failure::usage(
                format!(
                    "two mounts at {}: {} and {}",
                    mount.guest().display(),
                    other.host.display(),
                    host.display()
                ),
                "give each mount a path of its own inside",
            ));
        }
        let mut mount = mount.clone();
        mount.host = host;
        mounts.push(mount);
    }
    Ok(mounts)
}

/// Returns the program's workspace: a directory named on the command line, or the user's own if the
/// configuration gives each user one. The directory of a session serves tools alone: a run belongs to no
/// conversation.
fn workspace_of(args: &RunArgs, context: &Context) -> anyhow::Result<Option<PathBuf>> {
    let each_user = context.config()?.permissions.filesystem.user_scope == UserScope::User;
    if args.workspace.is_none() && !each_user {
        return Ok(None);
    }
    let at_workspace = |mount: &&Mount| mount.guest() == Path::new("/workspace");
    if let Some(mount) = args.mount.iter().find(at_workspace) {
        return Err(Failure::usage(
            format!("`{mount}` would hide the workspace"),
            "give the mount another path inside, or leave the workspace out",
        )
        .into());
    }
    let scope = args.user.clone().unwrap_or_else(Scope::local);
    let workspaces = kernel::workspaces(args.workspace.as_deref(), context)?;
    let root = workspaces.of(&scope, None).map_err(ToolError::from);
    let root = root.map_err(Failure::from)?;
    Ok(root.map(|root| root.path().to_path_buf()))
}

/// Resolves a workspace to its absolute path without links.
///
/// # Errors
/// If it does not exist, or mounting it would expose what must stay hidden.
pub(crate) fn workspace(path: &Path, context: &Context) -> Result<PathBuf, Failure> {
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

fn output_dir(args: &RunArgs, context: &Context) -> anyhow::Result<Option<PathBuf>> {
    let Some(dir) = &args.output else { return Ok(None) };
    let found = mount_guard::resolve_new(&std::path::absolute(dir)?)?;
    check_shown(&found.path, context)?;
    trust::check_links(&found, context)?;
    Ok(Some(found.path))
}

/// Creates the output directory. A program whose files would be lost is not run.
fn make_output_dir(dir: &Path, request: &Request, config: &Config) -> Result<(), Failure> {
    let protected = &config.permissions.filesystem.protected;
    check_output_directory(dir, protected, &request.trusted).map_err(|error| {
        Failure::usage(
            format!("cannot use the output directory {}: {error}", dir.display()),
            "name a directory that you may write, or one that can be made",
        )
    })
}

/// Rejects the bare name of a program that is not on the PATH.
fn check_on_path(program: &Path, context: &Context) -> Result<(), Failure> {
    let path = context.environment.get("PATH");
    let found = !ringfence_exec::interpreter::named(program, path).paths.is_empty();
    match program.is_absolute() || found {
        true => Ok(()),
        false => Err(Failure::usage(
            format!(
                "`--python`: expected a program, found none called `{}` on the PATH",
                program.display()
            ),
            "name an existing interpreter, such as /usr/bin/python3 or a venv's bin/python",
        )),
    }
}

fn absolute_unless_bare(path: &Path) -> Result<PathBuf, Failure> {
    if is_bare(path) {
        return Ok(path.to_path_buf());
    }
    std::path::absolute(path).map_err(|error| {
        Failure::usage(
            format!("{}: {error}", path.display()),
            "give the interpreter's path",
        )
    })
}

#[cfg(test)]
mod tests;
