//! A tool call that can outlive its request: after a question, another request waits for it.

use std::sync::Arc;
use std::time::Instant;

use ringfence_records::approval::PendingApproval;
use ringfence_records::audit::Digest;
use ringfence_tools::toolbox::{Answer, Attention, Caller, ErrorKind, Questions, ToolError, Toolbox};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::progress::Recent;

/// Maximum number of buffered chunks of output for progress notifications.
const OUTPUT_UNDER_WAY: usize = 16;

/// Maximum number of buffered questions and notices. A call raises one of each, and a question about its time
/// limit.
const WORDS_UNDER_WAY: usize = 4;

/// A tool call to run: tool, arguments and caller.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) toolbox: Arc<Toolbox>,
    pub(super) caller: Caller,
    pub(super) tool: String,
    pub(super) arguments: Value,
}

/// Capabilities of the client for an invocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    /// Set if the client's user can answer questions.
    pub(super) answers: bool,
    /// Set if the client wants progress notifications.
    pub(super) listens: bool,
}

/// Tool and arguments: a request that resumes an invocation must have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallIdentity {
    tool: String,
    arguments: Digest,
}

/// A running tool call. Dropping it cancels the call.
#[derive(Debug)]
pub(super) struct Invocation {
    pub(super) named: CallIdentity,
    /// Set if the tool exists.
    pub(super) is_known: bool,
    /// Set if the client's user can answer questions.
    pub(super) is_answered: bool,
    pub(super) since: Instant,
    pub(super) recent: Arc<Recent>,
    unwanted: watch::Sender<bool>,
    questions: mpsc::Receiver<PendingApproval>,
    notices: mpsc::Receiver<String>,
    done: oneshot::Receiver<Result<Answer, ToolError>>,
}

#[derive(Debug)]
pub(super) enum Event {
    /// A question for the user.
    Asked(Box<PendingApproval>),
    /// A notice for the user.
    Told(String),
    Done(Result<Answer, ToolError>),
}

impl CallIdentity {
    pub(super) fn new(tool: &str, arguments: &Value) -> Self {
        Self {
            tool: tool.to_owned(),
            arguments: Digest::of_value(arguments),
        }
    }
}

impl Invocation {
    /// Creates an invocation and its task, which runs independently of the request. The call is cancelled
    /// when `gone` becomes true.
    pub(super) fn new(
        used: Use,
        client: Client,
        mut gone: watch::Receiver<bool>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (unwanted, mut wanted) = watch::channel(false);
        let (cancel, cancelled) = watch::channel(false);
        let (asking, questions) = mpsc::channel(WORDS_UNDER_WAY);
        let (telling, notices) = mpsc::channel(WORDS_UNDER_WAY);
        let (output, chunks) = mpsc::channel(OUTPUT_UNDER_WAY);
        let (answer, done) = oneshot::channel();
        let recent = Arc::new(Recent::default());
        let attention = Attention {
            cancelled: Some(cancelled),
            output: client.listens.then_some(output),
            questions: Some(match client.answers {
                true => Questions::Answered(asking),
                false => Questions::Told(asking),
            }),
            notices: Some(telling),
        };
        let invocation = Self {
            named: CallIdentity::new(&used.tool, &used.arguments),
            is_known: used.toolbox.tools().any(|tool| tool.name == used.tool),
            is_answered: client.answers,
            since: Instant::now(),
            recent: Arc::clone(&recent),
            unwanted,
            questions,
            notices,
            done,
        };
        let work = async move {
            let invoking = used
                .toolbox
                .invoke(&used.caller, &used.tool, used.arguments, attention);
            let taking_back = async {
                tokio::select! {
                    // An error means that the invocation, or the connection, was dropped.
                    _ = wanted.wait_for(|unwanted| *unwanted) => {}
                    _ = gone.wait_for(|gone| *gone) => {}
                }
                cancel.send_replace(true);
            };
            // The invocation always runs to its end: it kills its processes, and is recorded.
            let beside = async {
                tokio::join!(taking_back, recent.receive(chunks));
                std::future::pending().await
            };
            let answered = tokio::select! {
                biased;
                answered = invoking => answered,
                never = beside => never,
            };
            // If the receiver is gone, the audit record is all that remains.
            let _ = answer.send(answered);
        };
        (invocation, work)
    }

    /// Returns the next event. Must not be called after [`Event::Done`].
    pub(super) async fn next(&mut self) -> Event {
        tokio::select! {
            // Earlier events come before the result.
            biased;
            Some(asked) = self.questions.recv() => Event::Asked(Box::new(asked)),
            Some(text) = self.notices.recv() => Event::Told(text),
            done = &mut self.done => Event::Done(done.unwrap_or_else(|_| Err(broken()))),
        }
    }

    /// Returns the cancellation signal.
    pub(super) fn unwanted(&self) -> watch::Sender<bool> {
        self.unwanted.clone()
    }

    /// Returns `true` if the invocation's task has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.notices.is_closed()
    }
}

fn broken() -> ToolError {
    ToolError::new(
        ErrorKind::Internal,
        "the task of the call panicked",
        "report this as a defect",
    )
}
