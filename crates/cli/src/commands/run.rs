//! `ringfence run`: runs one program.

mod report;

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;

use ringfence_policy::{ExecutionResult, RuntimeKind};
use ringfence_runtime::backend::{Backend, Error, InContainers as _};
use ringfence_runtime::container::Flavor;
use ringfence_runtime::execute::{Order, execute};
use ringfence_runtime::kernel::{Caller, Surface, place};
use ringfence_runtime::local::{Chunk, Connection, Warmth};
use ringfence_runtime::skills::{Gatekeeper, Skills, bridged};
use tokio::sync::{mpsc, watch};

use crate::args::RunArgs;
use crate::backend::{Nearby, NearbyContainers, NearbyPyodide, Spare};
use crate::container;
use crate::context::Context;
use crate::exit::Failure;
use crate::high::{self, Engine, Report, RunPlan, StdinSource};
use crate::skills::{self, Keeper, Person, attended};
use crate::{local, pyodide};

/// Capacity of the queues of output and input chunks.
const IN_FLIGHT: usize = 16;

pub(crate) fn run(args: &RunArgs, spare: Spare, context: &Context) -> anyhow::Result<ExitCode> {
    let plan = high::plan(args, context)?;
    if plan.fence == high::Fence::Unfenced {
        context
            .ui
            .warn("running unfenced: the program can do everything that you can do");
    }
    if Flavor::of(plan.runtime).is_some() || plan.runtime == RuntimeKind::Pyodide {
        context.tell_passed_over()?;
    }
    let rules = local::rules(&plan.settings, context);
    let socket = match plan.engine {
        Engine::Use => context.paths.socket_if_ours(),
        Engine::Avoid => None,
    };
    let containers = NearbyContainers {
        socket: socket.clone(),
        own: container::containers(context)?,
    };
    let pyodide = Arc::new(NearbyPyodide {
        socket: socket.clone(),
        own: pyodide::once(context)?,
    });
    let backend = Arc::new(Nearby {
        socket,
        settings: local::settings(&plan.settings, Warmth::Cold, context)?,
        spare,
    });
    let in_pyodide = pyodide::or_local(pyodide.clone(), backend.clone(), context)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let fallback = context.config()?.sandbox.docker.fallback.into();
    let (place, instead) = runtime.block_on(place(plan.runtime, fallback, &containers));
    let order = Order {
        request: plan.request.clone(),
        runtime: place,
        fence: plan.fence.into(),
        output_directory: plan.output_dir.clone(),
    };
    let (bridge, person) = Bridge::of(&plan, context)?.unzip();
    let places = (&*backend, &containers, &*in_pyodide);
    let executing = execute(&rules, &order, async |order: &Order| {
        let running = async |connection| run_at(order, places, connection).await;
        match &bridge {
            Some(bridge) => {
                let gatekeeper = Gatekeeper::new(&bridge.skills, bridge.keeper.visitor(&bridge.caller));
                let running = async |connection| bridged(&gatekeeper, connection, running).await;
                attend(&plan, running).await
            }
            None => attend(&plan, running).await,
        }
    });
    let result = runtime.block_on(attended(person, context.ui, executing));
    runtime.block_on(async {
        containers.own.close().await;
        drop(in_pyodide);
        if let Some(pyodide) = Arc::into_inner(pyodide) {
            pyodide::end(pyodide.own).await;
        }
        if let Some(bridge) = bridge {
            bridge.skills.close().await;
        }
    });
    // A thread may still block on input that never comes.
    runtime.shutdown_background();
    let mut result = result.map_err(Failure::from)?;
    result.meta.warnings.extend(instead);
    let claims_limits = args.memory.is_some() || args.cpus.is_some();
    let delivered = plan.output_dir.is_some();
    report::finish(&result, plan.report, (delivered, claims_limits), context.ui)
}

/// The skills bridge of a run.
struct Bridge {
    skills: Skills,
    keeper: Keeper,
    caller: Caller,
}

impl Bridge {
    /// Returns the bridge with the receiver of its prompts; `None` if the run calls no skills.
    fn of(plan: &RunPlan, context: &Context) -> anyhow::Result<Option<(Self, Person)>> {
        if plan.skills.is_none() && !plan.servers {
            return Ok(None);
        }
        let skills = skills::skills(plan.skills.as_deref(), plan.servers, context)?;
        let skills = skills.ok_or_else(|| {
            Failure::usage(
                "there are no servers",
                "name them in `skills.servers` of your own configuration",
            )
        })?;
        let (keeper, person) = Keeper::new(context)?;
        let caller = Caller {
            scope: plan.request.scope.clone(),
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
}

/// Runs the order on its runtime.
async fn run_at(
    order: &Order,
    (nearby, containers, pyodide): (&Nearby, &NearbyContainers, &dyn Backend),
    connection: Connection,
) -> Result<ExecutionResult, Error> {
    let output_directory = order.output_directory.clone();
    let (request, fence) = (&order.request, order.fence);
    let backend: &dyn Backend = match (order.runtime, Flavor::of(order.runtime)) {
        (_, Some(flavor)) => {
            let order = (request, fence);
            return containers
                .run_in(flavor, order, output_directory, connection)
                .await;
        }
        (RuntimeKind::Pyodide, None) => pyodide,
        _ => nearby,
    };
    backend.run(request, fence, output_directory, connection).await
}

/// Calls `run` with a connection to our own streams.
async fn attend(
    plan: &RunPlan,
    run: impl AsyncFnOnce(Connection) -> Result<ExecutionResult, Error>,
) -> Result<ExecutionResult, Error> {
    let (cancel, cancelled) = watch::channel(false);
    let (output, printer) = match plan.report {
        Report::Json => (None, None),
        Report::Stream => piped(report::print_chunks),
        Report::JsonLines => piped(report::print_events),
    };
    let watched = output.clone();
    let connection = Connection {
        stdin: stdin_of(&plan.stdin),
        output,
        cancelled: Some(cancelled),
        bridge: None,
    };
    let running = run(connection);
    tokio::pin!(running);
    let result = tokio::select! {
        result = &mut running => result,
        () = given_up(watched) => {
            cancel.send_replace(true);
            running.await
        }
    };
    if let Some(printer) = printer {
        // It ends with the last chunk; if it could not print, its reader was gone.
        let _ = printer.join();
    }
    result
}

/// Returns a channel for output, and the thread that prints it.
fn piped(print: fn(mpsc::Receiver<Chunk>)) -> (Option<mpsc::Sender<Chunk>>, Option<JoinHandle<()>>) {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    (Some(sender), Some(std::thread::spawn(move || print(receiver))))
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

/// Resolves on SIGINT, SIGTERM or SIGHUP.
pub(crate) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut hang_up)) =
        (signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
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
