//! Authorizes, limits and records every call of a host function, for one caller and one run.

mod consent;
mod record;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use ringfence_exec::bridge::{Call, Id, Malformed, Message, MessageSink, MessageStream};
use ringfence_exec::runner::{Bridge, Serving};
use ringfence_network::redact::Redactor;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, mpsc, oneshot};
use tokio::time::Instant;

use super::fault::{read_of, sanitised};
use super::table::Entry;
use super::{CallError, Function, Skills, Table};
use crate::toolbox::{Approvals, Caller};
use record::Record;
use ringfence_records::approval::PendingApproval;
use ringfence_records::audit::{Decision, Log};

/// Maximum number of concurrent calls of a run. At the limit, reading stops (backpressure).
const AT_ONCE: usize = 16;

/// Number of values in the arguments of concurrent calls from which no other call is read. One call may have as many.
const MAX_VALUES: usize = 100_000;

/// Burst allowance of the rate limit, as time ahead of the average rate.
const AHEAD: Duration = Duration::from_secs(1);

/// The caller and its channels.
#[derive(Debug, Clone, Copy)]
pub struct CallInfo<'a> {
    pub caller: &'a Caller,
    /// Audit log. `None` only for callers that keep records themselves.
    pub audit: Option<&'a Log>,
    /// Redactor of records and notices.
    pub redactor: &'a Redactor,
    /// Destination of approval requests. `None` rejects calls that need approval.
    pub approvals: Option<&'a Approvals>,
    /// Additional channel for approval requests, if the caller has a user.
    pub questions: Option<&'a mpsc::Sender<PendingApproval>>,
    /// Notices to the user.
    pub notices: Option<&'a mpsc::Sender<String>>,
}

/// Authorizes one caller's calls according to the rules.
#[derive(Debug)]
pub struct Gatekeeper<'a> {
    skills: &'a Skills,
    visitor: CallInfo<'a>,
    /// Initialized on first use: most programs call nothing.
    table: OnceCell<Table>,
    closed: OnceLock<String>,
}

/// Rate limit state of a run.
struct RunRate {
    calls: u32,
    /// Time at which the calls so far would be due at the average rate.
    due: Instant,
}

/// Serves a program until it closes its bridge or violates the protocol. Warnings name unavailable functions, and the
/// reason if the bridge was closed early.
impl Bridge for Gatekeeper<'_> {
    fn serve(&self, mut calls: MessageStream) -> Serving<'_> {
        Box::pin(async move {
            let speaker = calls.speaker();
            if let Err(why) = self.converse(&mut calls, &speaker).await {
                let fault = CallError::new("closed", why.clone());
                let _ = self.closed.set(why);
                speaker.say(&Message::Error(Id::whole(), fault)).await;
            }
        })
    }

    fn warnings(&self) -> Vec<String> {
        let closed = self.closed.get();
        let closed =
            closed.map(|why| format!("the bridge to the skills was closed before the program ended: {why}"));
        let problems = self.table.get().map(|table| table.problems.clone());
        problems.unwrap_or_default().into_iter().chain(closed).collect()
    }
}

impl<'a> Gatekeeper<'a> {
    /// Creates a gatekeeper for one run of a caller.
    pub fn new(skills: &'a Skills, visitor: CallInfo<'a>) -> Self {
        Self {
            skills,
            visitor,
            table: OnceCell::new(),
            closed: OnceLock::new(),
        }
    }

    /// Returns the functions that the caller may call; fixed on first use.
    pub async fn table(&self) -> &Table {
        let table = async || self.skills.table(&self.visitor.caller.scope).await;
        self.table.get_or_init(table).await
    }

    /// Dispatches calls. An error is the reason to close the bridge.
    async fn converse(&self, line: &mut MessageStream, speaker: &MessageSink) -> Result<(), String> {
        let mut answering = FuturesUnordered::new();
        let mut under_way: HashMap<Id, oneshot::Sender<()>> = HashMap::new();
        let mut values = 0;
        let mut visit = RunRate {
            calls: 0,
            due: Instant::now(),
        };
        loop {
            let next = async {
                tokio::time::sleep_until(visit.due - AHEAD).await;
                line.next().await
            };
            let message = tokio::select! {
                biased;
                Some((id, of_call)) = answering.next(), if !answering.is_empty() => {
                    under_way.remove(&id);
                    values -= of_call;
                    continue;
                }
                message = next, if answering.len() < AT_ONCE && values < MAX_VALUES => message,
            };
            match message.map_err(|error: Malformed| error.to_string())? {
                None => return Ok(()),
                Some(Message::Call(id, call)) => {
                    self.admit(&mut visit, &id, &call, speaker).await?;
                    let (take_back, cancellation) = oneshot::channel();
                    if under_way.insert(id.clone(), take_back).is_some() {
                        return Err("two pending calls have the same id".to_owned());
                    }
                    let of_call = call.values();
                    values += of_call;
                    let answer = self.supervise(id, call, cancellation, speaker.clone());
                    answering.push(answer.map(move |id| (id, of_call)));
                }
                // The caller cancels a call, which may have been answered meanwhile.
                Some(Message::Error(id, _)) => {
                    under_way.remove(&id).map(|take_back| take_back.send(()));
                }
                Some(Message::Execute(..) | Message::Result(..) | Message::Complete(..)) => {
                    return Err("received a message that only the host may send".to_owned());
                }
            }
        }
    }

    /// Counts a call. The first one beyond the limit gets an error, and is the last.
    async fn admit(
        &self,
        visit: &mut RunRate,
        id: &Id,
        call: &Call,
        speaker: &MessageSink,
    ) -> Result<(), String> {
        let rules = self.skills.rules();
        let pace = Duration::from_secs(1) / rules.calls_per_second.get();
        visit.due = visit.due.max(Instant::now()) + pace;
        visit.calls += 1;
        if visit.calls <= rules.max_calls.get() {
            return Ok(());
        }
        let why = format!(
            "a run may make {} calls, and this one has made them",
            rules.max_calls
        );
        let fault = CallError::new("limit_exceeded", why.clone());
        let refused = Record::begin(self.visitor, call).finish(Err(fault));
        speaker.say(&answer(id.clone(), refused)).await;
        Err(why)
    }

    /// Answers a call, and returns its id.
    async fn supervise(
        &self,
        id: Id,
        call: Call,
        cancellation: oneshot::Receiver<()>,
        speaker: MessageSink,
    ) -> Id {
        let called = tokio::select! {
            biased;
            called = self.call(call) => called,
            Ok(()) = cancellation => Err(CallError::new("cancelled", "the call was cancelled")),
        };
        speaker.say(&answer(id.clone(), called)).await;
        id
    }

    /// Calls a function, if allowed.
    ///
    /// # Errors
    /// If it is not allowed or fails. The message reveals nothing of this machine.
    pub async fn call(&self, call: Call) -> Result<Value, CallError> {
        match call.path.as_str() {
            "device.catalogue" => return Ok(self.table().await.catalogue()),
            "device.search_skills" => return self.search(&call).await,
            "device.describe_function" => return self.describe(&call).await,
            _ => {}
        }
        let mut record = Record::begin(self.visitor, &call);
        let called = self.attempt(call, &mut record).await;
        record.finish(called)
    }

    async fn attempt(&self, call: Call, record: &mut Record<'_>) -> Result<Value, CallError> {
        let table = self.table().await;
        let entry = table.entry(&call.path);
        let entry = entry.ok_or_else(|| CallError::new("not_found", table.not_found(&call.path)))?;
        let function = &*entry.function;
        let arguments = function.bind(call.args, call.kwargs).map_err(|why| {
            let called = function.signature();
            let told = sanitised(&format!("{}: {why}; it is called as {called}", function.path()));
            CallError::new("invalid_arguments", told)
        })?;
        let arguments = Value::Object(arguments);
        let judgement = consent::obtain(self.visitor, entry, &arguments, self.skills.rules()).await;
        record.judgement = Some(judgement.said);
        judgement.result?;
        record.decision = Decision::Allowed;
        self.perform(entry, arguments).await
    }

    async fn perform(&self, entry: &Entry, arguments: Value) -> Result<Value, CallError> {
        let Entry { function, skill, .. } = entry;
        let limit = self.skills.rules().call_timeout;
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            _ => serde_json::Map::new(),
        };
        let calling = skill.call(function, arguments);
        let called = tokio::time::timeout(limit.as_duration(), calling).await;
        let late = || format!("`{}` gave no result within {limit}", function.path());
        let called = called.map_err(|_| CallError::new("timeout", late()))?;
        let result = called.map_err(|fault| redacted_fault(function, fault, self.visitor.redactor))?;
        function.check_result(&result).map_err(|why| {
            let told = format!("`{}` gave what it does not promise: {why}", function.path());
            CallError::new("failed", sanitised(&told))
        })?;
        Ok(result)
    }

    async fn search(&self, call: &Call) -> Result<Value, CallError> {
        let query = words(call, "query")?;
        Ok(json!(self.table().await.search(query.unwrap_or_default())))
    }

    async fn describe(&self, call: &Call) -> Result<Value, CallError> {
        let path = words(call, "path")?.unwrap_or_default();
        let table = self.table().await;
        let function = table.function(path);
        let function = function.ok_or_else(|| CallError::new("not_found", table.not_found(path)))?;
        Ok(json!(function.description()))
    }
}

/// Returns the optional, only argument of a call: a string.
fn words<'c>(call: &'c Call, name: &str) -> Result<Option<&'c str>, CallError> {
    let given = call.args.first().or_else(|| call.kwargs.get(name));
    let alone = call.args.len() + call.kwargs.len() <= 1;
    match given {
        None if call.kwargs.is_empty() => Ok(None),
        Some(Value::String(text)) if alone => Ok(Some(text)),
        _ => Err(CallError::new(
            "invalid_arguments",
            format!("{}: it takes `{name}`, a text", call.path),
        )),
    }
}

fn answer(id: Id, called: Result<Value, CallError>) -> Message {
    match called {
        Ok(value) => Message::Result(id, value),
        Err(fault) => Message::Error(id, fault),
    }
}

/// Sanitizes and redacts a skill's own error for a program. A skill must not use the gatekeeper's error
/// kinds.
fn redacted_fault(function: &Function, fault: CallError, redactor: &Redactor) -> CallError {
    let kind = match fault.kind.as_str() {
        "unavailable" | "invalid_arguments" | "not_found" => &fault.kind,
        _ => "failed",
    };
    let message = sanitised(&redactor.redact(read_of(&fault.message)));
    CallError::new(kind, sanitised(&format!("{}: {message}", function.path())))
}

#[cfg(test)]
mod tests;
