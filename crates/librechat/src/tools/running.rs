//! A program with tools that runs: its bridge, its output, and its calls that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_policy::{Outcome, Scope, Timeout};
use ringfence_sandbox::Sandboxes;
use ringfence_sandbox::bridge::{CallError, Id, Message, MessageSink, MessageStream};
use ringfence_sandbox::output::{self, Collected};
use ringfence_sandbox::process::Process;
use serde_json::value::RawValue;

use super::protocol::{ToolCall, ToolResult};
use crate::error::Error;
use crate::exec::KEPT;
use crate::program_sandbox::ProgramSandbox;

/// Time without a further call after which the client gets those that there are: calls that a program makes at once come together.
const BATCH_WINDOW: Duration = Duration::from_millis(20);

/// Calls that wait at a time, and the bytes of their arguments beyond which no other is read; the program waits with more.
const MAX_CALLS: usize = 64;
const MAX_BYTES: usize = 1024 * 1024;

/// A program that runs. Dropping it ends its sandbox.
pub(super) struct Running {
    pub(super) program: ProgramSandbox,
    pub(super) begun: Instant,
    process: Arc<Process>,
    /// `None` once the bridge is closed.
    messages: Option<MessageStream>,
    speaker: MessageSink,
    /// The output, to its end.
    collecting: Pin<Box<dyn Future<Output = Collected> + Send>>,
    tools: BTreeSet<String>,
    /// Calls without a result, by the ids that the client gets.
    calls: BTreeMap<String, (Id, ToolCall)>,
    /// Number of calls so far.
    count: usize,
    limit: Duration,
}

/// The end of a round.
pub(super) enum Round {
    /// The program waits for these calls.
    Calls(Vec<ToolCall>),
    Ended(Collected),
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl Running {
    pub(super) async fn start(
        program: ProgramSandbox,
        command: Vec<String>,
        tools: BTreeSet<String>,
        limit: Timeout,
    ) -> Result<Self, Error> {
        // Its time stands still while it waits for its client, so the rounds are timed.
        let new = ProgramSandbox::process(command, None);
        let (process, messages) = program.sandbox.start_with_bridge(new).await?;
        let reader = process.output.read_from(0);
        Ok(Self {
            program,
            begun: Instant::now(),
            process,
            speaker: messages.speaker(),
            messages: Some(messages),
            collecting: Box::pin(output::collect(reader, KEPT)),
            tools,
            calls: BTreeMap::new(),
            count: 0,
            limit: limit.as_duration(),
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.process.output.ended().is_none()
    }

    /// Gives the sandbox time for another round.
    pub(super) fn extend(&self, sandboxes: &Sandboxes, scope: &Scope, lifetime: Timeout) {
        // The output of a sandbox that has ended says so.
        let _ = sandboxes.set_timeout(scope, self.program.sandbox.id().as_str(), lifetime);
    }

    /// Returns the id of a result that is for no call.
    pub(super) fn unknown<'a>(&self, results: &'a [ToolResult]) -> Option<&'a str> {
        let unknown = results
            .iter()
            .find(|result| !self.calls.contains_key(&result.call_id));
        unknown.map(|result| result.call_id.as_str())
    }

    /// Hands results to the program, and lets it run until it calls tools and waits, ends, or its time is over.
    pub(super) async fn round(&mut self, results: Vec<ToolResult>) -> Round {
        let end = tokio::time::Instant::now() + self.limit;
        let handed = tokio::time::timeout_at(end, self.answer(results)).await;
        let mut batch_end = tokio::time::Instant::now();
        let mut is_late = handed.is_err();
        while !is_late {
            let has_room = self.has_room();
            let next = async {
                match &mut self.messages {
                    Some(messages) if has_room => messages.next().await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                message = next => match tokio::time::timeout_at(end, self.take(message)).await {
                    Ok(false) => {}
                    Ok(true) => {
                        batch_end = tokio::time::Instant::now() + BATCH_WINDOW;
                    }
                    // The program does not read its answers.
                    Err(_) => is_late = true,
                },
                collected = &mut self.collecting => return Round::Ended(collected),
                // Calls that the client left without a result are asked for again; withdrawn ones are gone.
                () = tokio::time::sleep_until(batch_end), if !self.calls.is_empty() => {
                    return Round::Calls(self.calls.values().map(|(_, call)| call.clone()).collect());
                }
                () = tokio::time::sleep_until(end) => is_late = true,
            }
        }
        self.process.kill();
        let mut collected = (&mut self.collecting).await;
        collected.end.outcome = Outcome::TimedOut;
        Round::Ended(collected)
    }

    /// Takes in what the program has sent. Returns `true` for a call of a tool.
    async fn take<E: fmt::Display>(&mut self, message: Result<Option<Message>, E>) -> bool {
        match message {
            Ok(Some(Message::Call(id, call))) if self.tools.contains(&call.path) => {
                match serde_json::value::to_raw_value(&call.kwargs) {
                    Ok(input) => self.note(id, call.path, input),
                    Err(error) => self.close(&error.to_string()).await,
                }
                return true;
            }
            Ok(Some(Message::Call(id, call))) => {
                let told = format!(
                    "there is no tool `{}`",
                    call.path.chars().take(80).collect::<String>()
                );
                let error = Message::Error(id, CallError::new("failed", told));
                self.speaker.say(&error).await;
            }
            // Nobody waits for this call any more; the client may have begun it.
            Ok(Some(Message::Error(id, _))) => self.calls.retain(|_, (other, _)| *other != id),
            Ok(Some(Message::Execute(..) | Message::Result(..) | Message::Complete(..))) => {
                self.close("a program sends calls and nothing else").await;
            }
            Ok(None) => self.messages = None,
            Err(error) => self.close(&error.to_string()).await,
        }
        false
    }

    /// Returns `true` if another call may be read: those that wait are kept.
    fn has_room(&self) -> bool {
        let bytes = |(_, call): &(Id, ToolCall)| call.input.get().len();
        self.calls.len() < MAX_CALLS && self.calls.values().map(bytes).sum::<usize>() < MAX_BYTES
    }

    fn note(&mut self, id: Id, tool: String, input: Box<RawValue>) {
        self.count += 1;
        let name = format!("call_{:03}", self.count);
        let call = ToolCall {
            id: name.clone(),
            name: tool,
            input,
        };
        self.calls.insert(name, (id, call));
    }

    /// Closes the bridge, behind which nothing can be told apart any more.
    async fn close(&mut self, why: &str) {
        let error = Message::Error(Id::whole(), CallError::new("closed", why));
        self.speaker.say(&error).await;
        self.messages = None;
    }

    async fn answer(&mut self, results: Vec<ToolResult>) {
        for result in results {
            let Some((id, _)) = self.calls.remove(&result.call_id) else {
                continue;
            };
            let message = match result.is_error.unwrap_or_default() {
                true => {
                    let text = result
                        .error_message
                        .unwrap_or_else(|| "the tool failed".to_owned());
                    Message::Error(id, CallError::new("failed", text))
                }
                false => Message::Result(id, result.result),
            };
            self.speaker.say(&message).await;
        }
    }
}
