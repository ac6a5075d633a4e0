//! Dispatches every tool call.
//!
//! [`Toolbox::invoke`] takes a caller, a tool's name and arguments, and does the same for every tool: it
//! validates the arguments against the tool's schema, checks the caller's permissions, runs the tool until
//! its deadline with the capabilities of its [`Call`], bounds its output, and appends a record to the audit
//! log before it returns the answer. A tool has no capability of its own: it reaches code, files and the
//! network through its [`Call`].

mod attention;
mod bridge;
mod call;
mod caller;
mod deadline_extension;
mod disk_quota;
mod egress_meter;
mod error;
mod limits;
mod parts;
mod record;
mod review;
mod sandbox;
mod schema;
mod tool;
mod watchdog;

use std::sync::Arc;
use std::time::Instant;

use ringfence_exec::backend;
use ringfence_policy::{Target, Trusted, remedy};
use ringfence_records::audit::{Decision, Log};
use serde_json::Value;

pub use attention::{Attention, Questions};
pub use call::Call;
pub(crate) use call::Executed;
pub use caller::{Caller, Surface};
pub use deadline_extension::Approvals;
pub use egress_meter::EgressMeter;
pub use error::{ErrorKind, ToolError};
pub use limits::{Allowance, AtLimit, Extension, ToolLimits};
pub use parts::{CodeLimits, CodeSettings, Parts};
pub(crate) use review::ReviewInfo;
pub use sandbox::SandboxSettings;
pub use schema::{ADVICE, wrong_arguments};
pub use tool::{Answer, Clock, Definition, Effects, ModelView, Picture, Tool};

use deadline_extension::{DeadlineExtension, End, about};
use record::CallRecord;
use watchdog::awaited;

/// The single enforcement point of tool calls.
#[derive(Debug)]
pub struct Toolbox {
    parts: Parts,
    tools: Vec<Definition>,
}

impl Toolbox {
    /// Creates a dispatcher of these tools.
    ///
    /// # Errors
    /// If `denied` names an unknown tool: a typo would leave the intended tool allowed.
    pub(crate) fn of(parts: Parts, tools: Vec<Definition>) -> Result<Self, UnknownTool> {
        let known = |name: &str| tools.iter().any(|tool| tool.name == name);
        if let Some(name) = parts.denied.iter().find(|name| !known(name)) {
            return Err(UnknownTool {
                name: name.clone(),
                known: tools.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", "),
            });
        }
        Ok(Self { parts, tools })
    }

    /// Sets the counter of bytes that tools themselves exchange with hosts. The bytes of programs are in
    /// their results.
    #[must_use]
    pub fn with_egress_meter(mut self, meter: Arc<dyn EgressMeter>) -> Self {
        self.parts.egress_meter = Some(meter);
        self
    }

    /// Closes the toolbox without a sync of the audit log's record to the disk, for a process that lives for
    /// one call. The records of commands on the host are synced all the same.
    pub fn close_without_sync(self) {
        if let Some(log) = self.parts.audit {
            log.close_without_sync();
        }
    }

    /// Returns the paths that code must not change.
    pub fn trusted(&self) -> &Trusted {
        &self.parts.code.trusted
    }

    pub fn tools(&self) -> impl Iterator<Item = &Definition> {
        let tools = self.tools.iter().filter(|tool| (tool.is_offered)(&self.parts));
        tools.filter(|tool| !self.is_denied(tool.name))
    }

    /// Returns the error if the configured runtime is unavailable and has no usable fallback.
    pub async fn unavailable(&self) -> Option<backend::Error> {
        let code = &self.parts.code;
        let target = Target::of(code.runtime);
        if code.fallback.target(&target).is_some() {
            return None;
        }
        self.parts.runner.backend().unavailable(&target).await
    }

    /// Returns `false` if no use could be recorded, so that none would be answered.
    pub fn can_record(&self) -> bool {
        self.parts.audit.as_ref().is_none_or(Log::has_room)
    }

    /// Runs a tool. Dropping the future cancels the invocation; it is recorded all the same.
    ///
    /// # Errors
    /// If the tool is refused or fails. A program that fails is an answer.
    pub async fn invoke(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Value,
        attention: Attention,
    ) -> Result<Answer, ToolError> {
        if !self.can_record() {
            return Err(ToolError::new(
                ErrorKind::RuntimeUnavailable,
                "the tool was not used: the disk of the audit log is full, so that it could not be recorded",
                "make room on the disk of the audit log",
            ));
        }
        let Parts { audit, runner, .. } = &self.parts;
        let rules = runner.rules();
        let mut recording = CallRecord::begin(audit.as_ref(), &rules.redactor, caller, tool, &arguments);
        let result = match self.admit(tool, &arguments) {
            Ok(definition) => {
                recording.decision = Decision::Allowed;
                self.run(definition, arguments, attention, &recording).await
            }
            Err(error) => Err(error),
        };
        recording.finish(result)
    }

    /// Returns the definition of a tool that exists, accepts the arguments and is allowed.
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
                match is_among(&self.parts.closed, tool) {
                    true => remedy::Tool::RunInFence,
                    false => remedy::Tool::Allow,
                },
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
        arguments: Value,
        attention: Attention,
        recording: &CallRecord<'_>,
    ) -> Result<Answer, ToolError> {
        let caller = recording.caller();
        let limits = &self.parts.limits;
        let asked = definition.asked_timeout(&arguments)?;
        let allowance = limits.allowance(definition.name, asked);
        let workspace = self.parts.workspaces.of(&caller.scope, caller.session.as_ref())?;
        let about = about(allowance, &arguments, &self.parts.runner.rules().redactor);
        let overtime = DeadlineExtension::of(allowance, attention.cancelled.clone(), about);
        let call = Call {
            toolbox: &self.parts,
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
            // The tool passes the deadline to its runner and handles cancellation itself.
            Clock::Runner => {
                let ending = async {
                    tokio::select! {
                        biased;
                        // Polled first, so that the answer reflects a person's decision.
                        end = &mut asking => overtime.set(end),
                        answer = &mut running => return answer,
                    }
                    running.await
                };
                awaited(definition.name, call.deadline, overtime.cancelled(), ending).await
            }
            Clock::Toolbox => {
                tokio::select! {
                    biased;
                    answer = running => answer,
                    () = tokio::time::sleep_until(call.deadline.into()) => Err(call.timed_out(definition.name)),
                    end = asking => Err(match end {
                        End::Cancelled => ToolError::cancelled(),
                        End::NotExtended(why) => call.not_extended(definition.name, &why),
                    }),
                }
            }
        }?;
        answer.bounded(self.parts.limits.max_output)
    }

    fn is_denied(&self, tool: &str) -> bool {
        is_among(&self.parts.denied, tool) || is_among(&self.parts.closed, tool)
    }
}

fn is_among(tools: &[String], tool: &str) -> bool {
    tools.iter().any(|other| other == tool)
}

/// A rule names a tool that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool `{name}`; the tools are {known}")]
pub struct UnknownTool {
    pub name: String,
    pub known: String,
}
