//! Tool calls of HTTP clients, which end with the client's interest in them.

use std::sync::{Arc, Mutex, PoisonError};

use ringfence_exec::local::Chunk;
use ringfence_tools::toolbox::{Answer, Attention, Caller, ToolError, Toolbox};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::admission::Turn;
use super::error::ApiError;
use super::key_uses::KeyUse;
use super::work::Begun;

/// Maximum number of buffered chunks of live output.
const IN_FLIGHT: usize = 16;

/// The tasks of all calls. A call is never dropped: it is cancelled, kills its processes and is recorded.
#[derive(Debug, Default)]
pub(super) struct Invocations(Mutex<JoinSet<()>>);

/// A running call. Dropping it cancels the call.
#[derive(Debug)]
pub(super) struct Invocation {
    _cancel: watch::Sender<bool>,
    done: oneshot::Receiver<Result<Answer, ToolError>>,
}

/// A call to start.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) toolbox: Arc<Toolbox>,
    pub(super) caller: Caller,
    pub(super) tool: String,
    pub(super) arguments: Value,
    pub(super) turn: Turn,
    pub(super) begun: Begun,
    /// Held until the run is stored: what is removed with its key must be there by then.
    pub(super) using: KeyUse,
}

impl Invocations {
    /// Starts a call.
    pub(super) fn start(&self, used: Use) -> Invocation {
        self.start_with(used, None)
    }

    /// Starts a call whose program's output is read while it runs. A slow reader blocks this program only.
    pub(super) fn stream(&self, used: Use) -> (Invocation, mpsc::Receiver<Chunk>) {
        let (output, chunks) = mpsc::channel(IN_FLIGHT);
        (self.start_with(used, Some(output)), chunks)
    }

    fn start_with(&self, used: Use, output: Option<mpsc::Sender<Chunk>>) -> Invocation {
        let (cancel, cancelled) = watch::channel(false);
        let (answer, done) = oneshot::channel();
        let attention = Attention {
            // Closed when the invocation is dropped, which counts as cancelled.
            cancelled: Some(cancelled),
            output,
            questions: None,
            notices: None,
        };
        let work = async move {
            let Use {
                toolbox,
                caller,
                tool,
                arguments,
                turn,
                begun,
                using,
            } = used;
            let answered = toolbox.invoke(&caller, &tool, arguments, attention).await;
            if let Err(error) = &answered {
                begun.end_with(error.kind);
            }
            // Not before: the processes of a client that has left are killed by now.
            drop(turn);
            drop(using);
            // If the receiver is gone, the audit record is all that remains.
            let _ = answer.send(answered);
        };
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
        Invocation {
            _cancel: cancel,
            done,
        }
    }

    /// Waits until every call has ended. Its caller has dropped their invocations.
    pub(super) async fn close(&self) {
        let mut tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
    }
}

impl Invocation {
    /// Returns the answer.
    pub(super) async fn answer(&mut self) -> Result<Answer, ApiError> {
        match (&mut self.done).await {
            Ok(answered) => Ok(answered?),
            Err(_) => Err(ApiError::panicked()),
        }
    }
}
