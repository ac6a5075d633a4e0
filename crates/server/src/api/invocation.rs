//! Tool calls of HTTP clients, which end with the client's interest in them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_exec::local::Chunk;
use ringfence_tools::toolbox::{Answer, Attention, Caller, ToolError, Toolbox};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::admission::Turn;
use super::error::ApiError;
use super::key_uses::KeyUse;
use super::operation_cost::Begun;

/// Maximum number of buffered chunks of live output.
const IN_FLIGHT: usize = 16;

/// Timeout for the calls under way to end, and their answers to be sent, when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The tasks of all calls. A call is never dropped: it is cancelled, kills its processes and is recorded.
#[derive(Debug)]
pub(super) struct Invocations {
    tasks: Mutex<JoinSet<()>>,
    /// Becomes true when the server stops, which cancels every call.
    stopping: watch::Sender<bool>,
    /// Number of invocations whose clients wait.
    waiting: watch::Sender<usize>,
}

/// A running call. Dropping it cancels the call.
#[derive(Debug)]
pub(super) struct Invocation {
    /// Cancels the call when it is dropped.
    _cancel: Arc<watch::Sender<bool>>,
    done: oneshot::Receiver<Ended>,
    _client: WaitingClient,
}

/// The end of a call.
#[derive(Debug)]
enum Ended {
    Itself(Result<Answer, ToolError>),
    /// The server stopped while it ran.
    Stopped,
}

/// One of the number of clients that wait for an answer.
#[derive(Debug)]
struct WaitingClient(watch::Sender<usize>);

impl WaitingClient {
    fn new(waiting: &watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting.clone())
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Default for Invocations {
    fn default() -> Self {
        Self {
            tasks: Mutex::default(),
            stopping: watch::Sender::new(false),
            waiting: watch::Sender::new(0),
        }
    }
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
        let cancel = Arc::new(cancel);
        let (mut stopping, canceller) = (self.stopping.subscribe(), Arc::downgrade(&cancel));
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
            let answered = toolbox.invoke(&caller, &tool, arguments, attention);
            tokio::pin!(answered);
            let stopped = async {
                // An error means that the server is gone.
                let _ = stopping.wait_for(|stopping| *stopping).await;
            };
            let ended = tokio::select! {
                biased;
                answered = &mut answered => Ended::Itself(answered),
                () = stopped => {
                    if let Some(canceller) = canceller.upgrade() {
                        canceller.send_replace(true);
                    }
                    // Its processes are killed, and its record is written.
                    let _ = answered.await;
                    Ended::Stopped
                }
            };
            if let Ended::Itself(Err(error)) = &ended {
                begun.end_with(error.kind);
            }
            // Not before: the processes of a client that has left are killed by now.
            drop(turn);
            drop(using);
            // If the receiver is gone, the audit record is all that remains.
            let _ = answer.send(ended);
        };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
        Invocation {
            _cancel: cancel,
            done,
            _client: WaitingClient::new(&self.waiting),
        }
    }

    /// Cancels every call, and waits until their clients have the answers, for a few seconds at most. Returns the number of
    /// calls that were cancelled.
    pub(super) async fn stop(&self) -> usize {
        let mut waiting = self.waiting.subscribe();
        let calls = *waiting.borrow_and_update();
        self.stopping.send_replace(true);
        // Whoever takes longer is cut off.
        let _ = tokio::time::timeout(STOP_TIMEOUT, waiting.wait_for(|count| *count == 0)).await;
        calls
    }

    /// Waits until every call has ended. Its caller has dropped their invocations.
    pub(super) async fn close(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
    }
}

impl Invocation {
    /// Returns the answer.
    pub(super) async fn answer(&mut self) -> Result<Answer, ApiError> {
        match (&mut self.done).await {
            Ok(Ended::Itself(answered)) => Ok(answered?),
            Ok(Ended::Stopped) => Err(ApiError::stopped()),
            Err(_) => Err(ApiError::panicked()),
        }
    }
}
