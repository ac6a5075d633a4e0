//! Resolves arguments and configuration into a plan of a run.

mod egress;
mod options;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use ringfence::packages::Requirement;
use ringfence::settings::{self, Settings};
use ringfence::{Failure, LimitChoices, Request, images, resolve, trust};
use ringfence_exec::local::Fence;
use ringfence_exec::runner::RunSpec;
use ringfence_exec::trust::NamedPaths;
use ringfence_images::Lease;
use ringfence_policy::Scope;

use crate::context::Context;
use ringfence::source::{self, Program, Source};
use ringfence_args::{IsolationArg, RunArgs};

/// A run, fully resolved.
#[derive(Debug)]
pub(crate) struct RunPlan {
    pub(crate) spec: RunSpec,
    /// Standard input of the program.
    pub(crate) stdin: StdinSource,
    /// Use of a running server.
    pub(crate) engine: Engine,
    /// The output format.
    pub(crate) report: Report,
    /// The directory of skills that the program may call.
    pub(crate) skills: Option<PathBuf>,
    /// Set if the program may call the tools of MCP servers.
    pub(crate) servers: bool,
    /// Packages that the program needs.
    pub(crate) packages: Vec<Requirement>,
    /// Settings of the local runtime beside the request.
    pub(crate) settings: Settings,
    /// Keeps the image of the run from being removed.
    _image: Option<Lease>,
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
    // A mistake in the configuration comes first.
    context.config()?;
    let source = Source::of(args.code.as_deref(), args.file.as_deref()).ok_or_else(|| {
        Failure::usage(
            "nothing to run",
            "give a file, or a program with -c, as in `ringfence run -c 'print(1)'`",
        )
    })?;
    let named = context.named_paths();
    let stdin = stdin(args, &source, &named)?;
    let program = source.read(args.language, &named)?;
    let mut request = request(args, program);
    let packages = ringfence::packages::named(&args.with, request.language)?;
    options::check(args, request.language, resolve::runtime(&request, context)?)?;
    let image = args.image.as_ref();
    let image = image.map(|selector| images::lease(selector, request.language, context));
    let (lease, image) = image.transpose()?.unzip();
    request.image = image;
    egress::choose(&mut request, args, context)?;
    let configured = settings::settings(context)?;
    let python = args.python.as_deref();
    let python = python.map(|path| resolve::python("--python", path, context));
    let named = trust::Named {
        skills: args.skills.as_deref(),
        python: args.python.as_deref(),
    };
    // Last, so that a rejected plan leaves nothing behind.
    let spec = resolve::run_spec(&request, named, context)?;
    Ok(RunPlan {
        packages: ringfence::packages::all(packages, &spec, context)?,
        stdin,
        _image: lease,
        engine: if args.no_engine || request.image.is_some() {
            Engine::Avoid
        } else {
            Engine::Use
        },
        report: report(args),
        skills: args.skills.clone(),
        servers: args.servers,
        settings: Settings {
            python: python.transpose()?.or(configured.python),
            ..configured
        },
        spec,
    })
}

/// Returns the request that the options make, apart from its network.
fn request(args: &RunArgs, program: Program) -> Request {
    Request {
        name: program.name,
        args: args.args.clone(),
        env: args.env.clone(),
        runtime: args.runtime,
        limits: limits(args),
        mounts: args.mount.clone(),
        workspace: args.workspace.clone(),
        output_directory: args.output.clone(),
        fence: fence(args),
        scope: args.user.clone().unwrap_or_else(Scope::local),
        session: args.session.clone(),
        ..Request::new(program.language, program.code)
    }
}

fn limits(args: &RunArgs) -> LimitChoices {
    LimitChoices {
        timeout: args.timeout,
        max_output: args.max_output,
        memory: args.memory,
        cpus: args.cpus,
        pids: args.pids,
        disk: args.disk,
    }
}

fn report(args: &RunArgs) -> Report {
    match (args.json, args.json_stream) {
        (true, _) => Report::Json,
        (false, true) => Report::JsonLines,
        (false, false) => Report::Stream,
    }
}

fn fence(args: &RunArgs) -> Option<Fence> {
    match args.isolation {
        _ if args.unfenced => Some(Fence::Unfenced),
        Some(IsolationArg::Required) => Some(Fence::Required),
        Some(IsolationArg::BestEffort) => Some(Fence::BestEffort),
        None => None,
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

#[cfg(test)]
mod tests;
