//! `ringfence run`: runs one program.

mod packages;
mod printing;
mod report;

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ringfence_exec::backend::Error;
use ringfence_exec::local::{Chunk, Connection, Fence, Warmth};
use ringfence_exec::runner::{Hooks, Rules, Runner};
use ringfence_policy::{Cpus, ExecutionResult};
use ringfence_server::server_or_local::ServerOrLocal;
use ringfence_tools::skills::{Gatekeeper, Skills};
use ringfence_tools::toolbox::{Caller, Surface};
use tokio::sync::{mpsc, watch};

use crate::backend::{self, Prepared};
use crate::context::Context;
use crate::plan::{self, Engine, RunPlan, StdinSource};
use crate::skills::{self, Person, SkillCalls, attended};
use printing::{Printer, Unprinted};
use ringfence::{AuditedRuns, Failure, InProcess, local};
use ringfence_args::RunArgs;
use ringfence_gateway_protocol::interrupted;

/// Capacity of the queues of output and input chunks.
const IN_FLIGHT: usize = 16;

pub(crate) fn run(args: &RunArgs, prepared: Prepared, context: &Context) -> anyhow::Result<ExitCode> {
    let mut plan = plan::plan(args, context)?;
    announce(&plan, context)?;
    let rules = Rules {
        log: Some(Arc::new(AuditedRuns::new(Surface::CommandLine, context)?)),
        ..local::rules(&plan.settings, context)?
    };
    let socket = match plan.engine {
        Engine::Use => context.paths.socket_if_ours(),
        Engine::Avoid => None,
    };
    let settings = local::settings(&plan.settings, Warmth::Cold, context)?;
    let backend = Arc::new(backend::server_or_local(socket, settings, prepared, context)?);
    let runner = Runner::new(backend.clone(), rules);
    let (bridge, person) = Bridge::of(&plan, context)?.unzip();
    let (output, printer) = Printer::of(plan.report).unzip();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let packages = runtime.block_on(packages::provide(&mut plan, backend.clone(), context));
    let packages = match packages {
        Ok(packages) => packages,
        Err(error) => {
            runtime.block_on(close(&backend, bridge));
            runtime.shutdown_background();
            return Err(error.into());
        }
    };
    let describe = |result: &mut ExecutionResult| {
        if let Some(checkout) = &packages {
            checkout.describe(result);
        }
    };
    let (result, unprinted) = runtime.block_on(async {
        let gatekeeper = bridge.as_ref().map(Bridge::gatekeeper);
        let hooks = Hooks {
            bridge: gatekeeper.as_ref().map(|gatekeeper| gatekeeper as _),
            complete: Some(&describe),
        };
        let running = async |connection| runner.run(&plan.spec, hooks, connection).await;
        let supervised = attended(person, context.ui, supervise(&plan, output, running));
        Printer::print_during(printer, supervised).await
    });
    runtime.block_on(close(&backend, bridge));
    // A thread may still block on input that never comes.
    runtime.shutdown_background();
    // Output comes before an error, too.
    let printing = printed(unprinted);
    let mut result = result.map_err(Failure::from)?;
    printing?;
    complete_warnings(&mut result, args, context)?;
    let requested = report::Requested {
        limits: args.memory.is_some() || args.cpus.is_some(),
        output: plan.spec.output_directory.is_some(),
        unused_environment: args.python.is_none() && Path::new(report::ENVIRONMENT).exists(),
    };
    report::finish(&result, plan.report, requested, context.ui)
}

/// Ends the processes of this command.
async fn close(backend: &ServerOrLocal<InProcess>, bridge: Option<Bridge>) {
    backend.own().close().await;
    if let Some(bridge) = bridge {
        bridge.skills.close().await;
    }
}

/// Prints the warnings that must be seen before the program runs.
fn announce(plan: &RunPlan, context: &Context) -> anyhow::Result<()> {
    if plan.spec.fence == Fence::Unfenced {
        context
            .ui
            .warn("running unfenced: the program can do everything that you can do");
    }
    Ok(context.tell_passed_over()?)
}

/// The skills bridge of a run.
struct Bridge {
    skills: Skills,
    keeper: SkillCalls,
    caller: Caller,
}

impl Bridge {
    /// Returns the bridge with the receiver of its prompts; `None` if the run calls no skills.
    fn of(plan: &RunPlan, context: &Context) -> anyhow::Result<Option<(Self, Person)>> {
        if plan.skills.is_none() && !plan.servers {
            return Ok(None);
        }
        let skills = ringfence::skills::skills(plan.skills.as_deref(), plan.servers, context)?;
        let skills = skills.ok_or_else(|| {
            Failure::usage(
                "no MCP servers are configured",
                "name them in `skills.servers` of your own configuration",
            )
        })?;
        let (keeper, person) = SkillCalls::new(context)?;
        let caller = Caller {
            scope: plan.spec.request.scope.clone(),
            session: None,
            surface: Surface::CommandLine,
            client: None,
        };
        let bridge = Self {
            skills,
            keeper,
            caller,
        };
        Ok(Some((bridge, person)))
    }

    fn gatekeeper(&self) -> Gatekeeper<'_> {
        Gatekeeper::new(&self.skills, self.keeper.visitor(&self.caller))
    }
}

/// Calls `run` with a connection to our own streams.
async fn supervise(
    plan: &RunPlan,
    output: Option<mpsc::Sender<Chunk>>,
    run: impl AsyncFnOnce(Connection) -> Result<ExecutionResult, Error>,
) -> Result<ExecutionResult, Error> {
    let (cancel, cancelled) = watch::channel(false);
    let watched = output.clone();
    let connection = Connection {
        stdin: stdin_of(&plan.stdin),
        output,
        cancelled: Some(cancelled),
        bridge: None,
    };
    let running = run(connection);
    tokio::pin!(running);
    tokio::select! {
        result = &mut running => result,
        () = given_up(watched) => {
            cancel.send_replace(true);
            running.await
        }
    }
}

/// Adds warnings about the command line's options to a result.
fn complete_warnings(result: &mut ExecutionResult, args: &RunArgs, context: &Context) -> anyhow::Result<()> {
    if let Some(directory) = args.skills.as_deref() {
        for warning in &mut result.meta.warnings {
            *warning = skills::explained(warning, Some(directory), context)?;
        }
    }
    let limits = limits_of_session(args, result);
    result.meta.warnings.extend(limits);
    Ok(())
}

/// Waits until the output is printed.
///
/// # Errors
/// If it could not be printed.
fn printed(unprinted: Option<Unprinted>) -> anyhow::Result<()> {
    let Some(Err(error)) = unprinted.map(Unprinted::finish) else {
        return Ok(());
    };
    Err(match error.kind() {
        // `exit::report` handles it quietly.
        io::ErrorKind::BrokenPipe => error.into(),
        _ => Failure::refused(
            format!("cannot write the program's output: {error}; the program was killed"),
            "make room where the output goes, or send it elsewhere",
        )
        .into(),
    })
}

/// Returns a warning about limits that a session had before this run asked for others.
fn limits_of_session(args: &RunArgs, result: &ExecutionResult) -> Option<String> {
    let id = args.session.as_ref()?;
    let held = &result.meta.resource_limits;
    let differs = |asked: Option<u64>, held: Option<u64>| {
        asked.is_some_and(|asked| held.is_some_and(|held| held != asked))
    };
    let cpus = (args.cpus.map(Cpus::get), held.cpus);
    let ignored: Vec<&str> = [
        (
            "--memory",
            differs(args.memory.map(|memory| memory.0), held.memory_bytes),
        ),
        (
            "--cpus",
            matches!(cpus, (Some(asked), Some(held)) if asked != held),
        ),
        (
            "--pids",
            differs(args.pids.map(|pids| pids.get().into()), held.pids.map(u64::from)),
        ),
        ("--disk", differs(args.disk.map(|disk| disk.0), held.disk_bytes)),
    ]
    .into_iter()
    .filter_map(|(option, differs)| differs.then_some(option))
    .collect();
    (!ignored.is_empty()).then(|| {
        format!(
            "the session `{id}` keeps the limits that it was created with: {} had no effect; `meta.resource_limits` has those in \
             force",
            ignored.join(" and ")
        )
    })
}

/// Resolves when the run is cancelled: by a signal, or because the reader of our output has closed the pipe,
/// as `head` does.
async fn given_up(output: Option<mpsc::Sender<Chunk>>) {
    let reader_gone = async {
        match output {
            Some(output) => output.closed().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = interrupted() => {}
        () = reader_gone => {}
    }
}

/// Reads standard input in a thread of its own: reading a terminal or a pipe may block for ever.
fn stdin_of(source: &StdinSource) -> Option<mpsc::Receiver<Vec<u8>>> {
    let mut reader: Box<dyn Read + Send> = match source {
        StdinSource::Empty => return None,
        StdinSource::Inherit => Box::new(std::io::stdin()),
        StdinSource::File(file) => Box::new(Arc::clone(file)),
    };
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            if sender.blocking_send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    Some(receiver)
}
