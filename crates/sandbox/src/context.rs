//! Interpreters with state inside a sandbox: definitions of one piece of code are visible to the next.
//!
//! An interpreter is a process of the sandbox with a bridge to the server, on which it gets code and answers. It is a guest:
//! its answers are bounded and checked, and matter to its own context alone.

mod bash;
mod execution;
mod javascript;
mod python;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use ringfence_container::init::{InitClient, Process, ProcessControl, ProcessEvent};
use ringfence_exec::local::session_messages::NoAnswer;
use ringfence_exec::local::{Chunk, Imports};
use ringfence_jail::init::frames::{Program, Recipient, Start};
use ringfence_policy::timestamp::rfc3339;
use ringfence_policy::{EnvName, Outcome, Timeout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::sync::mpsc;

use execution::Answer;
pub use execution::Execution;

use super::error::Error;
use super::lock::lock;
use super::pause::{Alarm, Clock};
use super::process::{FOR_EVER, ProcessEnd};

/// Contexts of a sandbox.
const MAX: usize = 16;
/// Executions that wait for a context.
const MAX_QUEUED: usize = 16;
/// Capacity of a bridge, in bytes.
pub(crate) const BRIDGE: usize = 128 * 1024;
/// Time for code to end by itself after SIGINT, before its interpreter is killed.
const GRACE: Duration = Duration::from_secs(3);
/// `SIGINT` of signal(7).
const SIGINT: u32 = 2;
/// Warning of an execution whose value is not whole.
const CUT: &str = "the text of the value is cut";

/// The language of a context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    #[default]
    Python,
    Bash,
    Javascript,
    /// JavaScript with types, which Node.js strips from 22.13 on.
    Typescript,
}

impl Language {
    /// Returns the id of its default context.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Bash => "bash",
            Self::Javascript => "javascript",
            Self::Typescript => "typescript",
        }
    }

    /// Returns the recipient of SIGINT. Bash and Node.js wait for their children before they handle a signal
    /// themselves.
    const fn recipient(self) -> Recipient {
        match self {
            Self::Python => Recipient::Process,
            Self::Bash | Self::Javascript | Self::Typescript => Recipient::Group,
        }
    }
}

/// A description of a context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContextInfo {
    pub id: String,
    pub language: Language,
    /// Working directory at its start.
    pub cwd: String,
    /// Its user, if it is not the sandbox's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Time of its start (RFC 3339).
    pub created_at: String,
    /// Number of executions so far.
    pub executions: u32,
}

/// Code to run in a context.
#[derive(Debug, Clone, PartialEq)]
pub struct Code {
    pub code: String,
    /// User that runs it; that of the context if `None`.
    pub user: Option<String>,
    /// Time after which it is interrupted.
    pub timeout: Timeout,
    /// Variables that are set in the interpreter's environment while the code runs.
    pub variables: Vec<(EnvName, String)>,
}

/// The contexts of a sandbox.
#[derive(Debug)]
pub(crate) struct Contexts {
    /// Name or path of the sandbox's Python.
    python: String,
    /// User of the interpreters, if it differs from the sandbox's own.
    user: Option<String>,
    /// A Python that has imported the sandbox's packages, or is about to: the first context in this language.
    preloaded: Mutex<Option<Context>>,
    all: Mutex<BTreeMap<String, Arc<Context>>>,
}

/// An interpreter in a sandbox.
#[derive(Debug)]
pub(crate) struct Context {
    id: String,
    language: Language,
    cwd: String,
    /// Its user, if it is not the sandbox's.
    user: Option<String>,
    role: Role,
    created: SystemTime,
    /// For an interrupt from aside.
    control: ProcessControl,
    /// Set by such an interrupt, which may be too late for the code that it was meant for.
    interrupted: AtomicBool,
    queued: AtomicUsize,
    interpreter: tokio::sync::Mutex<Interpreter>,
}

/// The part of a context among those of its language and user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs code that names no context.
    Default,
    Further,
}

/// A context to create.
#[derive(Debug)]
pub(crate) struct NewContext {
    pub(crate) id: String,
    pub(crate) language: Language,
    pub(crate) cwd: String,
    /// Its user, if it is not the sandbox's.
    pub(crate) user: Option<String>,
    pub(crate) role: Role,
}

/// The interpreter of a new context.
struct Started<'a> {
    language: Language,
    /// Name or path of the sandbox's Python.
    python: &'a str,
    cwd: String,
    /// User of the interpreter, if it differs from that of the sandbox's init.
    user: Option<&'a str>,
    imports: Imports,
}

#[derive(Debug)]
struct Interpreter {
    process: Process,
    bridge: DuplexStream,
    executions: u32,
    /// Set if SIGINT may be pending that was meant for the execution before.
    interrupted: bool,
    ended: bool,
}

impl Contexts {
    pub(crate) fn new(python: String, user: Option<String>) -> Self {
        Self {
            python,
            user,
            preloaded: Mutex::default(),
            all: Mutex::default(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.all().len()
    }

    pub(crate) fn list(&self) -> Vec<ContextInfo> {
        self.all().values().map(|context| context.info()).collect()
    }

    pub(crate) fn find(&self, id: &str) -> Result<Arc<Context>, Error> {
        let found = self.all().get(id).cloned();
        found.ok_or_else(|| Error::NoContext(id.chars().take(80).collect()))
    }

    /// Returns the default context of a language and a user.
    pub(crate) fn default(&self, language: Language, user: Option<&str>) -> Option<Arc<Context>> {
        let is_it = |context: &&Arc<Context>| {
            context.role == Role::Default && context.language == language && context.user.as_deref() == user
        };
        self.all().values().find(is_it).cloned()
    }

    pub(crate) fn remove(&self, id: &str) -> Result<(), Error> {
        let removed = self.all().remove(id);
        let context = removed.ok_or_else(|| Error::NoContext(id.chars().take(80).collect()))?;
        context.control.kill();
        Ok(())
    }

    /// Kills all interpreters.
    pub(crate) fn clear(&self) {
        if let Some(context) = lock(&self.preloaded).take() {
            context.control.kill();
        }
        for (_, context) in std::mem::take(&mut *self.all()) {
            context.control.kill();
        }
    }

    /// Starts the Python of the first context in advance, which imports the sandbox's packages.
    pub(crate) async fn preload(&self, init: &InitClient, cwd: String) {
        let started = Started {
            language: Language::Python,
            python: &self.python,
            cwd,
            user: self.user.as_deref(),
            imports: Imports::Packages,
        };
        // Without it the first context starts one, or says why it cannot.
        if let Ok(context) = Context::start(init, started).await {
            *lock(&self.preloaded) = Some(context);
        }
    }

    /// Takes the preloaded Python for a context that can be it.
    fn take_preloaded(&self, language: Language, cwd: &str) -> Option<Context> {
        let mut preloaded = lock(&self.preloaded);
        let mut context = preloaded.take_if(|own| own.language == language && own.cwd == cwd)?;
        context.interpreter.get_mut().lives().then_some(context)
    }

    /// Starts a context.
    pub(crate) async fn create(&self, init: &InitClient, new: NewContext) -> Result<Arc<Context>, Error> {
        let NewContext {
            id,
            language,
            cwd,
            user,
            role,
        } = new;
        let is_full = |all: &BTreeMap<_, _>| all.len() >= MAX;
        if is_full(&self.all()) {
            return Err(full());
        }
        let started = Started {
            language,
            python: &self.python,
            cwd,
            user: user.as_deref().or(self.user.as_deref()),
            imports: Imports::Nothing,
        };
        let preloaded = match user {
            None => self.take_preloaded(language, &started.cwd),
            Some(_) => None,
        };
        let context = match preloaded {
            Some(preloaded) => preloaded,
            None => Context::start(init, started).await?,
        };
        let context = Arc::new(Context {
            id: id.clone(),
            created: SystemTime::now(),
            user,
            role,
            ..context
        });
        let mut all = self.all();
        if is_full(&all) {
            context.control.kill();
            return Err(full());
        }
        if all.contains_key(&id) {
            context.control.kill();
            return Err(Error::Taken(id));
        }
        all.insert(id, Arc::clone(&context));
        Ok(context)
    }

    /// Forgets a context whose interpreter has ended.
    pub(crate) fn forget(&self, context: &Arc<Context>) {
        let mut all = self.all();
        if all
            .get(&context.id)
            .is_some_and(|known| Arc::ptr_eq(known, context))
        {
            all.remove(&context.id);
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Context>>> {
        lock(&self.all)
    }
}

fn full() -> Error {
    Error::Full {
        what: "contexts",
        most: MAX,
    }
}

impl Context {
    /// Starts an interpreter, for a context without an id.
    async fn start(init: &InitClient, started: Started<'_>) -> Result<Self, Error> {
        let Started {
            language,
            python,
            cwd,
            user,
            imports,
        } = started;
        let (program, arguments) = match language {
            Language::Python => python::command(python),
            Language::Bash => bash::command(),
            Language::Javascript | Language::Typescript => javascript::command(),
        };
        let start = Start {
            arguments,
            user: user.map(str::to_owned),
            ..Start::new(Program::Command(program.clone()), cwd.clone(), FOR_EVER)
        };
        let (ours, theirs) = tokio::io::duplex(BRIDGE);
        let process = init.start(start, Some(theirs)).await;
        let process = process.map_err(|error| Error::not_started(error, program, &cwd, user))?;
        let control = process.control.clone();
        let mut interpreter = Interpreter {
            process,
            bridge: ours,
            executions: 0,
            interrupted: false,
            ended: false,
        };
        match language {
            Language::Python => python::greet(&mut interpreter.bridge, &cwd, imports).await,
            Language::Bash | Language::Javascript | Language::Typescript => {}
        }
        Ok(Self {
            id: String::new(),
            language,
            cwd,
            user: None,
            role: Role::Further,
            created: SystemTime::now(),
            control,
            interrupted: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            interpreter: tokio::sync::Mutex::new(interpreter),
        })
    }

    pub(crate) fn info(&self) -> ContextInfo {
        ContextInfo {
            id: self.id.clone(),
            language: self.language,
            cwd: self.cwd.clone(),
            user: self.user.clone(),
            created_at: rfc3339(self.created),
            executions: self
                .interpreter
                .try_lock()
                .map_or(0, |interpreter| interpreter.executions),
        }
    }

    /// Returns its user, if it is not the sandbox's.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Sends SIGINT to the code that runs. Without effect if none does.
    pub(crate) fn interrupt(&self) {
        if self.interpreter.try_lock().is_err() {
            self.interrupted.store(true, Ordering::Release);
            self.control.signal(SIGINT, self.language.recipient());
        }
    }

    /// Waits until the executions before have ended.
    ///
    /// # Errors
    /// If too many wait.
    pub(crate) async fn turn(&self) -> Result<Begun<'_>, Error> {
        let queued = Queued::enter(&self.queued).ok_or_else(|| Error::Busy(self.id.clone()))?;
        let mut interpreter = self.interpreter.lock().await;
        if interpreter.ended {
            return Ok(Begun::Ended);
        }
        if interpreter.has_ended_idle() {
            interpreter.ended = true;
            return Ok(Begun::EndedIdle);
        }
        Ok(Begun::Turn(Turn {
            context: self,
            interpreter,
            _queued: queued,
        }))
    }
}

/// The beginning of an execution.
pub(crate) enum Begun<'a> {
    Turn(Turn<'a>),
    /// An execution before has ended the interpreter, and reported it.
    Ended,
    /// The interpreter has ended since the execution before. Reported once.
    EndedIdle,
}

/// The turn of one execution in a context.
pub(crate) struct Turn<'a> {
    context: &'a Context,
    interpreter: tokio::sync::MutexGuard<'a, Interpreter>,
    _queued: Queued<'a>,
}

impl Turn<'_> {
    /// Runs code. Output is streamed to `output`; if that is closed, the code is interrupted.
    pub(crate) async fn execute(
        mut self,
        code: Code,
        output: mpsc::Sender<Chunk>,
        clock: &Clock,
    ) -> Execution {
        let interpreter = &mut *self.interpreter;
        let began = Instant::now();
        interpreter.executions += 1;
        let from_aside = self.context.interrupted.swap(false, Ordering::AcqRel);
        let after_interrupt = std::mem::take(&mut interpreter.interrupted) || from_aside;
        let number = interpreter.executions;
        let evaluating = Evaluating {
            language: self.context.language,
            number,
            after_interrupt,
            limit: clock.alarm(code.timeout.as_duration()),
            code: &code,
            output,
        };
        let ended = interpreter.evaluate(evaluating).await;
        Execution {
            execution_count: number,
            duration: began.elapsed().as_secs_f64(),
            ..ended
        }
    }
}

/// The parameters of one evaluation.
struct Evaluating<'a> {
    language: Language,
    /// Number of the evaluation in the context.
    number: u32,
    /// Set if SIGINT may be pending that was meant for the evaluation before.
    after_interrupt: bool,
    /// Time after which it is interrupted.
    limit: Alarm,
    code: &'a Code,
    output: mpsc::Sender<Chunk>,
}

impl Interpreter {
    /// Returns `true` if the process has ended since an execution. The first one reports the end of one that never worked.
    fn has_ended_idle(&mut self) -> bool {
        self.executions > 0 && self.process.task.try_join_next().is_some()
    }

    /// Returns `false` if the process has ended. Discards its output so far.
    fn lives(&mut self) -> bool {
        loop {
            match self.process.events.try_recv() {
                Ok(ProcessEvent::Output(_) | ProcessEvent::Drained) => {}
                Ok(ProcessEvent::Ended(_) | ProcessEvent::Lost(_)) => return false,
                Err(error) => return error == mpsc::error::TryRecvError::Empty,
            }
        }
    }

    /// Evaluates code, relays its output, and interrupts it at its timeout.
    async fn evaluate(&mut self, evaluating: Evaluating<'_>) -> Execution {
        let Self { process, bridge, .. } = self;
        let Evaluating {
            language,
            number,
            after_interrupt,
            limit: mut due,
            code,
            output,
        } = evaluating;
        let recipient = language.recipient();
        let asking = ask(bridge, language, number, after_interrupt, code);
        tokio::pin!(asking);
        let mut answered: Option<Result<Answer, NoAnswer>> = None;
        let mut stop: Option<Outcome> = None;
        // Output that the reader has not taken yet: the code waits, and its time goes on.
        let (mut unread, mut discarding): (Option<Chunk>, bool) = (None, false);
        let end = loop {
            let has_answer = matches!(answered, Some(Ok(_)));
            tokio::select! {
                biased;
                event = process.events.recv(), if unread.is_none() => match event {
                    Some(ProcessEvent::Output(_)) if discarding => {}
                    Some(ProcessEvent::Output(chunk)) => unread = Some(chunk),
                    Some(ProcessEvent::Drained) if has_answer => break None,
                    Some(ProcessEvent::Drained) => {}
                    Some(ProcessEvent::Ended(end)) => break Some(ProcessEnd::of(&end, false, false)),
                    Some(ProcessEvent::Lost(lost)) => break Some(ProcessEnd::unknown(&lost.to_string())),
                    None => break Some(ProcessEnd::unknown("the sandbox has ended")),
                },
                place = output.reserve(), if unread.is_some() => {
                    // Whoever has gone is noticed below.
                    if let (Ok(place), Some(chunk)) = (place, unread.take()) {
                        place.send(chunk);
                    }
                }
                answer = &mut asking, if answered.is_none() => {
                    match answer {
                        Ok(_) => process.control.drain(),
                        // The interpreter ends, or code has taken its place: the end follows.
                        Err(NoAnswer::HungUp) => {}
                        Err(NoAnswer::Nonsense) => process.control.kill(),
                    }
                    answered = Some(answer);
                }
                () = due.reached() => {
                    match stop.is_some() || has_answer {
                        true => process.control.kill(),
                        false => process.control.signal(SIGINT, recipient),
                    }
                    stop.get_or_insert(Outcome::TimedOut);
                    due.set(GRACE);
                    // A reader that does not read must not hide the end.
                    unread = None;
                    discarding = true;
                }
                () = output.closed(), if stop.is_none() && !has_answer => {
                    process.control.signal(SIGINT, recipient);
                    stop = Some(Outcome::Cancelled);
                    due.set(GRACE);
                }
            }
        };
        let execution = Execution::at_end(answered, end, stop);
        if execution.context_ended {
            process.control.kill();
        }
        self.ended = execution.context_ended;
        self.interrupted = execution.interrupted;
        execution
    }
}

/// Asks an interpreter to evaluate code.
async fn ask(
    bridge: &mut DuplexStream,
    language: Language,
    number: u32,
    after_interrupt: bool,
    code: &Code,
) -> Result<Answer, NoAnswer> {
    match language {
        Language::Python => python::evaluate(bridge, number, after_interrupt, code).await,
        Language::Bash => bash::evaluate(bridge, number, code).await,
        Language::Javascript | Language::Typescript => {
            let asked = javascript::Evaluation {
                number,
                after_interrupt,
                typed: language == Language::Typescript,
                code,
            };
            javascript::evaluate(bridge, asked).await
        }
    }
}

/// Reads an answer of at most `most` bytes, to the byte behind it.
async fn read_until(bridge: &mut DuplexStream, end: u8, most: usize) -> Result<Vec<u8>, NoAnswer> {
    let mut answer = Vec::new();
    loop {
        match bridge.read_u8().await.map_err(NoAnswer::from)? {
            byte if byte == end => return Ok(answer),
            byte if answer.len() < most => answer.push(byte),
            _ => return Err(NoAnswer::Nonsense),
        }
    }
}

/// A place in the queue of a context.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn enter(queued: &'a AtomicUsize) -> Option<Self> {
        let place = Self(queued);
        // Counted first; if there was no room, the drop of the place uncounts it.
        (queued.fetch_add(1, Ordering::AcqRel) <= MAX_QUEUED).then_some(place)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
