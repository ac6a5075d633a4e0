//! One kernel: its sandbox, its interpreter and its clients.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use ringfence_policy::{Scope, Timeout};
use ringfence_sandbox::context::Code;
use ringfence_sandbox::{ContextChoice, Error as SandboxError, Sandbox, Sandboxes, TextDecoder, rfc3339};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};

use crate::error::Error;
use crate::message::{Channel, Header, Incoming, Outgoing, VERSION};
use crate::outputs::Numbers;
use crate::peer::{Mailbox, Peer, Request};
use crate::questions;
use crate::spec::Kind;

/// Lifetime of an unused kernel's sandbox.
pub(crate) const LIFETIME: Timeout = Timeout::seconds(60 * 60);

/// Time for an interpreter to run the first code of all.
const PRELUDE: Timeout = Timeout::seconds(60);

/// Time that an answer for the front end has, such as completions.
const QUESTION: Timeout = Timeout::seconds(3);

/// Connections to a kernel.
const MAX_CONNECTIONS: usize = 16;

/// The state of a kernel, as Jupyter names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Starting,
    Idle,
    Busy,
    Restarting,
    Dead,
}

impl Status {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Restarting => "restarting",
            Self::Dead => "dead",
        }
    }
}

/// The part of a kernel that its task, its clients and its routes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: String,
    pub(crate) kind: &'static Kind,
    pub(crate) scope: Scope,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    state: Mutex<State>,
    /// Held while an interpreter starts.
    starting: tokio::sync::Mutex<()>,
    /// Number of the last cell.
    pub(crate) count: AtomicU32,
    restarts: AtomicU64,
    messages: AtomicU64,
    peers: AtomicU64,
    ended: watch::Sender<bool>,
}

/// The sandbox of a kernel, with its owner.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) scope: Scope,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) sandboxes: Arc<Sandboxes>,
}

#[derive(Debug)]
struct State {
    status: Status,
    activity: SystemTime,
    peers: Vec<Arc<Peer>>,
    interpreter: Option<Interpreter>,
}

/// The interpreter that runs the cells.
#[derive(Debug)]
struct Interpreter {
    context: String,
    version: String,
    numbers: Numbers,
}

/// A context that is no interpreter yet. Dropping it removes the context.
struct Unprepared<'a> {
    sandbox: &'a Sandbox,
    context: Option<String>,
}

impl Drop for Unprepared<'_> {
    fn drop(&mut self) {
        if let Some(context) = &self.context {
            // An error means that it has ended by itself.
            drop(self.sandbox.remove_context(context));
        }
    }
}

/// A restart under way. Dropping it ends the status.
struct Restarting<'a>(&'a Shared);

impl Drop for Restarting<'_> {
    fn drop(&mut self) {
        self.0.set_idle();
    }
}

impl Shared {
    pub(crate) fn new(id: String, kind: &'static Kind, place: Place) -> Self {
        let Place {
            scope,
            sandbox,
            sandboxes,
        } = place;
        Self {
            id,
            kind,
            scope,
            sandbox,
            sandboxes,
            state: Mutex::new(State {
                status: Status::Starting,
                activity: SystemTime::now(),
                peers: Vec::new(),
                interpreter: None,
            }),
            starting: tokio::sync::Mutex::default(),
            count: AtomicU32::new(0),
            restarts: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            peers: AtomicU64::new(0),
            ended: watch::Sender::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> Status {
        self.state().status
    }

    /// Notes that the interpreter has started.
    pub(crate) fn set_idle(&self) {
        self.note(Status::Idle);
    }

    /// Notes a status. None follows that of a dead kernel.
    fn note(&self, status: Status) {
        let mut state = self.state();
        if state.status != Status::Dead {
            state.status = status;
        }
    }

    pub(crate) fn activity(&self) -> SystemTime {
        self.state().activity
    }

    pub(crate) fn connections(&self) -> usize {
        self.state().peers.len()
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Acquire)
    }

    /// Restarts the lifetime of the kernel's sandbox.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub(crate) fn extend(&self) -> Result<(), Error> {
        let id = self.sandbox.id().as_str();
        self.sandboxes.set_timeout(&self.scope, id, LIFETIME)?;
        Ok(())
    }

    /// Ends the connections of the kernel's clients. Does not end the sandbox.
    pub(crate) fn end(&self) {
        self.state().status = Status::Dead;
        self.ended.send_replace(true);
    }

    /// Resolves when it has ended.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.subscribe();
        async move { drop(ended.wait_for(|ended| *ended).await) }
    }

    /// Subscribes a client to the kernel's messages.
    pub(crate) fn join(&self) -> Result<(Arc<Peer>, Mailbox), Error> {
        let (peer, mailbox) = Peer::new(self.peers.fetch_add(1, Ordering::Relaxed));
        let mut state = self.state();
        if state.peers.len() >= MAX_CONNECTIONS {
            return Err(Error::TooManyConnections(MAX_CONNECTIONS));
        }
        state.peers.push(Arc::clone(&peer));
        Ok((peer, mailbox))
    }

    pub(crate) fn leave(&self, peer: &Peer) {
        self.state().peers.retain(|other| other.id != peer.id);
    }

    /// Returns a message in answer to another one.
    pub(crate) fn message(&self, channel: Channel, kind: &str, parent: &Header, content: Value) -> Outgoing {
        let number = self.messages.fetch_add(1, Ordering::Relaxed);
        Outgoing {
            channel,
            header: Header {
                msg_id: format!("{}_{number}", self.id),
                msg_type: kind.to_owned(),
                username: "ringfence".to_owned(),
                session: self.id.clone(),
                date: rfc3339(SystemTime::now()),
                version: VERSION.to_owned(),
            },
            parent: Some(parent.clone()),
            metadata: Map::new(),
            content,
        }
    }

    /// Sends a message to all clients.
    pub(crate) async fn publish(&self, message: Outgoing) {
        let message = Arc::new(message);
        let peers = self.state().peers.clone();
        for peer in peers {
            peer.send(Arc::clone(&message)).await;
        }
    }

    /// Sends all clients a message of the kind that they get without asking.
    pub(crate) async fn broadcast(&self, kind: &str, parent: &Header, content: Value) {
        self.publish(self.message(Channel::Iopub, kind, parent, content))
            .await;
    }

    pub(crate) async fn set_status(&self, status: Status, parent: &Header) {
        self.note(status);
        self.state().activity = SystemTime::now();
        let content = json!({"execution_state": status.as_str()});
        self.broadcast("status", parent, content).await;
    }

    /// Answers a request on its channel.
    pub(crate) async fn reply(&self, request: &Request, kind: &str, content: Value) {
        let Incoming { header, channel, .. } = &request.message;
        let message = self.message(*channel, kind, header, content);
        request.peer.send(Arc::new(message)).await;
    }

    /// Returns the content of `kernel_info_reply`.
    pub(crate) async fn info(&self) -> Value {
        // The first cell tells of the failure.
        drop(self.interpreter().await);
        let version = {
            let state = self.state();
            state
                .interpreter
                .as_ref()
                .map(|interpreter| interpreter.version.clone())
        };
        json!({
            "status": "ok",
            "protocol_version": VERSION,
            "implementation": "ringfence",
            "implementation_version": env!("CARGO_PKG_VERSION"),
            "language_info": self.kind.language_info(&version.unwrap_or_default()),
            "banner": format!("Ringfence {}: cells run in the sandbox {}", env!("CARGO_PKG_VERSION"), self.sandbox.id()),
            "help_links": [],
            "debugger": false,
            "supported_features": [],
        })
    }

    /// Returns the id of the interpreter's context, and starts one if there is none.
    pub(crate) async fn interpreter(&self) -> Result<String, SandboxError> {
        let _one_at_a_time = self.starting.lock().await;
        if let Some(context) = self.context() {
            return Ok(context);
        }
        let made = self
            .sandbox
            .create_context(self.kind.language, None, None)
            .await?;
        let mut unprepared = Unprepared {
            sandbox: &self.sandbox,
            context: Some(made.id.clone()),
        };
        let version = match self.kind.language {
            ringfence_sandbox::context::Language::Python => self.prepare(&made.id).await?,
            _ => String::new(),
        };
        unprepared.context = None;
        self.state().interpreter = Some(Interpreter {
            context: made.id.clone(),
            version,
            numbers: Numbers::default(),
        });
        Ok(made.id)
    }

    /// Runs the first code of all, and returns the version that it prints.
    async fn prepare(&self, context: &str) -> Result<String, SandboxError> {
        let (sender, mut chunks) = mpsc::channel(16);
        let code = Code {
            code: questions::prelude(),
            user: None,
            timeout: PRELUDE,
            variables: Vec::new(),
        };
        let choice = ContextChoice::Id(context.to_owned());
        let executing = self.sandbox.spawn_execution(choice, code, sender);
        let (mut decoder, mut printed) = (TextDecoder::default(), String::new());
        while let Some(chunk) = chunks.recv().await {
            if printed.len() < 64 {
                printed.push_str(&decoder.push(&chunk.bytes));
            }
        }
        let gone = |_| SandboxError::Broken("it has ended".to_owned());
        executing.await.map_err(gone)??;
        let version = printed.trim().chars().filter(|character| !character.is_control());
        Ok(version.take(40).collect())
    }

    /// Returns the id of the context of the interpreter that there is.
    fn context(&self) -> Option<String> {
        let state = self.state();
        state
            .interpreter
            .as_ref()
            .map(|interpreter| interpreter.context.clone())
    }

    /// Forgets an interpreter that has ended.
    pub(crate) fn forget(&self, context: &str) {
        self.state()
            .interpreter
            .take_if(|interpreter| interpreter.context == context);
    }

    /// Notes the number of a cell by that of its execution in a context.
    pub(crate) fn number(&self, context: &str, execution: u32, cell: u32) {
        let mut state = self.state();
        let interpreter = state.interpreter.as_mut();
        if let Some(interpreter) = interpreter.filter(|interpreter| interpreter.context == context) {
            interpreter.numbers.insert(execution, cell);
        }
    }

    /// Replaces execution numbers in a traceback with the notebook's cell numbers.
    pub(crate) fn numbered(&self, text: &str) -> String {
        match &self.state().interpreter {
            Some(interpreter) => interpreter.numbers.translate(text),
            None => text.to_owned(),
        }
    }

    /// Interrupts the code that runs, if any does.
    ///
    /// # Errors
    /// If the sandbox has ended or is paused.
    pub(crate) fn interrupt(&self) -> Result<(), Error> {
        self.extend()?;
        match self.context() {
            Some(context) => Ok(self.sandbox.interrupt(&context)?),
            None => Ok(()),
        }
    }

    /// Ends the interpreter, and starts another one. Requests that wait are not carried out; files stay.
    ///
    /// # Errors
    /// If the sandbox has ended, or the other one cannot be started.
    pub(crate) async fn restart(&self) -> Result<(), Error> {
        self.extend()?;
        let none = Header::default();
        self.restarts.fetch_add(1, Ordering::AcqRel);
        // A client that leaves meanwhile drops this future.
        let _restarting = Restarting(self);
        self.set_status(Status::Restarting, &none).await;
        let old = self.state().interpreter.take();
        if let Some(old) = old {
            // An error means that it has ended by itself.
            drop(self.sandbox.remove_context(&old.context));
        }
        self.count.store(0, Ordering::Release);
        self.interpreter().await?;
        self.set_status(Status::Idle, &none).await;
        Ok(())
    }

    /// Returns the interpreter's answer to a question about itself; empty if there is none.
    pub(crate) async fn ask(&self, function: &str, arguments: &Value) -> Map<String, Value> {
        if self.kind.language != ringfence_sandbox::context::Language::Python {
            return Map::new();
        }
        let Ok(context) = self.interpreter().await else {
            return Map::new();
        };
        let (sender, mut chunks) = mpsc::channel(16);
        let code = Code {
            code: questions::question(function, arguments),
            user: None,
            timeout: QUESTION,
            variables: Vec::new(),
        };
        let choice = ContextChoice::Id(context.clone());
        let executing = self.sandbox.spawn_execution(choice, code, sender);
        // It prints nothing that a front end asked for.
        while chunks.recv().await.is_some() {}
        match executing.await {
            Ok(Ok(execution)) => {
                if execution.context_ended {
                    self.forget(&context);
                }
                questions::answer(&execution)
            }
            Ok(Err(SandboxError::NoContext(_))) => {
                self.forget(&context);
                Map::new()
            }
            Ok(Err(_)) | Err(_) => Map::new(),
        }
    }
}
