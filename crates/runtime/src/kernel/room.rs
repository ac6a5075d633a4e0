//! Holds a run to its disk limit where it writes to a directory of the host that no person has chosen.

use std::path::PathBuf;

use ringfence_policy::{Bytes, ExecutionResult, Outcome};
use tokio::sync::watch;

use super::{ToolError, taken_back};
use crate::local::{Usage, overfull, soon};
use crate::output;

/// What a run may fill.
pub(super) struct Room {
    pub(super) directory: PathBuf,
    pub(super) limit: Bytes,
}

/// Lets `run` go on to its end, and ends it when it makes the room overfull, or adds to a room that was: one that deletes
/// runs on. It is handed what tells it so.
pub(super) async fn within(
    room: Option<Room>,
    cancelled: Option<watch::Receiver<bool>>,
    run: impl AsyncFnOnce(Option<watch::Receiver<bool>>) -> Result<ExecutionResult, ToolError>,
) -> Result<ExecutionResult, ToolError> {
    let Some(Room { directory, limit }) = room else {
        return run(cancelled).await;
    };
    let most = Usage::growing(&directory, limit.0).await;
    let (cancel, told) = watch::channel(false);
    let running = run(Some(told));
    tokio::pin!(running);
    let overfull = tokio::select! {
        biased;
        done = &mut running => return done,
        () = overfull(directory, most, soon) => true,
        () = taken_back(cancelled) => false,
    };
    cancel.send_replace(true);
    let mut result = running.await?;
    if overfull && result.meta.outcome == Outcome::Cancelled {
        result.meta.outcome = Outcome::Signalled;
        output::add(
            &mut result.stderr,
            &format!(
                "killed: the workspace holds more than the {limit} that a run may write; delete files, write less, or have \
                 `sandbox.disk` raised\n"
            ),
        );
    }
    Ok(result)
}
