//! Extends a tool's deadline after a person's approval, or cancels the tool without one.

use std::sync::OnceLock;
use std::time::Instant;

use ringfence_exec::local;
use ringfence_exec::supervise::cancellation;
use ringfence_network::redact::Redactor;
use ringfence_policy::{ExecutionResult, Outcome, Timeout};
use serde_json::Value;
use tokio::sync::watch;

use super::{Allowance, Call, Extension, Questions};
use ringfence_records::approval::{Chat, Decision, Kind, Question, Service};
use ringfence_records::audit::Arguments;

/// Destination of approval requests.
#[derive(Debug, Clone)]
pub struct Approvals {
    pub service: Service,
    pub chat: Chat,
}

/// Reason to end an invocation before its hard limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The caller cancelled it.
    Cancelled,
    /// The time limit was not extended, for this reason.
    NotExtended(String),
}

/// The time of an invocation beyond its limit.
#[derive(Debug)]
pub(super) struct DeadlineExtension {
    since: Instant,
    allowance: Allowance,
    caller: Option<watch::Receiver<bool>>,
    /// Redacted arguments of the tool, for the approval request.
    about: String,
    /// Cancels the runner: set when the caller cancels or the limit is not extended.
    ended: watch::Sender<bool>,
    end: OnceLock<End>,
    /// Approver of the extension.
    extended: OnceLock<String>,
}

impl DeadlineExtension {
    pub(super) fn of(allowance: Allowance, caller: Option<watch::Receiver<bool>>, about: String) -> Self {
        Self {
            since: Instant::now(),
            allowance,
            caller,
            about,
            ended: watch::Sender::new(false),
            end: OnceLock::new(),
            extended: OnceLock::new(),
        }
    }

    /// Returns the cancellation signal of the runner.
    pub(super) fn cancelled(&self) -> Option<watch::Receiver<bool>> {
        Some(self.ended.subscribe())
    }

    /// Cancels the runner.
    pub(super) fn set(&self, end: End) {
        // The first reason wins.
        let _ = self.end.set(end);
        self.ended.send_replace(true);
    }

    /// Resolves when the invocation must end.
    pub(super) async fn end(&self, call: &Call<'_>, tool: &str) -> End {
        tokio::select! {
            biased;
            () = cancellation(self.caller.clone()) => End::Cancelled,
            why = self.not_extended(call, tool) => End::NotExtended(why),
        }
    }

    /// Resolves at a limit that is not extended, with the reason.
    async fn not_extended(&self, call: &Call<'_>, tool: &str) -> String {
        let Extension::Asked(patience) = self.allowance.extension else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until((self.since + self.allowance.limit.as_duration()).into()).await;
        match self.ask(call, tool, patience).await {
            Ok(by) => {
                let _ = self.extended.set(by);
                std::future::pending().await
            }
            Err(why) => why,
        }
    }

    /// Asks for an extension. Returns the approver, or the reason why it was not approved.
    async fn ask(&self, call: &Call<'_>, tool: &str, patience: Timeout) -> Result<String, String> {
        let approvals = call.toolbox.approvals.as_ref().ok_or(NOBODY)?;
        let failed = |error: ringfence_records::approval::Error| {
            format!("nobody could be asked to extend it: {error}")
        };
        let Approvals { service, chat } = approvals;
        let is_answered = matches!(call.questions, Some(Questions::Answered(_)));
        let scope = &call.caller.scope;
        if !is_answered && !service.is_heard(chat, scope).await.map_err(failed)? {
            return Err(NOBODY.to_owned());
        }
        let Allowance { limit, hard, .. } = self.allowance;
        let question = Question {
            kind: Kind::SoftTimeout {
                tool: tool.to_owned(),
                limit,
                cap: hard,
            },
            text: format!(
                "`{tool}` has run for {limit}, its limit; may it go on, to {hard} at most?\n{}",
                self.about
            ),
            scope: scope.clone(),
            session: call.caller.session.clone(),
            chat: chat.clone(),
            patience,
        };
        let questions = call.questions.as_ref().map(Questions::sender);
        match service.ask_with(question, questions).await.map_err(failed)? {
            Decision::Approved { by } => Ok(by),
            Decision::Rejected { by } => Err(format!("{by} was asked to extend it and said no")),
            Decision::Expired => Err(format!("nobody answered within {patience} whether to extend it")),
            Decision::Dismissed { by } => Err(format!("{by} was asked to extend it and gave no answer")),
        }
    }

    /// Reports a run that we cancelled at a limit as timed out rather than cancelled, and adds a warning if
    /// the limit was extended.
    pub(super) fn add_notices(&self, result: &mut ExecutionResult) {
        if let Some(by) = self.extended.get() {
            let Allowance { limit, hard, .. } = self.allowance;
            let warning = format!("the limit of {limit} was extended by {by}, to {hard} at most");
            result.meta.warnings.push(warning);
        }
        let Some(End::NotExtended(why)) = self.end.get() else {
            return;
        };
        if result.meta.outcome != Outcome::Cancelled {
            return;
        }
        result.meta.outcome = Outcome::TimedOut;
        result.meta.timed_out = true;
        result.exit_code = TIMED_OUT_CODE;
        let notice = format!("execution timed out after {}: {why}", self.allowance.limit);
        let ours = local::notice(Outcome::Cancelled, &result.meta.resource_limits).unwrap_or_default();
        // The last match is ours: our notice follows all output of the program.
        result.stderr = match result.stderr.rsplit_once(&ours) {
            Some((before, behind)) => format!("{before}{notice}{behind}"),
            None => format!("{}{notice}\n", result.stderr),
        };
    }
}

/// Renders a tool's arguments for the approval request: redacted and truncated.
pub(super) fn about(allowance: Allowance, arguments: &Value, redactor: &Redactor) -> String {
    if !matches!(allowance.extension, Extension::Asked(_)) {
        return String::new();
    }
    let mut text = Arguments::new(arguments, redactor).shown().to_string();
    if text.len() > MAX_ABOUT {
        text.truncate(text.floor_char_boundary(MAX_ABOUT));
        text.push_str(" … (cut)");
    }
    text
}

/// Maximum length of shown arguments, in bytes.
const MAX_ABOUT: usize = 4 * 1024;

const NOBODY: &str = "no gateway is connected through which somebody could be asked to extend it";

/// Exit code of a run that timed out.
const TIMED_OUT_CODE: i32 = -1;
