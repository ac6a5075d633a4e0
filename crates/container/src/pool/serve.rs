//! Runs one request in an idle container.

use std::time::SystemTime;

use ringfence_exec::local::{Connection, Destination, ProgramEnd, execution_result};
use ringfence_exec::supervise::{KILLED, from_shell};
use ringfence_jail::init::frames::{Program, Start};
use ringfence_network::egress::Outlet;
use ringfence_policy::{Access, EnvName, ExecutionResult, Network, Outcome, Request};

use super::ready::Ready;
use crate::exchange;
use crate::init::{Finished, NotRun, start};
use crate::layout::with;
use crate::run_error::RunError;
use crate::state::Failure;
use crate::supervisor::ContainerSupervisor;
use crate::task::Life;

/// Runs a request, then ends the container. The removal of a pooled one is not awaited.
pub(crate) async fn serve(
    ready: Ready,
    supervisor: &ContainerSupervisor,
    request: &Request,
    destination: Option<&Destination>,
    connection: Connection,
) -> Result<ExecutionResult, RunError> {
    let since = SystemTime::now();
    let outlet = match &request.network {
        Network::None => None,
        Network::Allowlist(policy) => Some(Outlet::new(policy, &ready.egress)),
    };
    let mut warnings = ready.supply(request).await;
    let running = run(&ready, request, connection, outlet.as_ref());
    let ran = ready.warm.container().metered(running).await;
    let state = ran.as_ref().ok().and_then(|finished| finished.output);
    let taken = match state {
        Some(state) => Some(ready.exchange.take(ready.warm.init(), state, since).await),
        None => None,
    };
    // No process of the call is left: the container only waits for its own end.
    ready.warm.init().release();
    let is_late = since.elapsed().unwrap_or_default() >= request.limits.timeout.as_duration();
    let is_known = matches!(&ran, Ok(finished) if finished.outcome != Outcome::Unknown);
    let life = match ready.fresh || !is_known {
        true => Some(ready.warm.container().ended_or_lost().await),
        false => None,
    };
    let finished = ran?;
    let (files, incomplete) = match taken {
        None => {
            let lost = finished.outcome == Outcome::Unknown;
            warnings.extend(lost.then(|| exchange::LOST.to_owned()));
            (Vec::new(), lost)
        }
        Some(taken) => {
            warnings.extend(taken.warnings);
            if ready.places.is_kept() {
                (taken.files, taken.incomplete)
            } else {
                let limit = request.limits.disk.0;
                let collected = ready.places.collect_output(since, destination, limit);
                warnings.extend(collected.warnings);
                (collected.files, taken.incomplete || collected.incomplete)
            }
        }
    };
    let lost = finished.outcome == Outcome::Unknown;
    let together = lost.then(|| together(life.as_ref(), is_late)).flatten();
    let (outcome, exit_code) = together.unwrap_or((finished.outcome, finished.exit_code));
    let runtime = supervisor.engine().kind().runtime();
    let end = ProgramEnd {
        outcome,
        exit_code,
        stdout: finished.stdout,
        stderr: finished.stderr,
    };
    let mut result = execution_result(runtime, request, end);
    let meta = &mut result.meta;
    meta.isolation = Some(ready.isolation.clone());
    meta.resource_limits = supervisor.info().held(meta.resource_limits);
    meta.warm = !ready.fresh;
    meta.egress = outlet.map(|outlet| outlet.facts());
    meta.peak_memory_bytes = finished.peak_memory_bytes;
    meta.cpu_seconds = finished.cpu_seconds;
    meta.output_files = files;
    meta.output_incomplete = incomplete;
    meta.warnings.extend(supervisor.info().warning());
    meta.warnings
        .extend(ready.warm.container().warnings().iter().cloned());
    meta.warnings.extend(finished.warning);
    meta.warnings.extend(warnings);
    meta.warnings
        .extend(life.into_iter().flat_map(|life| life.problems));
    Ok(result)
}

/// Classifies the end of a program together with its init, if possible.
fn together(life: Option<&Life>, is_late: bool) -> Option<(Outcome, i32)> {
    let killed = life.is_some_and(|life| life.exit_code.map(from_shell) == Some(KILLED));
    if life.and_then(|life| life.state.failure()) == Some(Failure::OutOfMemory) {
        return Some((Outcome::MemoryExceeded, -9));
    }
    match is_late {
        // The engine stopped responding, or was too slow.
        true => Some((Outcome::TimedOut, -1)),
        false => killed.then_some((Outcome::Signalled, -9)),
    }
}

/// Runs a call to completion.
async fn run(
    ready: &Ready,
    request: &Request,
    connection: Connection,
    outlet: Option<&Outlet>,
) -> Result<Finished, RunError> {
    let call = call(ready, request, &connection)?;
    let init = ready.warm.init();
    Ok(init
        .run_through(call, request.limits.max_output, connection, outlet)
        .await?)
}

impl Ready {
    /// Copies the request's copy mounts, and files left by earlier runs, into the container.
    async fn supply(&self, request: &Request) -> Vec<String> {
        let init = self.warm.init();
        let mut warnings = Vec::new();
        for mount in request.mounts.iter().filter(|mount| mount.access == Access::Copy) {
            warnings.extend(exchange::supply(init, &mount.host, mount.guest()).await);
        }
        if self.places.is_kept() {
            warnings.extend(self.exchange.give(init).await);
        }
        warnings
    }
}

/// Returns the start frame of a call. In a container created for the request, that is the command the
/// container would run without our init, with the code in a file; but a bridge requires the init's own
/// Python.
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
    let first = Program::Command(command.next().ok_or(RunError::NoProgram)?);
    Ok(Start {
        arguments: command.collect(),
        environment,
        input: stdin,
        ..Start::new(first, program.directory, request.limits.timeout.as_duration())
    })
}

fn words(environment: Vec<(EnvName, String)>) -> Vec<(String, String)> {
    let pair = |(name, value): (EnvName, String)| (name.as_str().to_owned(), value);
    environment.into_iter().map(pair).collect()
}
