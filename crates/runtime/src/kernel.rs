//! The one door through which every tool is used.
//!
//! [`Kernel::invoke`] takes a caller, a tool's name and arguments, and does the same for every tool: arguments are
//! checked against the tool's schema, then what the caller may do, then the tool runs until its deadline with the
//! powers that it is handed, its output is bounded, and a record of it all is appended to the audit log before
//! the answer goes out. A tool has no power of its own: it reaches code, files and the network through its [`Call`].

mod bridged;
mod call;
mod caller;
mod error;
mod limits;
mod overdue;
mod overtime;
mod record;
mod review;
mod room;
mod sandbox;
mod schema;
mod tool;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ringfence_policy::{Limits, Network, Request, RuntimeKind, Trusted};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

pub use call::Call;
pub use caller::{Caller, Surface};
pub use error::{ErrorKind, ToolError};
pub use limits::{Allowance, AtLimit, Extension, ToolLimits};
pub use overtime::Approvals;
pub(crate) use review::Around;
pub use sandbox::{Fallback, SandboxSettings, place};
pub use tool::{Answer, Clock, Definition, Effects, Tool};

pub use crate::tools::NAMES as TOOL_NAMES;

use crate::approval::Asked;
use crate::audit::{self, Decision};
use crate::backend::{Backend, InContainers};
use crate::execute::Rules;
use crate::fetch::Fetcher;
use crate::host::HostSettings;
use crate::local::{Chunk, Fence};
use crate::shell::Runner;
use crate::skills::Skills;
use crate::tools;
use crate::workspaces::Workspaces;
use overdue::awaited;
use overtime::{End, Overtime, about};
use record::Recording;

/// What a kernel is made of.
#[derive(Debug)]
pub struct Parts {
    /// Where code runs.
    pub backend: Arc<dyn Backend>,
    /// Where it runs if a container is asked for; `None`: nowhere.
    pub containers: Option<Arc<dyn InContainers>>,
    /// Where it runs if Pyodide is asked for; `None`: nowhere.
    pub pyodide: Option<Arc<dyn Backend>>,
    /// What happens to code before and after it runs.
    pub rules: Rules,
    /// How code runs.
    pub code: CodeSettings,
    /// How long each tool may take, and how much it may say.
    pub limits: ToolLimits,
    /// Tools that nobody may use.
    pub denied: Vec<String>,
    /// How the tool `sandbox_exec` runs its programs; `None`: it does not, and is not offered.
    pub sandbox: Option<SandboxSettings>,
    /// What runs the commands of the tool `shell`.
    pub shell: Runner,
    /// How commands run on this machine itself; `None`: they do not, and the tool is not offered.
    pub host: Option<HostSettings>,
    /// The directories that callers work in.
    pub workspaces: Workspaces,
    /// What fetches pages, from hosts that may be reached.
    pub fetcher: Fetcher,
    /// Where directories for single runs are made.
    pub scratch: PathBuf,
    /// Whom a person's word is asked of; `None`: nobody is asked, and what would need it is refused.
    pub approvals: Option<Approvals>,
    /// The host's functions that programs may call; `None`: there are none, and their tools are not offered.
    pub skills: Option<Arc<Skills>>,
    /// What keeps a record of each use; `None` only for those who keep records themselves.
    pub audit: Option<audit::Log>,
}

/// How code runs that a tool is given.
#[derive(Debug, Clone)]
pub struct CodeSettings {
    /// What it may reach.
    pub network: Network,
    /// The backend that it runs on unless the caller names another.
    pub runtime: RuntimeKind,
    /// What happens where that is a container, and there is no container engine.
    pub fallback: Fallback,
    /// What it may use.
    pub limits: CodeLimits,
    /// How strongly it is fenced.
    pub fence: Fence,
    /// What it must leave as it is.
    pub trusted: Trusted,
    /// Variables that it sees.
    pub variables: Vec<(ringfence_policy::EnvName, String)>,
}

/// What code may use, by where it runs.
#[derive(Debug, Clone, Copy)]
pub struct CodeLimits {
    /// In the fence of this machine.
    pub local: Limits,
    /// In a container.
    pub container: Limits,
    /// In Pyodide, whose timeout is another than that of a tool.
    pub pyodide: Limits,
}

impl CodeLimits {
    fn on(&self, runtime: RuntimeKind) -> &Limits {
        match runtime {
            RuntimeKind::Docker | RuntimeKind::Podman => &self.container,
            RuntimeKind::Pyodide => &self.pyodide,
            RuntimeKind::Local | RuntimeKind::E2b => &self.local,
        }
    }
}

impl CodeSettings {
    /// Makes a request for the default backend one for this.
    fn adapt(&self, request: &mut Request, runtime: RuntimeKind) {
        let own = self.limits.on(runtime);
        let Limits {
            mut timeout,
            max_output,
            ..
        } = request.limits;
        if runtime == RuntimeKind::Pyodide {
            timeout = timeout.min(own.timeout);
        }
        request.limits = Limits {
            timeout,
            max_output,
            ..*own
        };
    }
}

/// How an invocation is connected to whoever waits for it.
#[derive(Debug, Default)]
pub struct Attention {
    /// Becomes true, or closes, when the caller takes the invocation back. `None`: never.
    pub cancelled: Option<watch::Receiver<bool>>,
    /// Where output goes while a program runs.
    pub output: Option<mpsc::Sender<Chunk>>,
    /// Where questions go that the invocation raises, if the caller has a person.
    pub questions: Option<Questions>,
    /// Where it goes what a person shall know of the invocation.
    pub notices: Option<mpsc::Sender<String>>,
}

/// Where questions go that an invocation raises.
#[derive(Debug)]
pub enum Questions {
    /// To a person who answers them there.
    Answered(mpsc::Sender<Asked>),
    /// To a person who is told of them, and may answer elsewhere: what asks only if somebody is there does not ask.
    Told(mpsc::Sender<Asked>),
}

impl Questions {
    const fn sender(&self) -> &mpsc::Sender<Asked> {
        match self {
            Self::Answered(sender) | Self::Told(sender) => sender,
        }
    }
}

/// The single enforcement point.
#[derive(Debug)]
pub struct Kernel {
    parts: Parts,
    tools: Vec<Definition>,
}

impl Kernel {
    /// A kernel with all tools.
    ///
    /// # Errors
    /// If a tool is denied that does not exist: whoever wrote that believes in a rule that is none.
    pub fn new(parts: Parts) -> Result<Self, UnknownTool> {
        let tools = tools::all();
        let known = |name: &str| tools.iter().any(|tool| tool.name == name);
        if let Some(name) = parts.denied.iter().find(|name| !known(name)) {
            return Err(UnknownTool {
                name: name.clone(),
                known: tools.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", "),
            });
        }
        Ok(Self { parts, tools })
    }

    /// What code must leave as it is.
    pub fn trusted(&self) -> &Trusted {
        &self.parts.code.trusted
    }

    /// The tools that may be used.
    pub fn tools(&self) -> impl Iterator<Item = &Definition> {
        let is_offered = |tool: &&Definition| match tool.name {
            tools::HOST_EXEC => self.parts.host.is_some(),
            tools::SANDBOX_EXEC => self.parts.sandbox.is_some(),
            tools::SEARCH_SKILLS | tools::DESCRIBE_FUNCTION => self.parts.skills.is_some(),
            _ => true,
        };
        let tools = self.tools.iter().filter(is_offered);
        tools.filter(|tool| !self.is_denied(tool.name))
    }

    /// Uses a tool. Dropping the call takes it back; it is recorded all the same.
    ///
    /// # Errors
    /// Whatever kept the tool from answering, the tool's own failure included. How a program ended is an answer.
    pub async fn invoke(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Value,
        attention: Attention,
    ) -> Result<Answer, ToolError> {
        let Parts { audit, rules, .. } = &self.parts;
        let used = (tool, &arguments);
        let mut recording = Recording::begin(audit.as_ref(), &rules.redactor, caller, used);
        let result = match self.admit(tool, &arguments) {
            Ok(definition) => {
                recording.decision = Decision::Allowed;
                self.run(definition, caller, arguments, (attention, &recording))
                    .await
            }
            Err(error) => Err(error),
        };
        recording.finish(result)
    }

    /// The tool, if it exists, may be used, and takes such arguments.
    fn admit(&self, tool: &str, arguments: &Value) -> Result<&Definition, ToolError> {
        let definition = self
            .tools
            .iter()
            .find(|definition| definition.name == tool)
            .ok_or_else(|| self.unknown(tool))?;
        definition.check(arguments)?;
        if self.is_denied(tool) {
            return Err(ToolError::new(
                ErrorKind::PermissionDenied,
                format!("the tool `{tool}` may not be used here"),
                "use another tool, or have it removed from `permissions.denied_tools`",
            ));
        }
        Ok(definition)
    }

    fn unknown(&self, tool: &str) -> ToolError {
        let known: Vec<&str> = self.tools().map(|tool| tool.name).collect();
        let shown: String = tool.chars().take(80).collect();
        ToolError::new(
            ErrorKind::NotFound,
            format!("there is no tool `{}`", shown.escape_debug()),
            format!("the tools are {}", known.join(", ")),
        )
    }

    async fn run(
        &self,
        definition: &Definition,
        caller: &Caller,
        arguments: Value,
        (attention, recording): (Attention, &Recording<'_>),
    ) -> Result<Answer, ToolError> {
        let limits = &self.parts.limits;
        let asked = definition.asked_timeout(&arguments)?;
        let allowance = limits.allowance(definition.name, asked);
        let workspace = self.parts.workspaces.of(&caller.scope, caller.session.as_ref())?;
        let about = about(allowance, &arguments, &self.parts.rules.redactor);
        let overtime = Overtime::of(allowance, attention.cancelled.clone(), about);
        let call = Call {
            kernel: &self.parts,
            caller,
            workspace,
            allowance,
            asked_beyond: asked.is_some_and(|asked| asked > limits.timeout(definition.name)),
            deadline: Instant::now() + allowance.hard.as_duration(),
            recording,
            cancelled: overtime.cancelled(),
            overtime: &overtime,
            output: attention.output,
            questions: attention.questions,
            notices: attention.notices,
        };
        let asking = overtime.end(&call, definition.name);
        let running = definition.call(&call, arguments);
        tokio::pin!(asking, running);
        let answer = match definition.clock {
            // It hands the deadline on to what it runs, and hears of a change of mind by itself.
            Clock::Runner => {
                let ending = async {
                    tokio::select! {
                        biased;
                        // First, so that the answer knows of whatever a person has said.
                        end = &mut asking => overtime.set(end),
                        answer = &mut running => return answer,
                    }
                    running.await
                };
                awaited(definition.name, call.deadline, overtime.cancelled(), ending).await
            }
            Clock::Kernel => {
                tokio::select! {
                    biased;
                    answer = running => answer,
                    () = tokio::time::sleep_until(call.deadline.into()) => Err(call.timed_out(definition.name)),
                    end = asking => Err(match end {
                        End::TakenBack => ToolError::cancelled(),
                        End::NotExtended(why) => call.not_extended(definition.name, &why),
                    }),
                }
            }
        }?;
        answer.bounded(self.parts.limits.max_output)
    }

    fn is_denied(&self, tool: &str) -> bool {
        self.parts.denied.iter().any(|denied| denied == tool)
    }
}

/// Ends when a caller takes an invocation back.
async fn taken_back(cancelled: Option<watch::Receiver<bool>>) {
    match cancelled {
        // An error means that the caller has gone.
        Some(mut cancelled) => drop(cancelled.wait_for(|cancelled| *cancelled).await),
        None => std::future::pending().await,
    }
}

/// A rule about a tool that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool `{name}`; the tools are {known}")]
pub struct UnknownTool {
    /// What was named.
    pub name: String,
    /// What there is.
    pub known: String,
}
