//! Handles sandbox requests on the server's socket.

use std::time::Duration;

use ringfence_container::sandboxes::SandboxCommand;
use ringfence_container::{RunError, RunResult, Sandboxes};
use ringfence_exec::backend;
use ringfence_policy::{Bytes, Scope, Timeout};

use crate::frame::Kind;
use crate::wire::{Ran, Refusal, SandboxAction, SandboxAnswer, SandboxRequest};

/// Capture limit of each stream of a command.
const KEPT: Bytes = Bytes::mib(1);

/// Maximum time to wait for new log entries.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Performs a request, and returns the response frame.
pub(crate) async fn answer(payload: &[u8], sandboxes: &Sandboxes) -> serde_json::Result<(Kind, Vec<u8>)> {
    let parsed = serde_json::from_slice::<SandboxRequest>(payload).map_err(|error| Refusal::invalid(&error));
    let result = match parsed {
        Ok(SandboxRequest { scope, action }) => see_to(&scope, action, sandboxes).await,
        Err(refusal) => Err(refusal),
    };
    match result {
        Ok(answer) => Ok((Kind::Sandboxes, serde_json::to_vec(&answer)?)),
        Err(refusal) => Ok((Kind::Refusal, serde_json::to_vec(&refusal)?)),
    }
}

async fn see_to(
    scope: &Scope,
    action: SandboxAction,
    sandboxes: &Sandboxes,
) -> Result<SandboxAnswer, Refusal> {
    let refused = |error: RunError| Refusal::from(backend::Error::from(error));
    let one = match action {
        SandboxAction::List => return Ok(SandboxAnswer::Sandboxes(sandboxes.list(scope))),
        SandboxAction::New(new) => sandboxes.create(scope, *new).await,
        SandboxAction::Pause { name } => sandboxes.pause(scope, &name).await,
        SandboxAction::Resume { name } => sandboxes.resume(scope, &name).await,
        SandboxAction::Run {
            name,
            command,
            timeout_ms,
        } => {
            let timeout =
                Timeout::try_from(timeout_ms as f64 / 1000.0).map_err(|error| Refusal::invalid(&error))?;
            let command = SandboxCommand {
                words: &command,
                timeout,
                keep: KEPT,
            };
            let ran = sandboxes.run(scope, &name, command).await;
            return ran
                .map(|result| SandboxAnswer::Ran(result.into()))
                .map_err(refused);
        }
        SandboxAction::Log { name, after, wait } => {
            let patience = if wait { TIMEOUT } else { Duration::ZERO };
            let told = sandboxes.printed(scope, &name, after, patience).await;
            return told.map(SandboxAnswer::Log).map_err(refused);
        }
        SandboxAction::Remove { name } => {
            sandboxes.remove(scope, &name).await.map_err(refused)?;
            return Ok(SandboxAnswer::Sandboxes(Vec::new()));
        }
    };
    one.map(|info| SandboxAnswer::Sandboxes(vec![info]))
        .map_err(refused)
}

impl From<RunResult> for Ran {
    fn from(result: RunResult) -> Self {
        Self {
            status: result.status,
            truncated: result.stdout.truncated || result.stderr.truncated,
            stdout: result.stdout.text,
            stderr: result.stderr.text,
            egress: result.egress,
            sandbox_ended: result.container_ended,
        }
    }
}
