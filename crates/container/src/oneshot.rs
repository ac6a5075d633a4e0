//! Runs one request in a container of its own, from creation to removal.

use std::time::{Duration, SystemTime};

use ringfence_exec::local::{Chunk, Connection, ProgramEnd, Stream, cancellation, told};
use ringfence_exec::output::{self, Capture, Captured};
use ringfence_policy::{
    EngineKind, ExecutionResult, Isolation, Language, Limits, NetworkMode, Outcome, Request,
};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::error::Error;
use super::layout::{Belonging, Layout, Most, Storage};
use super::manager::{Manager, Sandbox};
use super::outputs::Wanted;
use super::pool_key::PoolKey;
use super::run_error::RunError;
use super::settings::Settings;
use super::spec::{OciRuntime, Spec};
use super::streams::{Attached, Input, Logs};
use super::task::{Life, SandboxSpec};

/// Time for creation and removal of a container, beside the program's timeout.
const ROOM: Duration = Duration::from_secs(120);
/// Timeout for a slow reader of live output after the program has ended.
const PATIENCE: Duration = Duration::from_secs(5);
/// Exit status after SIGKILL.
pub(super) const KILLED: i64 = 128 + 9;
/// Exit code of a run with an unknown outcome: that of an internal failure of Ringfence, never success.
const UNKNOWN_STATUS: i32 = 125;

/// The reason why a run was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    TimedOut,
    Cancelled,
    DiskFull,
}

/// Captured output of a program.
#[derive(Debug)]
struct CapturedOutput {
    stdout: Captured,
    stderr: Captured,
    /// The error that closed its streams before its end.
    broken: Option<String>,
}

/// The limits that end a run.
struct RunLimits<'a> {
    limits: &'a Limits,
    places: &'a Layout,
    most: Most,
}

/// Runs a request as the program of a fresh container, under the engine's init.
pub(super) async fn run(
    settings: &Settings,
    manager: &Manager,
    frame: &PoolKey,
    wanted: Wanted<'_>,
    connection: Connection,
) -> Result<ExecutionResult, RunError> {
    let Wanted { request, destination } = wanted;
    let since = SystemTime::now();
    let places = Layout::make(settings, frame)?;
    let program = places.program(request, connection.stdin.is_some())?;
    let ours = Belonging {
        owner: manager.owner(),
        storage: Storage::Host,
    };
    let spec = places.spec(settings, frame, program, ours)?;
    let isolation = isolation(manager, &spec);
    let sandbox_spec = SandboxSpec {
        max_duration: request.limits.timeout.as_duration() + ROOM,
        attach: true,
        belongings: None,
        spec,
    };
    let most = places.most(request.limits.disk).await;
    let (sandbox, attached) = manager.sandbox(sandbox_spec).await?;
    let attached = attached.ok_or(Error::Closing)?;
    let bounds = RunLimits {
        limits: &request.limits,
        places: &places,
        most,
    };
    let (heard, interruption) = supervise(&sandbox, attached, bounds, connection).await;
    let life = sandbox.ended_or_lost().await;
    let (outcome, exit_code) = classify_exit(&life, interruption, heard.broken.is_some());
    let taken = places.collect_output(since, destination, request.limits.disk.0);
    let runtime = manager.engine().kind().runtime();
    let end = ProgramEnd {
        outcome,
        exit_code,
        stdout: heard.stdout,
        stderr: heard.stderr,
    };
    let mut result = told(runtime, request, end);
    if interruption == Some(Interruption::DiskFull) {
        output::add(
            &mut result.stderr,
            &places.disk_limit_message(request.limits.disk),
        );
    }
    result.meta.isolation = isolation;
    result.meta.resource_limits = manager.info().held(result.meta.resource_limits);
    result.meta.warnings.extend(manager.info().warning());
    result.meta.warnings.extend(sandbox.warnings().iter().cloned());
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
    sandbox: &Sandbox,
    attached: Attached,
    bounds: RunLimits<'_>,
    connection: Connection,
) -> (CapturedOutput, Option<Interruption>) {
    let Attached { output, input } = attached;
    let RunLimits { limits, places, most } = bounds;
    let mut listening = std::pin::pin!(listen(output, limits, connection.output));
    let mut feeding = std::pin::pin!(feed(input, connection.stdin));
    let mut deadline = std::pin::pin!(tokio::time::sleep(limits.timeout.as_duration()));
    let mut cancellation = std::pin::pin!(cancellation(connection.cancelled));
    let mut disk_limit_exceeded = std::pin::pin!(places.disk_limit_exceeded(most));
    let mut ended = std::pin::pin!(sandbox.ended());
    let (mut fed, mut over, mut heard) = (false, false, None);
    // A program may close its streams long before it ends, and a failing engine cuts them off.
    let interruption = loop {
        tokio::select! {
            all = &mut listening, if heard.is_none() => heard = Some(all),
            () = &mut feeding, if !fed => fed = true,
            _ = &mut ended, if !over => over = true,
            () = &mut deadline => break Interruption::TimedOut,
            () = &mut cancellation => break Interruption::Cancelled,
            () = &mut disk_limit_exceeded => break Interruption::DiskFull,
        }
        match heard.take() {
            Some(heard) if over => return (heard, None),
            partly => heard = partly,
        }
    };
    // Drains output still in transit. A broken engine, or a reader that has stopped, is not waited for.
    let rest = async {
        match heard {
            Some(heard) => heard,
            None => tokio::time::timeout(PATIENCE, listening)
                .await
                .unwrap_or_else(|_| CapturedOutput::nothing(limits)),
        }
    };
    let ((), heard) = tokio::join!(sandbox.kill(PATIENCE), rest);
    (heard, Some(interruption))
}

/// Captures both streams and forwards them to the reader of live output.
async fn listen(
    mut output: Logs,
    limits: &Limits,
    mut watcher: Option<mpsc::Sender<Chunk>>,
) -> CapturedOutput {
    let (mut stdout, mut stderr) = (Capture::new(limits.max_output), Capture::new(limits.max_output));
    let broken = loop {
        let chunk = match output.next().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        };
        match chunk.stream {
            Stream::Stdout => stdout.push(&chunk.bytes),
            Stream::Stderr => stderr.push(&chunk.bytes),
        }
        // A slow reader applies backpressure to the program.
        if let Some(sender) = &watcher
            && sender.send(chunk).await.is_err()
        {
            watcher = None;
        }
    };
    CapturedOutput {
        stdout: stdout.finish(),
        stderr: stderr.finish(),
        broken,
    }
}

impl CapturedOutput {
    fn nothing(limits: &Limits) -> Self {
        Self {
            stdout: Capture::new(limits.max_output).finish(),
            stderr: Capture::new(limits.max_output).finish(),
            broken: Some("its output did not end".to_owned()),
        }
    }
}

/// Forwards standard input until end of file. A program that does not read it is no error.
async fn feed(mut input: Input, stdin: Option<mpsc::Receiver<Vec<u8>>>) {
    let Some(mut stdin) = stdin else { return };
    while let Some(bytes) = stdin.recv().await {
        if input.writer().write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = input.writer().shutdown().await;
}

/// Classifies the end of a container.
///
/// Its init encodes a fatal signal as 128 plus its number, as a shell does.
fn classify_exit(life: &Life, interruption: Option<Interruption>, broken: bool) -> (Outcome, i32) {
    let killed = life.exit_code.is_none_or(|code| code == KILLED);
    match (life.exit_code, interruption) {
        (_, Some(Interruption::TimedOut)) if killed => (Outcome::TimedOut, -1),
        (_, Some(Interruption::Cancelled)) if killed => (Outcome::Cancelled, -9),
        (None, _) => (Outcome::Unknown, UNKNOWN_STATUS),
        // Some output is lost: the rest must not be reported as complete.
        (Some(_), None) if broken => (Outcome::Unknown, UNKNOWN_STATUS),
        (Some(KILLED), _) if life.oom_killed => (Outcome::MemoryExceeded, -9),
        (Some(code @ 129..=192), _) => (Outcome::Signalled, (128 - code) as i32),
        (Some(code), _) => (Outcome::Exited, i32::try_from(code).unwrap_or(UNKNOWN_STATUS)),
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
pub(super) fn isolation(manager: &Manager, spec: &Spec) -> Isolation {
    let info = manager.info();
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
        cgroup_ns: v2 || manager.engine().kind() == EngineKind::Docker,
        time_ns: false,
        seccomp: filter(spec),
        landlock_abi: 0,
        cgroup: info.unlimited.is_empty().then(|| version.to_owned()),
        no_new_privs: true,
        capabilities_dropped: true,
    }
}

/// Returns the name of the filter of the program's system calls. gVisor implements them itself, and ignores
/// ours.
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
                classify_exit(&life, interruption, false),
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
        assert_eq!(classify_exit(&life, None, true), (Outcome::Unknown, 125));
    }
}
