//! Runs one call in a reused container, up to its result.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringfence_exec::local::{Connection, ProgramEnd, Usage, disk_limit_exceeded, execution_result, soon};
use ringfence_exec::output;
use ringfence_exec::supervise::{Interruption, RunLimits, cancellation};
use ringfence_jail::init::frames::{Ready, Start};
use ringfence_network::egress::Outlet;
use ringfence_policy::{Bytes, ExecutionResult, Language, Network, Outcome, OutputFile, Request};
use tokio::time::Instant;

use super::exec;
use super::place::{ReusedContainer, Runs};
use crate::error::Error;
use crate::guest_paths::WORKSPACE;
use crate::init::{self, Finished, InitLost, NotRun};
use crate::run_error::RunError;
use crate::warm::without_bridge;
use crate::{exchange, layout, outputs};

/// Lower bound for a call's remaining time, however late it is.
const LEAST: Duration = Duration::from_millis(1);
/// Maximum length of a bash script: it is passed as an argument, whose length the kernel limits
/// (MAX_ARG_STRLEN).
const MAX_SCRIPT: usize = 128 * 1024 - 1;

/// A call, with the time that is left for it.
#[derive(Clone, Copy)]
struct Call<'a> {
    request: &'a Request,
    timeout: Duration,
    outlet: Option<&'a Outlet>,
}

/// Runs a request in a container. `late` is subtracted from its timeout.
pub(super) async fn serve(
    container: &ReusedContainer,
    request: &Request,
    late: Duration,
    connection: Connection,
) -> Result<ExecutionResult, RunError> {
    let since = SystemTime::now();
    let timeout = request.limits.timeout.as_duration().saturating_sub(late);
    let outlet = match &request.network {
        Network::None => None,
        Network::Allowlist(policy) => Some(Outlet::new(policy, &container.egress)),
    };
    let call = Call {
        request,
        timeout: timeout.max(LEAST),
        outlet: outlet.as_ref(),
    };
    let wants_bridge = connection.bridge.is_some();
    let mut warnings = container.give().await;
    let finished = container
        .handle()
        .metered(run(container, call, connection))
        .await?;
    let limit = request.limits.disk.0;
    let (files, told_of_files) = container.take(finished.output, since, limit).await;
    warnings.extend(told_of_files);
    if finished.outcome == Outcome::Unknown && finished.output.is_none() {
        warnings.push(exchange::LOST.to_owned());
    }
    let end = ProgramEnd {
        outcome: finished.outcome,
        exit_code: finished.exit_code,
        stdout: finished.stdout,
        stderr: finished.stderr,
    };
    let mut result = execution_result(container.engine.runtime(), request, end);
    if finished.interruption == Some(Interruption::DiskFull) {
        output::add(
            &mut result.stderr,
            &outputs::disk_limit_message(container.output.path(), request.limits.disk),
        );
    }
    let meta = &mut result.meta;
    meta.isolation = Some(container.isolation.clone());
    meta.egress = outlet.map(|outlet| outlet.facts());
    meta.peak_memory_bytes = finished.peak_memory_bytes;
    meta.cpu_seconds = finished.cpu_seconds;
    meta.resource_limits = container.info.held(meta.resource_limits);
    meta.warnings.extend(container.info.warning());
    meta.warnings
        .extend(container.handle().warnings().iter().cloned());
    meta.warnings.extend(finished.warning);
    meta.warnings.extend(container.closed.clone());
    if let Runs::Exec(_, why) = &container.runs {
        // Directories of the host are measured, and a program may be faster.
        meta.resource_limits.disk_bytes = None;
        meta.warnings.push(format!(
            "the container engine starts each program anew, which is slow, and no disk limit holds for /output and /workspace, \
             for the init does not run in this image: {why}"
        ));
        meta.warnings.extend(wants_bridge.then(|| without_bridge(why)));
    }
    meta.output_files = files;
    meta.warnings.extend(warnings);
    Ok(result)
}

/// Resolves when the container's host directories exceed a call's disk limit.
async fn disk_full(container: &ReusedContainer, limit: Bytes) {
    let output = bounded(Some(container.output.path()), limit).await;
    let workspace = bounded(container.own.as_deref(), limit).await;
    tokio::select! {
        () = fill(output) => {}
        () = fill(workspace) => {}
    }
}

/// Resolves when a host directory exceeds the call's disk limit.
async fn fill(directory: Option<(PathBuf, Usage)>) {
    match directory {
        Some((directory, most)) => disk_limit_exceeded(directory, most, soon).await,
        None => std::future::pending().await,
    }
}

/// Pairs a directory with its limit; content present before the call is allowed.
async fn bounded(directory: Option<&Path>, limit: Bytes) -> Option<(PathBuf, Usage)> {
    let directory = directory?;
    Some((directory.to_path_buf(), Usage::growing(directory, limit.0).await))
}

impl ReusedContainer {
    /// Copies new files of the host into the container's `/output`.
    async fn give(&self) -> Vec<String> {
        match &self.runs {
            Runs::Init(warm) => self.exchange.give(warm.init()).await,
            Runs::Exec(..) => Vec::new(),
        }
    }

    /// Copies new files of `/output`, which has this fingerprint, to the host. Returns the files written
    /// since, and warnings for the caller.
    async fn take(
        &self,
        state: Option<u64>,
        since: SystemTime,
        limit: u64,
    ) -> (Vec<OutputFile>, Vec<String>) {
        match (&self.runs, state) {
            (Runs::Init(warm), Some(state)) => {
                let taken = self.exchange.take(warm.init(), state, since).await;
                (taken.files, taken.warnings)
            }
            (Runs::Init(_), None) => Default::default(),
            (Runs::Exec(..), _) => {
                let left = outputs::left(self.output.path(), since, limit);
                (left.files, left.warnings)
            }
        }
    }
}

async fn run(
    container: &ReusedContainer,
    call: Call<'_>,
    connection: Connection,
) -> Result<Finished, RunError> {
    let Call {
        request,
        timeout,
        outlet,
    } = call;
    match &container.runs {
        Runs::Init(warm) => {
            has_program(warm.init().ready(), request.language, &container.image)?;
            let input = connection.stdin.is_some();
            let start = start(container, request, timeout, input)?;
            let keep = request.limits.max_output;
            let running = warm.init().run_through(start, keep, connection, outlet);
            Ok(running.await?)
        }
        Runs::Exec(handle, _) => {
            let limits = RunLimits {
                deadline: Instant::now() + timeout,
                cancellation: cancellation(connection.cancelled),
                disk_limit_exceeded: disk_full(container, request.limits.disk),
            };
            match exec::run(handle, request, limits.reached()).await {
                Err(RunError::Engine(Error::Closing)) => Err(NotRun::InitLost(InitLost::Gone).into()),
                ran => ran,
            }
        }
    }
}

fn start(
    container: &ReusedContainer,
    request: &Request,
    timeout: Duration,
    input: bool,
) -> Result<Start, RunError> {
    if request.language == Language::Bash && request.code.len() > MAX_SCRIPT {
        return Err(NotRun::TooLong.into());
    }
    let start = init::start(request, WORKSPACE, input);
    let start = start.map_err(|_| RunError::LocalOnly("a program in this language"))?;
    let environment = layout::with(container.environment.clone(), &request.env).into_iter();
    Ok(Start {
        environment: environment
            .map(|(name, value)| (name.as_str().to_owned(), value))
            .collect(),
        timeout,
        ..start
    })
}

fn has_program(ready: &Ready, language: Language, image: &str) -> Result<(), RunError> {
    let (found, program) = match language {
        Language::Python => (&ready.python, "python3"),
        Language::Bash => (&ready.bash, "bash"),
        Language::Javascript | Language::Command => return Ok(()),
    };
    if found.is_some() {
        return Ok(());
    }
    Err(RunError::ProgramMissing {
        image: image.to_owned(),
        program,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_image_lacks_is_named() {
        let ready = Ready {
            version: 1,
            python: None,
            bash: Some("/bin/bash".to_owned()),
            mount_points: Vec::new(),
        };
        has_program(&ready, Language::Bash, "small:1").unwrap();
        let missing = has_program(&ready, Language::Python, "small:1").unwrap_err();
        assert_eq!(missing.to_string(), "there is no python3 in the image small:1");
    }
}
