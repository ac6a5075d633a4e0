//! A use of a tool, apart from the request that waits for it: another one does once a person was asked.

use std::sync::Arc;
use std::time::Instant;

use ringfence_runtime::approval::Asked;
use ringfence_runtime::audit::Digest;
use ringfence_runtime::kernel::{Answer, Attention, Caller, ErrorKind, Kernel, Questions, ToolError};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::progress::Recent;

/// Pieces of output on their way into progress notifications.
const OUTPUT_UNDER_WAY: usize = 16;

/// Questions and notices on their way to the client. A call raises one of each, and a question about its time limit.
const WORDS_UNDER_WAY: usize = 4;

/// What is used, and by whom.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) kernel: Arc<Kernel>,
    pub(super) caller: Caller,
    pub(super) tool: String,
    pub(super) arguments: Value,
}

/// What the client can be told and asked meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    /// Its person can be asked.
    pub(super) answers: bool,
    /// It wants to hear of progress.
    pub(super) listens: bool,
}

/// The tool and its arguments: a request that goes on with an invocation must name the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    tool: String,
    arguments: Digest,
}

/// A use of a tool that goes on. Dropping it takes the use back.
#[derive(Debug)]
pub(super) struct Invocation {
    pub(super) named: Named,
    /// Whether there is such a tool.
    pub(super) is_known: bool,
    pub(super) since: Instant,
    pub(super) recent: Arc<Recent>,
    unwanted: watch::Sender<bool>,
    questions: mpsc::Receiver<Asked>,
    notices: mpsc::Receiver<String>,
    done: oneshot::Receiver<Result<Answer, ToolError>>,
}

/// What an invocation comes to next.
#[derive(Debug)]
pub(super) enum Event {
    /// A person is asked.
    Asked(Box<Asked>),
    /// A person is told something.
    Told(String),
    /// It has ended.
    Done(Result<Answer, ToolError>),
}

impl Named {
    pub(super) fn new(tool: &str, arguments: &Value) -> Self {
        Self {
            tool: tool.to_owned(),
            arguments: Digest::of_value(arguments),
        }
    }
}

impl Invocation {
    /// An invocation, and its work, which goes on whoever waits for it. The work is taken back when `gone` becomes true.
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
            questions: client.answers.then_some(Questions::Answered(asking)),
            notices: Some(telling),
        };
        let invocation = Self {
            named: Named::new(&used.tool, &used.arguments),
            is_known: used.kernel.tools().any(|tool| tool.name == used.tool),
            since: Instant::now(),
            recent: Arc::clone(&recent),
            unwanted,
            questions,
            notices,
            done,
        };
        let work = async move {
            let invoking = used
                .kernel
                .invoke(&used.caller, &used.tool, used.arguments, attention);
            let taking_back = async {
                tokio::select! {
                    // An error means that nobody holds the invocation, or the connection, any more.
                    _ = wanted.wait_for(|unwanted| *unwanted) => {}
                    _ = gone.wait_for(|gone| *gone) => {}
                }
                cancel.send_replace(true);
            };
            // Whatever else is going on, the invocation comes to its end: it kills what it started, and is recorded.
            let beside = async {
                tokio::join!(taking_back, recent.hear(chunks));
                std::future::pending().await
            };
            let answered = tokio::select! {
                biased;
                answered = invoking => answered,
                never = beside => never,
            };
            // Where nobody waits any more, the record is all that is left of it.
            let _ = answer.send(answered);
        };
        (invocation, work)
    }

    /// What it comes to next. After the end, there is nothing.
    pub(super) async fn next(&mut self) -> Event {
        tokio::select! {
            // What was said before the end is told before the end.
            biased;
            Some(asked) = self.questions.recv() => Event::Asked(Box::new(asked)),
            Some(text) = self.notices.recv() => Event::Told(text),
            done = &mut self.done => Event::Done(done.unwrap_or_else(|_| Err(broken()))),
        }
    }

    /// What takes it back, as long as somebody holds the invocation.
    pub(super) fn unwanted(&self) -> watch::Sender<bool> {
        self.unwanted.clone()
    }

    /// Whether its work has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.notices.is_closed()
    }
}

fn broken() -> ToolError {
    ToolError::new(
        ErrorKind::Internal,
        "the work on the call broke off",
        "report this as a defect",
    )
}
