//! Resolves arguments and configuration into a plan of what to run.

mod egress;
mod options;
mod source;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence::config::values::UserScope;
use ringfence::config::{Config, Problems};
use ringfence::parts::{interpreter, is_bare};
use ringfence::settings::{self, Settings, check_shown, default_fence, limits_on, passed_variables};
use ringfence::{Failure, kernel, mount_guard, trust};
use ringfence_exec::local::{Fence, check_output_directory};
use ringfence_exec::trust::NamedPaths;
use ringfence_policy::{EnvName, Limits, Mount, Request, RuntimeKind, Scope, Trusted};
use ringfence_tools::kernel::ToolError;

use crate::args::{IsolationArg, RunArgs};
use crate::context::Context;
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
    let configured = settings::settings(context)?;
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
        settings: Settings {
            python: python(args, context)?.or(configured.python),
            ..configured
        },
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

fn env(args: &RunArgs, context: &Context) -> Result<Vec<(EnvName, String)>, Problems> {
    let mut variables = passed_variables(context)?;
    for (name, value) in &args.env {
        variables.retain(|(known, _)| known != name);
        variables.push((name.clone(), value.clone()));
    }
    Ok(variables)
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

/// Returns the interpreter of `--python`.
fn python(args: &RunArgs, context: &Context) -> Result<Option<PathBuf>, Failure> {
    let Some(path) = &args.python else {
        return Ok(None);
    };
    let named = interpreter("--python", &absolute_unless_bare(path)?)?;
    check_on_path(&named, context)?;
    Ok(Some(named))
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
