//! The interpreters of a sandbox, and the code that they run.

use std::sync::Arc;

use ringfence_exec::local::Chunk;
use ringfence_policy::Outcome;
use tokio::sync::{mpsc, oneshot};

use super::Sandbox;
use crate::context::{Begun, Code, Context, ContextInfo, Execution, Language, NewContext, Role};
use crate::error::Error;
use crate::id::SandboxId;

/// Warning of code whose context was there, and ended before its turn.
const LOST: &str = "the interpreter before has ended, and its state is lost: a new one ran the code";

/// A context to run code in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContextChoice {
    /// The one with this id.
    Id(String),
    /// The default one of a language.
    Default(Language),
}

impl Sandbox {
    /// Starts an interpreter, of another user than programs have by default if one is named.
    ///
    /// # Errors
    /// If there are too many, or the sandbox lacks it or the user.
    pub async fn create_context(
        &self,
        language: Language,
        cwd: Option<String>,
        user: Option<String>,
    ) -> Result<ContextInfo, Error> {
        let user = self.context_user(user)?;
        let _starting = self.starting().await?;
        let id = SandboxId::random().map_err(|error| Error::Broken(error.to_string()))?;
        let cwd = cwd.unwrap_or_else(|| self.working_directory().to_owned());
        let new = NewContext {
            id: id.to_string(),
            language,
            cwd,
            user,
            role: Role::Further,
        };
        Ok(self.contexts.create(&self.init, new).await?.info())
    }

    /// Replaces an interpreter by a new one.
    ///
    /// # Errors
    /// If there is none, the sandbox is paused, or the other one cannot be started.
    pub async fn restart_context(&self, id: &str) -> Result<ContextInfo, Error> {
        let _starting = self.starting().await?;
        let old = self.contexts.find(id)?;
        self.contexts.remove(id)?;
        let ContextInfo {
            id,
            language,
            cwd,
            user,
            ..
        } = old.info();
        let new = NewContext {
            id,
            language,
            cwd,
            user,
            role: old.role(),
        };
        Ok(self.contexts.create(&self.init, new).await?.info())
    }

    /// Returns the interpreters.
    pub fn contexts(&self) -> Vec<ContextInfo> {
        self.contexts.list()
    }

    /// Ends an interpreter.
    ///
    /// # Errors
    /// If there is none, or the sandbox is paused.
    pub fn remove_context(&self, id: &str) -> Result<(), Error> {
        self.check_running()?;
        self.contexts.remove(id)
    }

    /// Sends SIGINT to the code that a context runs.
    ///
    /// # Errors
    /// If there is no such context, or the sandbox is paused.
    pub fn interrupt(&self, context: &str) -> Result<(), Error> {
        self.check_running()?;
        self.contexts.find(context).map(|context| context.interrupt())
    }

    /// Like [`Sandbox::execute`], in a task owned by the sandbox. If the receiver is dropped, the task
    /// continues until the interrupted code has ended.
    pub fn spawn_execution(
        self: &Arc<Self>,
        context: ContextChoice,
        code: Code,
        output: mpsc::Sender<Chunk>,
    ) -> oneshot::Receiver<Result<Execution, Error>> {
        let (sender, executed) = oneshot::channel();
        let sandbox = Arc::clone(self);
        let task = async move {
            // Whoever waited may have gone.
            let _ = sender.send(sandbox.execute(context, code, output).await);
        };
        self.processes.spawn(task);
        executed
    }

    /// Runs code in a context: the one with this id, or the default one of its language, which is created for
    /// the first code, and again once its interpreter has ended. Output is streamed to `output`; if that is closed, the code is interrupted.
    ///
    /// # Errors
    /// If there is no such context, it is another user's, or it is busy.
    pub async fn execute(
        &self,
        choice: ContextChoice,
        mut code: Code,
        output: mpsc::Sender<Chunk>,
    ) -> Result<Execution, Error> {
        let user = code.user.take();
        let mut has_ended = false;
        loop {
            let starting = self.starting().await?;
            let context = self.context(&choice, user.clone()).await?;
            drop(starting);
            let turn = match (context.turn().await?, &choice) {
                (Begun::Turn(turn), _) => turn,
                (ended, choice) => {
                    self.contexts.forget(&context);
                    match (ended, choice) {
                        (_, ContextChoice::Default(_)) => has_ended = true,
                        (Begun::EndedIdle, ContextChoice::Id(_)) => return Ok(Execution::not_run()),
                        (_, ContextChoice::Id(id)) => return Err(Error::NoContext(id.clone())),
                    }
                    continue;
                }
            };
            let memory_kills = self.memory_kills();
            let mut executed = turn.execute(code, output, &self.pauses.clock()).await;
            if executed.context_ended {
                self.contexts.forget(&context);
                if executed.may_lack_memory() && memory_kills.any() {
                    executed.outcome = Outcome::MemoryExceeded;
                    executed.exit_code = -9;
                }
            }
            if has_ended {
                executed.warnings.insert(0, LOST.to_owned());
            }
            return Ok(executed);
        }
    }

    /// Returns the context that runs code as a user. A context is its user's: no other's code runs in it.
    async fn context(&self, choice: &ContextChoice, user: Option<String>) -> Result<Arc<Context>, Error> {
        let is_named = user.is_some();
        let user = self.context_user(user)?;
        let language = match choice {
            ContextChoice::Id(id) => {
                let found = self.contexts.find(id)?;
                return match is_named && found.user() != user.as_deref() {
                    true => Err(Error::OtherUser {
                        context: id.clone(),
                        own: found.user().unwrap_or(self.usual_user()).to_owned(),
                        wanted: user.unwrap_or_else(|| self.usual_user().to_owned()),
                    }),
                    false => Ok(found),
                };
            }
            ContextChoice::Default(language) => *language,
        };
        let _one_at_a_time = self.creating.lock().await;
        if let Some(found) = self.contexts.default(language, user.as_deref()) {
            return Ok(found);
        }
        let new = NewContext {
            id: match &user {
                None => language.name().to_owned(),
                Some(_) => SandboxId::random()
                    .map_err(|error| Error::Broken(error.to_string()))?
                    .to_string(),
            },
            language,
            cwd: self.working_directory().to_owned(),
            user,
            role: Role::Default,
        };
        self.contexts.create(&self.init, new).await
    }
}
