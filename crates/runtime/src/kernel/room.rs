//! Holds a run to its disk limit where it writes to a directory of the host that no person has chosen.

use std::path::PathBuf;

use ringfence_policy::Bytes;
use tokio::sync::watch;

use super::{ErrorKind, ToolError, taken_back};
use crate::local::{overfull, soon};

/// What a run may fill.
pub(super) struct Room {
    pub(super) directory: PathBuf,
    pub(super) limit: Bytes,
}

/// Lets `run` go on to its end, and takes it back as soon as the room is overfull. It is handed what tells it so.
pub(super) async fn within<T>(
    room: Option<Room>,
    cancelled: Option<watch::Receiver<bool>>,
    run: impl AsyncFnOnce(Option<watch::Receiver<bool>>) -> Result<T, ToolError>,
) -> Result<T, ToolError> {
    let Some(Room { directory, limit }) = room else {
        return run(cancelled).await;
    };
    let (cancel, told) = watch::channel(false);
    let running = run(Some(told));
    tokio::pin!(running);
    let overfull = tokio::select! {
        biased;
        done = &mut running => return done,
        () = overfull(directory, limit.0, soon) => true,
        () = taken_back(cancelled) => false,
    };
    cancel.send_replace(true);
    let done = running.await;
    if overfull {
        return Err(ToolError::new(
            ErrorKind::LimitExceeded,
            format!("the workspace holds more than the {limit} that a run may write"),
            "delete files, write less, or have `sandbox.disk` raised",
        ));
    }
    done
}
