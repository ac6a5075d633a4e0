//! Runs one call through the engine's exec API, in a container without our init.

use std::time::Duration;

use ringfence_exec::local::{Connection, cancellation};
use ringfence_exec::output::{Capture, Captured};
use ringfence_policy::{Language, Outcome, Request};
use tokio::time::Instant;

use crate::init::Finished;
use crate::manager::Sandbox;
use crate::run_error::RunError;

/// Runs a request. Timeout and cancellation remove the whole container: an engine cannot kill one process of
/// it. There is no standard input and no live output.
pub(super) async fn run(
    sandbox: &Sandbox,
    request: &Request,
    timeout: Duration,
    connection: Connection,
) -> Result<Finished, RunError> {
    let command = command(request)?;
    let keep = request.limits.max_output;
    let ran = tokio::select! {
        biased;
        ran = sandbox.run(&command, Instant::now() + timeout, keep) => ran?,
        () = cancellation(connection.cancelled) => {
            sandbox.stop().await;
            let nothing = || Capture::new(keep).finish();
            return Ok(finished(Outcome::Cancelled, -9, nothing(), nothing()));
        }
    };
    let (outcome, exit_code) = match ran.status {
        None => {
            sandbox.stop().await;
            (Outcome::TimedOut, -1)
        }
        // A signal, encoded as a shell does.
        Some(status @ 129..=192) => (Outcome::Signalled, (128 - status) as i32),
        Some(status) => (Outcome::Exited, i32::try_from(status).unwrap_or(i32::MAX)),
    };
    Ok(finished(outcome, exit_code, ran.stdout, ran.stderr))
}

fn command(request: &Request) -> Result<Vec<String>, RunError> {
    let program = match request.language {
        Language::Python => "python3",
        Language::Bash => "bash",
        Language::Javascript | Language::Command => {
            return Err(RunError::LocalOnly("a program in this language"));
        }
    };
    let variables = request
        .env
        .iter()
        .map(|(name, value)| format!("{}={value}", name.as_str()));
    let words = [program, "-c", &request.code].map(str::to_owned);
    let first = (!request.env.is_empty()).then(|| "env".to_owned());
    Ok(first.into_iter().chain(variables).chain(words).collect())
}

fn finished(outcome: Outcome, exit_code: i32, stdout: Captured, stderr: Captured) -> Finished {
    Finished {
        outcome,
        exit_code,
        stdout,
        stderr,
        peak_memory_bytes: None,
        cpu_seconds: None,
        warm: false,
        warning: None,
        output: None,
    }
}
