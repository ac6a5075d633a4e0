//! Supervises the process of one skill file.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringfence_exec::bridge::{Call, Id, MAX_LINE, Message, MessageSink, MessageStream, bridge};
use ringfence_exec::local::{Chunk, Connection, Local};
use ringfence_policy::{
    ExecutionResult, Language, Mount, Network, Outcome, Remedy, Request, Timeout, remedy,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::super::journal::Journal;
use super::super::{CallError, Declared, Function, process};
use super::HostLimits;
use super::beside::Beside;
use super::manifest::Manifest;
use ringfence_records::audit::Digest;

/// Source of the program in the process.
const PROGRAM: &str = include_str!("../../../python/skills.py");

/// Maximum number of concurrent calls, if the process supports concurrency. Messages for that many always fit
/// into the channel.
const AT_ONCE: usize = 8;

/// Maximum number of functions of a file.
const MAX_FUNCTIONS: usize = 256;

/// Maximum number of queued calls.
const MAX_WAITING: usize = 64;

/// Polling interval for calls whose callers are gone.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Grace period for a cancelled call, and for the process after its bridge is closed.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum number of buffered output chunks.
const CHUNKS: usize = 4;

/// A skill file with the limits of its process.
#[derive(Debug)]
pub(super) struct HostSpec {
    /// First message to the process, see [`begin`].
    pub(super) begin: Message,
    pub(super) mounts: Vec<Mount>,
    pub(super) network: Network,
    pub(super) limits: HostLimits,
    pub(super) journal: Journal,
}

/// A handle of the process of a file.
#[derive(Debug)]
pub(super) struct Host {
    orders: mpsc::Sender<QueuedCall>,
    functions: BTreeMap<String, Arc<Function>>,
    problems: Vec<String>,
    ended: Ended,
}

/// Reason for the end of its process, once known.
type Ended = Arc<OnceLock<&'static str>>;

#[derive(Debug)]
pub(super) struct StartingProcess {
    /// Digest of the skill's file and of the modules that it may import.
    source: Digest,
    orders: mpsc::Sender<QueuedCall>,
    offered: oneshot::Receiver<Result<Offered, String>>,
    ended: Ended,
}

#[derive(Debug)]
struct QueuedCall {
    call: Call,
    /// Closed when the caller is gone.
    reply: oneshot::Sender<Called>,
}

#[derive(Debug)]
pub(super) enum Called {
    /// The process replied.
    Answered(Result<Value, CallError>),
    /// The process ended before it received the call with these arguments.
    NotBegun(Map<String, Value>),
}

/// Functions that the process declares.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Offered {
    functions: Vec<Declared>,
    left_out: Vec<String>,
    /// Set if the process accepts concurrent calls.
    at_once: bool,
}

/// Creates the first message to a process: a file and the modules that it may import.
///
/// # Errors
/// If the message is too long.
pub(super) fn begin(file: &str, code: &str, beside: &Beside) -> Result<Message, String> {
    let begin = json!({"file": file, "code": code, "beside": beside.modules});
    let begin = Message::Execute(Id::whole(), begin);
    match begin.line().len() <= MAX_LINE {
        true => Ok(begin),
        false => Err(
            "it and the modules beside it are too long together: escaped as JSON, they may have 1 MiB"
                .to_owned(),
        ),
    }
}

/// Prepares the process of a file and the task that supervises it. The task ends with the process, and kills
/// it when it is no longer needed.
pub(super) fn prepare(
    local: &Arc<Local>,
    mut place: HostSpec,
) -> (StartingProcess, impl Future<Output = ()> + use<>) {
    let mut journal = std::mem::take(&mut place.journal);
    let fence = place.limits.fence;
    let (begin, request) = request(place);
    let source = Digest::of(&begin.line());
    let (orders, ordered) = mpsc::channel(MAX_WAITING);
    let (offer, offered) = oneshot::channel();
    let ended = Ended::default();
    let coming = StartingProcess {
        source,
        orders,
        offered,
        ended: Arc::clone(&ended),
    };
    let local = Arc::clone(local);
    let task = async move {
        let (line, duct) = bridge();
        let (cancel, cancelled) = watch::channel(false);
        let (output, mut said) = mpsc::channel::<Chunk>(CHUNKS);
        let connection = Connection {
            output: Some(output),
            bridge: Some(duct),
            cancelled: Some(cancelled),
            ..Connection::none()
        };
        let mut offer = Some(offer);
        let result = {
            let keeping = async {
                while let Some(chunk) = said.recv().await {
                    journal.keep(&chunk.bytes);
                }
            };
            let running = async { tokio::join!(local.run(&request, fence, None, connection), keeping).0 };
            let talking = talk(line, begin, &mut offer, ordered);
            tokio::pin!(running, talking);
            let (result, open) = tokio::select! {
                result = &mut running => (Some(result), talking.await),
                open = &mut talking => (None, open),
            };
            let grace = if open.is_some() { GRACE } else { Duration::ZERO };
            let result = match result {
                Some(result) => result,
                None => match tokio::time::timeout(grace, &mut running).await {
                    Ok(result) => result,
                    Err(_) => {
                        cancel.send_replace(true);
                        running.await
                    }
                },
            };
            // Before the waiting callers see their channels closed.
            let _ = ended.set(result.as_ref().map_or(ENDED, how));
            drop(open);
            result
        };
        if let Some(offer) = offer {
            let how = result.map_or_else(|error| error.explain(), |result| process::words(&result));
            let _ = offer.send(Err(format!("it could not be loaded: {how}")));
        }
    };
    (coming, task)
}

/// Default reason for the end of a process.
const ENDED: &str = "the process of its skill has ended";

fn how(result: &ExecutionResult) -> &'static str {
    match result.meta.outcome {
        Outcome::MemoryExceeded => "the process of its skill took more memory than it may",
        Outcome::Exited
        | Outcome::TimedOut
        | Outcome::Signalled
        | Outcome::Blocked
        | Outcome::Cancelled
        | Outcome::Unknown => ENDED,
    }
}

impl StartingProcess {
    /// Resolves to the process once it has loaded its file.
    pub(super) async fn up(self, file: &str, manifest: &Manifest, patience: Timeout) -> Result<Host, String> {
        let Self {
            source,
            orders,
            offered,
            ended,
        } = self;
        let source = Digest::of(format!("{source} {}", manifest.reach()).as_bytes());
        let Ok(answered) = tokio::time::timeout(patience.as_duration(), offered).await else {
            return Err(format!(
                "it was not loaded within {patience}; {}",
                Remedy::from(remedy::Tool::AllowStart).person()
            ));
        };
        let answered = answered.unwrap_or_else(|_| Err("its process was stopped".to_owned()));
        let Offered {
            functions, left_out, ..
        } = answered?;
        let offered = functions.len();
        if offered > MAX_FUNCTIONS {
            return Err(format!(
                "it offers {offered} functions, and {MAX_FUNCTIONS} is the limit of a file: make several of it"
            ));
        }
        let mut host = Host {
            orders,
            functions: BTreeMap::new(),
            problems: left_out,
            ended,
        };
        for declared in functions {
            let policy = manifest.policy(&declared.path);
            match Function::new(declared, policy) {
                Ok(function) => {
                    let function = function.with_source(source);
                    host.functions
                        .insert(function.path().to_owned(), Arc::new(function));
                }
                Err(wrong) => host.problems.push(wrong.to_string()),
            }
        }
        let paths: Vec<&str> = host.functions.keys().map(String::as_str).collect();
        let idle = manifest.idle(&paths);
        host.problems
            .extend(idle.iter().map(|rule| format!("{file}: {rule}")));
        Ok(host)
    }
}

impl Host {
    pub(super) fn is_up(&self) -> bool {
        !self.orders.is_closed()
    }

    pub(super) fn offers(&self, path: &str) -> bool {
        self.functions.contains_key(path)
    }

    pub(super) fn definition(&self, path: &str) -> Option<Digest> {
        self.functions.get(path).map(|function| function.definition())
    }

    pub(super) fn functions(&self) -> impl Iterator<Item = Arc<Function>> {
        self.functions.values().cloned()
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = String> {
        self.problems.iter().cloned()
    }

    /// Calls a function. Dropping the future cancels the call.
    pub(super) async fn call(&self, path: &str, arguments: Map<String, Value>) -> Called {
        let (reply, replied) = oneshot::channel();
        let call = Call {
            path: path.to_owned(),
            args: Vec::new(),
            kwargs: arguments,
        };
        if let Err(mpsc::error::SendError(order)) = self.orders.send(QueuedCall { call, reply }).await {
            return Called::NotBegun(order.call.kwargs);
        }
        replied.await.unwrap_or_else(|_| {
            let why = self.ended.get().copied().unwrap_or(ENDED);
            Called::Answered(Err(CallError::new("unavailable", why)))
        })
    }
}

fn request(place: HostSpec) -> (Message, Request) {
    let request = Request {
        code: PROGRAM.to_owned(),
        name: "skills.py".to_owned(),
        language: Language::Python,
        ..process::request(
            place.limits.memory,
            place.network,
            place.mounts,
            place.limits.trusted,
        )
    };
    (place.begin, request)
}

/// Loads the file, then dispatches calls until the process is no longer needed or violates the protocol.
/// Returns the unanswered calls if it was the process that closed the channel.
async fn talk(
    mut line: MessageStream,
    begin: Message,
    offer: &mut Option<oneshot::Sender<Result<Offered, String>>>,
    orders: mpsc::Receiver<QueuedCall>,
) -> Option<Calls> {
    let speaker = line.speaker();
    speaker.say(&begin).await;
    let loaded = tokio::select! {
        loaded = loaded(&mut line) => loaded,
        () = forgotten(offer) => return None,
    };
    // The process closed the channel; its end tells the reason.
    let Some(loaded) = loaded else {
        return Some(Calls::default());
    };
    let at_once = loaded.as_ref().ok().map(|offered| offered.at_once);
    let is_heard = offer.take()?.send(loaded).is_ok();
    let calls = Calls {
        room: if at_once? { AT_ONCE } else { 1 },
        ..Calls::default()
    };
    let mut waiting = CallQueue { orders, held: None };
    let open = match is_heard {
        true => calls.supervise(line, speaker, &mut waiting).await,
        false => None,
    };
    waiting.give_back();
    open
}

/// Queued calls, not sent to the process yet.
#[derive(Debug)]
struct CallQueue {
    orders: mpsc::Receiver<QueuedCall>,
    /// The first of them.
    held: Option<QueuedCall>,
}

impl CallQueue {
    /// Returns unsent calls to their callers, for another process.
    fn give_back(mut self) {
        self.orders.close();
        let rest = std::iter::from_fn(|| self.orders.try_recv().ok());
        for QueuedCall { call, reply } in self.held.take().into_iter().chain(rest) {
            let _ = reply.send(Called::NotBegun(call.kwargs));
        }
    }
}

/// Receives the declaration of the process. `None` if it closes the channel.
async fn loaded(line: &mut MessageStream) -> Option<Result<Offered, String>> {
    Some(match line.next().await {
        Ok(Some(Message::Complete(_, offered))) => serde_json::from_value(offered)
            .map_err(|error| format!("its list of functions is malformed: {error}")),
        Ok(Some(Message::Error(_, fault))) => Err(format!("it could not be loaded: {}", fault.message)),
        Ok(None) => return None,
        Ok(Some(_)) => Err("its answer is malformed".to_owned()),
        Err(malformed) => Err(malformed.to_string()),
    })
}

/// Resolves once no one waits for the process.
async fn forgotten(offer: &mut Option<oneshot::Sender<Result<Offered, String>>>) {
    match offer {
        Some(offer) => offer.closed().await,
        None => std::future::pending().await,
    }
}

/// Unanswered calls by id, oldest first.
#[derive(Debug, Default)]
struct Calls {
    last: u64,
    open: BTreeMap<u64, Open>,
    /// Maximum number of unanswered calls.
    room: usize,
}

#[derive(Debug)]
struct Open {
    reply: oneshot::Sender<Called>,
    /// Time at which the process was sent the cancellation.
    cancellation: Option<Instant>,
}

impl Calls {
    /// Dispatches calls. Returns the unanswered ones if it was the process that closed the channel.
    async fn supervise(
        mut self,
        mut line: MessageStream,
        speaker: MessageSink,
        waiting: &mut CallQueue,
    ) -> Option<Self> {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.has_room()
                && let Some(order) = waiting.held.take()
            {
                self.begin(order, &speaker).await;
            }
            tokio::select! {
                message = line.next() => match message {
                    Ok(Some(Message::Result(id, value))) => self.answered(&id, Ok(value)),
                    Ok(Some(Message::Error(id, fault))) => self.answered(&id, Err(fault)),
                    Ok(None) => return Some(self),
                    // Any other message is a protocol violation.
                    Ok(_) | Err(_) => return None,
                },
                order = waiting.orders.recv(), if waiting.held.is_none() => {
                    waiting.held = Some(order?);
                }
                _ = looks.tick(), if !self.open.is_empty() => {
                    self.take_back(&speaker).await;
                    if self.is_stuck() {
                        return None;
                    }
                }
            }
        }
    }

    async fn begin(&mut self, QueuedCall { call, reply }: QueuedCall, speaker: &MessageSink) {
        if reply.is_closed() {
            return;
        }
        self.last += 1;
        let id = self.last;
        speaker.say(&Message::Call(Id::of(id), call)).await;
        self.open.insert(
            id,
            Open {
                reply,
                cancellation: None,
            },
        );
    }

    fn answered(&mut self, id: &Id, answer: Result<Value, CallError>) {
        // An answer with an unknown id is ignored.
        let id = self.open.keys().copied().find(|open| Id::of(*open) == *id);
        if let Some(open) = id.and_then(|id| self.open.remove(&id)) {
            let _ = open.reply.send(Called::Answered(answer));
        }
    }

    /// Cancels calls whose callers are gone.
    async fn take_back(&mut self, speaker: &MessageSink) {
        for (id, open) in &mut self.open {
            if open.cancellation.is_none() && open.reply.is_closed() {
                open.cancellation = Some(Instant::now());
                let fault = CallError::new("cancelled", "cancelled");
                speaker.say(&Message::Error(Id::of(*id), fault)).await;
            }
        }
    }

    /// Returns `true` if the process may get another call. Holds calls back while the oldest is cancelled: if
    /// it hangs, the process will be killed.
    fn has_room(&self) -> bool {
        let is_oldest_awaited = self
            .open
            .values()
            .next()
            .is_none_or(|open| !open.reply.is_closed());
        self.open.len() < self.room && is_oldest_awaited
    }

    /// Returns `true` if a cancelled call hangs. Calls that are not coroutines run in order: the oldest is
    /// the one being executed.
    fn is_stuck(&self) -> bool {
        let oldest = self.open.values().next().and_then(|open| open.cancellation);
        oldest.is_some_and(|since| since.elapsed() > GRACE)
    }
}
