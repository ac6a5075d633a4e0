//! Runs one request in a container of its own, from creation to removal.

use std::pin::Pin;
use std::time::{Duration, SystemTime};

use ringfence_exec::local::{Chunk, Connection, ProgramEnd, execution_result};
use ringfence_exec::output::{self, Captured, Captures};
use ringfence_exec::supervise::{
    DRAIN_TIMEOUT, Interruption, KILL_TIMEOUT, ProgramExit, RunLimits, cancellation, from_shell,
};
use ringfence_policy::{Bytes, EngineKind, ExecutionResult, Isolation, Language, NetworkMode, Request};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use super::error::Error;
use super::layout::{Belonging, Layout, Storage};
use super::outputs::Wanted;
use super::pool_key::PoolKey;
use super::run_error::RunError;
use super::settings::Settings;
use super::spec::{OciRuntime, Spec};
use super::streams::{Attached, Input, Logs};
use super::supervisor::{Container, ContainerSupervisor};
use super::task::{Life, NewContainer};

/// Time for creation and removal of a container, beside the program's timeout.
const ROOM: Duration = Duration::from_secs(120);
/// Captured output of a program.
#[derive(Debug, Default)]
struct CapturedOutput {
    stdout: Captured,
    stderr: Captured,
    /// The error that closed its streams before its end.
    broken: Option<String>,
}

/// Runs a request as the program of a fresh container, under the engine's init.
pub(super) async fn run(
    settings: &Settings,
    supervisor: &ContainerSupervisor,
    frame: &PoolKey,
    wanted: Wanted<'_>,
    mut connection: Connection,
) -> Result<ExecutionResult, RunError> {
    let Wanted { request, destination } = wanted;
    let since = SystemTime::now();
    let places = Layout::make(settings, frame)?;
    let program = places.program(request, connection.stdin.is_some())?;
    let ours = Belonging {
        owner: supervisor.owner(),
        storage: Storage::Host,
    };
    let spec = settings.with_hosts_files(places.spec(settings, frame, program, ours)?)?;
    let isolation = isolation(supervisor, &spec);
    let new_container = NewContainer {
        max_duration: request.limits.timeout.as_duration() + ROOM,
        attach: true,
        belongings: None,
        spec,
    };
    let most = places.most(request.limits.disk).await;
    let (container, attached) = supervisor.create(new_container).await?;
    let attached = attached.ok_or(Error::Closing)?;
    let limits = RunLimits {
        deadline: Instant::now() + request.limits.timeout.as_duration(),
        cancellation: cancellation(connection.cancelled.take()),
        disk_limit_exceeded: places.disk_limit_exceeded(most),
    };
    let keep = request.limits.max_output;
    let (heard, interruption) = supervise(&container, attached, keep, limits, connection).await;
    let life = container.ended_or_lost().await;
    let exit = exit(&life, interruption, heard.broken.is_some());
    let (outcome, exit_code) = exit.outcome();
    let taken = places.collect_output(since, destination, request.limits.disk.0);
    let runtime = supervisor.engine().kind().runtime();
    let end = ProgramEnd {
        outcome,
        exit_code,
        stdout: heard.stdout,
        stderr: heard.stderr,
    };
    let mut result = execution_result(runtime, request, end);
    if interruption == Some(Interruption::DiskFull) {
        output::add(
            &mut result.stderr,
            &places.disk_limit_message(request.limits.disk),
        );
    }
    result.meta.isolation = Some(isolation);
    result.meta.resource_limits = supervisor.info().held(result.meta.resource_limits);
    result.meta.warnings.extend(supervisor.info().warning());
    result.meta.warnings.extend(container.warnings().iter().cloned());
    result.meta.output_files = taken.files;
    result.meta.output_incomplete = taken.incomplete;
    result.meta.warnings.extend(heard.broken);
    result
        .meta
        .warnings
        .extend(perhaps_missing(settings, request, exit_code));
    result.meta.warnings.extend(taken.warnings);
    result.meta.warnings.extend(life.problems);
    Ok(result)
}

/// Reads output until the container ends; kills it on a limit or cancellation.
async fn supervise(
    container: &Container,
    attached: Attached,
    keep: Bytes,
    limits: RunLimits<impl Future<Output = ()>, impl Future<Output = ()>>,
    connection: Connection,
) -> (CapturedOutput, Option<Interruption>) {
    let Attached { output, input } = attached;
    let too_slow = Notify::new();
    let mut listening = std::pin::pin!(listen(output, keep, connection.output, &too_slow));
    let mut feeding = std::pin::pin!(feed(input, connection.stdin));
    let mut limit_reached = std::pin::pin!(limits.reached());
    let mut ended = std::pin::pin!(container.ended());
    let (mut fed, mut heard) = (false, None);
    // A program may close its streams long before it ends, and a failing engine cuts them off.
    let interruption = loop {
        tokio::select! {
            biased;
            _ = &mut ended => break None,
            reached = &mut limit_reached => break Some(reached),
            all = &mut listening, if heard.is_none() => heard = Some(all),
            () = &mut feeding, if !fed => fed = true,
        }
    };
    let killing = async {
        if interruption.is_some() {
            container.kill(KILL_TIMEOUT).await;
        }
    };
    let rest = async {
        match heard {
            Some(heard) => heard,
            None => drain(listening, &too_slow).await,
        }
    };
    let ((), heard) = tokio::join!(killing, rest);
    (heard, interruption)
}

/// Waits for output still in transit. A reader that has stopped loses the rest of the live output; a broken
/// engine, all of it.
async fn drain(
    mut listening: Pin<&mut impl Future<Output = CapturedOutput>>,
    too_slow: &Notify,
) -> CapturedOutput {
    if let Ok(heard) = timeout(DRAIN_TIMEOUT, &mut listening).await {
        return heard;
    }
    too_slow.notify_one();
    let heard = timeout(DRAIN_TIMEOUT, listening).await;
    heard.unwrap_or_else(|_| CapturedOutput {
        broken: Some("its output did not end".to_owned()),
        ..CapturedOutput::default()
    })
}

/// Captures both streams and forwards them to the reader of live output until it is `too_slow`.
async fn listen(
    mut output: Logs,
    keep: Bytes,
    mut watcher: Option<mpsc::Sender<Chunk>>,
    too_slow: &Notify,
) -> CapturedOutput {
    let mut captures = Captures::new(keep);
    let broken = loop {
        let chunk = match output.next().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        };
        captures.push(chunk.stream, &chunk.bytes);
        // A slow reader applies backpressure to the program.
        if let Some(sender) = &watcher {
            let reads = tokio::select! {
                sent = sender.send(chunk) => sent.is_ok(),
                () = too_slow.notified() => false,
            };
            watcher = watcher.filter(|_| reads);
        }
    };
    let (stdout, stderr) = captures.finish();
    CapturedOutput {
        stdout,
        stderr,
        broken,
    }
}

/// Forwards standard input until end of file. A program that does not read it is not an error.
async fn feed(mut input: Input, stdin: Option<mpsc::Receiver<Vec<u8>>>) {
    let Some(mut stdin) = stdin else { return };
    while let Some(bytes) = stdin.recv().await {
        if input.writer().write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = input.writer().shutdown().await;
}

/// Converts the end of a container. If output is lost, the rest must not be reported as complete.
fn exit(life: &Life, interruption: Option<Interruption>, broken: bool) -> ProgramExit {
    let is_known = interruption.is_some() || !broken;
    ProgramExit {
        status: life.exit_code.filter(|_| is_known).map(from_shell),
        out_of_memory: life.oom_killed,
        interruption,
    }
}

/// Exit code of Docker's init for a missing program. Programs may exit with it, too.
const NO_PROGRAM: i32 = 127;

fn perhaps_missing(settings: &Settings, request: &Request, exit_code: i32) -> Option<String> {
    let program = match request.language {
        Language::Python => "python3",
        Language::Javascript => "node",
        // Bash reports missing programs itself, with the same status.
        Language::Bash | Language::Command => return None,
    };
    let image = &settings.image;
    (exit_code == NO_PROGRAM).then(|| {
        format!("status {NO_PROGRAM} is that of an image without {program}; look whether {image} has it")
    })
}

/// Returns the isolation layers that were requested and that the engine accepted.
pub(super) fn isolation(supervisor: &ContainerSupervisor, spec: &Spec) -> Isolation {
    let info = supervisor.info();
    let v2 = info.cgroup_version.as_deref() == Some("2");
    let version = if v2 { "v2" } else { "v1" };
    Isolation {
        user_ns: info.rootless,
        pid_ns: true,
        mount_ns: true,
        net_ns: spec.network == NetworkMode::None,
        ipc_ns: true,
        uts_ns: true,
        // Podman ignores the option with control groups v1.
        cgroup_ns: v2 || supervisor.engine().kind() == EngineKind::Docker,
        time_ns: false,
        seccomp: filter(spec),
        landlock_abi: 0,
        cgroup: info.unlimited.is_empty().then(|| version.to_owned()),
        no_new_privs: true,
        capabilities_dropped: true,
    }
}

/// Returns the name of the filter of the program's system calls. gVisor implements system calls itself, and
/// ignores the filter.
fn filter(spec: &Spec) -> Option<String> {
    match spec.oci_runtime {
        OciRuntime::Runc | OciRuntime::Crun => Some(spec.filter.name().to_owned()),
        OciRuntime::Runsc => Some("gvisor".to_owned()),
        // An unknown runtime's handling of the filter is unknown.
        OciRuntime::Default => None,
    }
}

#[cfg(test)]
mod tests {
    use ringfence_policy::Outcome;

    use super::*;
    use crate::state::State;

    #[test]
    fn every_end_is_told_as_what_it_was() {
        use Interruption::{Cancelled, DiskFull, TimedOut};
        let check = |exit_code, oom_killed, interruption, expected| {
            let life = Life {
                state: State::Destroyed(None),
                exit_code,
                oom_killed,
                problems: Vec::new(),
            };
            assert_eq!(
                exit(&life, interruption, false).outcome(),
                expected,
                "{exit_code:?} {interruption:?}"
            );
        };
        check(Some(0), false, None, (Outcome::Exited, 0));
        check(Some(3), false, None, (Outcome::Exited, 3));
        check(Some(255), false, None, (Outcome::Exited, 255));
        check(Some(139), false, None, (Outcome::Signalled, -11));
        check(Some(137), true, None, (Outcome::MemoryExceeded, -9));
        check(Some(137), false, Some(TimedOut), (Outcome::TimedOut, -1));
        check(None, false, Some(TimedOut), (Outcome::TimedOut, -1));
        check(Some(0), false, Some(TimedOut), (Outcome::Exited, 0));
        check(Some(137), false, Some(Cancelled), (Outcome::Cancelled, -9));
        check(Some(137), false, Some(DiskFull), (Outcome::Signalled, -9));
        check(None, false, None, (Outcome::Unknown, 125));
        // One of several processes may have been killed by the OOM killer while the program went on.
        check(Some(0), true, None, (Outcome::Exited, 0));
    }

    #[test]
    fn lost_output_is_no_success() {
        let life = Life {
            state: State::Destroyed(None),
            exit_code: Some(0),
            oom_killed: false,
            problems: Vec::new(),
        };
        assert_eq!(exit(&life, None, true).outcome(), (Outcome::Unknown, 125));
    }
}
