//! One request in a container that waited for it.

use std::time::SystemTime;

use ringfence_jail::agent::frames::{Program, Start};
use ringfence_policy::{EnvName, ExecutionResult, Network, Outcome, Request};
use tokio::sync::watch;

use super::Ready;
use crate::container::agent::{Finished, NotRun, start};
use crate::container::manager::Manager;
use crate::container::places::with;
use crate::container::state::Failure;
use crate::container::{Life, RunError, oneshot};
use crate::egress::Outlet;
use crate::local::{Connection, Destination, taken_back, told};
use crate::output;

/// Runs a request there. The container ends with it, and one that waited is removed behind its back.
pub(in crate::container) async fn serve(
    ready: Ready,
    manager: &Manager,
    request: &Request,
    destination: Option<&Destination>,
    connection: Connection,
) -> Result<ExecutionResult, RunError> {
    let since = SystemTime::now();
    let outlet = match &request.network {
        Network::None => None,
        Network::Allowlist(policy) => Some(Outlet::new(policy, &ready.egress)),
    };
    let ran = attend(&ready, request, connection, outlet.as_ref()).await;
    // Nothing of the call is left in the container, which does nothing but wait for its end.
    ready.warm.agent().release();
    let is_late = since.elapsed().unwrap_or_default() >= request.limits.timeout.as_duration();
    let is_known = matches!(&ran, Ok((finished, _)) if finished.outcome != Outcome::Unknown);
    let life = match ready.fresh || !is_known {
        true => Some(ready.warm.sandbox().ended_or_lost().await),
        false => None,
    };
    let (finished, disk_full) = ran?;
    let taken = ready.places.harvest(since, destination, request.limits.disk.0);
    let end = match (finished.outcome, disk_full) {
        (Outcome::Cancelled, true) => (Outcome::Signalled, -9),
        (Outcome::Unknown, _) => {
            together(life.as_ref(), is_late).unwrap_or((Outcome::Unknown, finished.exit_code))
        }
        (outcome, _) => (outcome, finished.exit_code),
    };
    let runtime = manager.engine().flavor().runtime();
    let mut result = told((runtime, request), (finished.stdout, finished.stderr), end);
    if disk_full && let Some(why) = ready.places.overfilled(request.limits.disk) {
        output::add(&mut result.stderr, &why);
    }
    let meta = &mut result.meta;
    meta.isolation = ready.isolation.clone();
    meta.resource_limits = manager.info().held(meta.resource_limits);
    meta.warm = !ready.fresh;
    meta.egress = outlet.map(|outlet| outlet.facts());
    meta.peak_memory_bytes = finished.peak_memory_bytes;
    meta.cpu_seconds = finished.cpu_seconds;
    meta.output_files = taken.files;
    meta.warnings.extend(manager.info().warning());
    meta.warnings.extend(finished.warning);
    meta.warnings.extend(taken.warnings);
    meta.warnings
        .extend(life.into_iter().flat_map(|life| life.problems));
    Ok(result)
}

/// How a program ended whose agent went along with it, if that can be told.
fn together(life: Option<&Life>, is_late: bool) -> Option<(Outcome, i32)> {
    let killed = life.is_some_and(|life| life.exit_code == Some(oneshot::KILLED));
    match life.and_then(|life| life.state.failure()) {
        Some(Failure::OutOfMemory) => Some((Outcome::MemoryExceeded, -9)),
        // The engine does not answer any more, or not in time.
        _ if is_late => Some((Outcome::TimedOut, -1)),
        _ if killed => Some((Outcome::Signalled, -9)),
        _ => None,
    }
}

/// Waits for the end of a call, and ends it where its caller takes it back or its files are too many; whether they were.
async fn attend(
    ready: &Ready,
    request: &Request,
    connection: Connection,
    outlet: Option<&Outlet>,
) -> Result<(Finished, bool), RunError> {
    let call = call(ready, request, &connection)?;
    let (end, ended) = watch::channel(false);
    let Connection {
        stdin,
        output,
        cancelled,
        bridge,
    } = connection;
    let connection = Connection {
        stdin,
        output,
        cancelled: Some(ended),
        bridge,
    };
    let running = ready
        .warm
        .agent()
        .run_through(call, request.limits.max_output, connection, outlet);
    let full = ready.places.overfull(request.limits.disk.0);
    tokio::pin!(running);
    let disk_full = tokio::select! {
        biased;
        finished = &mut running => return Ok((finished?, false)),
        () = taken_back(cancelled) => false,
        () = full => true,
    };
    end.send_replace(true);
    Ok((running.await?, disk_full))
}

/// What the agent starts. In a container that was made for the request that is what the container would have started by
/// itself, the program's text in a file; but a program has its bridge from the agent's own Python.
fn call(ready: &Ready, request: &Request, connection: &Connection) -> Result<Start, RunError> {
    let stdin = connection.stdin.is_some();
    let environment = words(with(ready.environment.clone(), &request.env));
    if !ready.fresh || connection.bridge.is_some() {
        let directory = ready.places.directory(request)?;
        let call = start(request, &directory, stdin).map_err(|_| NotRun::TooLong)?;
        return Ok(Start { environment, ..call });
    }
    let program = ready.places.program(request, stdin)?;
    let mut command = program.command.into_iter();
    Ok(Start {
        program: Program::Command(command.next().ok_or(RunError::NoProgram)?),
        arguments: command.collect(),
        environment,
        directory: program.directory,
        input: stdin,
        timeout: request.limits.timeout.as_duration(),
        proxy: Vec::new(),
        bridge: false,
    })
}

fn words(environment: Vec<(EnvName, String)>) -> Vec<(String, String)> {
    let pair = |(name, value): (EnvName, String)| (name.as_str().to_owned(), value);
    environment.into_iter().map(pair).collect()
}
