//! Enforces the disk limit of a run that writes to a host directory that no user has chosen.

use std::path::PathBuf;

use ringfence_exec::local::{Usage, disk_limit_exceeded, soon};
use ringfence_exec::output;
use ringfence_exec::supervise::cancellation;
use ringfence_policy::{Bytes, ExecutionResult, Outcome};
use tokio::sync::watch;

use super::ToolError;

/// A disk quota of a run.
pub(super) struct DiskQuota {
    pub(super) directory: PathBuf,
    pub(super) limit: Bytes,
}

/// Awaits `run`, and cancels it if it exceeds the quota, or adds to a directory that already exceeded it: a
/// run that only deletes continues. `run` gets the cancellation signal.
pub(super) async fn within(
    room: Option<DiskQuota>,
    cancelled: Option<watch::Receiver<bool>>,
    run: impl AsyncFnOnce(Option<watch::Receiver<bool>>) -> Result<ExecutionResult, ToolError>,
) -> Result<ExecutionResult, ToolError> {
    let Some(DiskQuota { directory, limit }) = room else {
        return run(cancelled).await;
    };
    let most = Usage::growing(&directory, limit.0).await;
    let (cancel, told) = watch::channel(false);
    let running = run(Some(told));
    tokio::pin!(running);
    let disk_limit_exceeded = tokio::select! {
        biased;
        done = &mut running => return done,
        () = disk_limit_exceeded(directory, most, soon) => true,
        () = cancellation(cancelled) => false,
    };
    cancel.send_replace(true);
    let mut result = running.await?;
    if disk_limit_exceeded && result.meta.outcome == Outcome::Cancelled {
        result.meta.outcome = Outcome::Signalled;
        output::add(
            &mut result.stderr,
            &format!(
                "killed: the workspace holds more than the {limit} that a run may write; delete files, write less, or have \
                 the limit raised\n"
            ),
        );
    }
    Ok(result)
}
