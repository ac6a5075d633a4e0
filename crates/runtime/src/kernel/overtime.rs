//! What happens at a tool's limit where a person may extend it: the question, and the end without a yes.

use std::sync::OnceLock;
use std::time::Instant;

use ringfence_policy::{ExecutionResult, Outcome, Timeout};
use serde_json::Value;
use tokio::sync::watch;

use super::{Allowance, Call, Extension, Questions, taken_back};
use crate::approval::{Chat, Decision, Kind, Question, Service};
use crate::audit::Arguments;
use crate::local;
use crate::redact::Redactor;

/// Whom a person's word is asked of.
#[derive(Debug, Clone)]
pub struct Approvals {
    /// Where questions are kept.
    pub service: Service,
    /// Where the person is.
    pub chat: Chat,
}

/// Why an invocation is ended before its time is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The caller took it back.
    TakenBack,
    /// Nobody extended its limit; who decided that, or what kept everybody from deciding.
    NotExtended(String),
}

/// An invocation's time beyond its limit.
#[derive(Debug)]
pub(super) struct Overtime {
    since: Instant,
    allowance: Allowance,
    caller: Option<watch::Receiver<bool>>,
    /// What the tool works on, as a person may see it.
    about: String,
    /// What a runner hears: of the caller's change of mind, and of a limit that nobody extended.
    ended: watch::Sender<bool>,
    end: OnceLock<End>,
    /// Who extended the limit.
    extended: OnceLock<String>,
}

impl Overtime {
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

    /// What tells a runner that its work is no longer wanted.
    pub(super) fn cancelled(&self) -> Option<watch::Receiver<bool>> {
        Some(self.ended.subscribe())
    }

    /// Ends the work of a runner.
    pub(super) fn set(&self, end: End) {
        // The first reason stands.
        let _ = self.end.set(end);
        self.ended.send_replace(true);
    }

    /// Ends when the invocation must.
    pub(super) async fn end(&self, call: &Call<'_>, tool: &str) -> End {
        tokio::select! {
            biased;
            () = taken_back(self.caller.clone()) => End::TakenBack,
            why = self.not_extended(call, tool) => End::NotExtended(why),
        }
    }

    /// Ends at a limit that nobody extends, saying why not.
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

    /// Asks whether the tool may go on: who said yes, or why nobody did.
    async fn ask(&self, call: &Call<'_>, tool: &str, patience: Timeout) -> Result<String, String> {
        let approvals = call.kernel.approvals.as_ref().ok_or(NOBODY)?;
        let failed = |error: crate::approval::Error| format!("nobody could be asked to extend it: {error}");
        let Approvals { service, chat } = approvals;
        let is_answered = matches!(call.questions, Some(Questions::Answered(_)));
        if !is_answered && !service.is_heard(chat).await.map_err(failed)? {
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
            scope: call.caller.scope.clone(),
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

    /// A run that we cancelled because nobody extended its limit was not taken back: it timed out.
    pub(super) fn told(&self, result: &mut ExecutionResult) {
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
        // What we said is behind everything that the program could say.
        result.stderr = match result.stderr.rsplit_once(&ours) {
            Some((before, behind)) => format!("{before}{notice}{behind}"),
            None => format!("{}{notice}\n", result.stderr),
        };
    }
}

/// A tool's arguments for the person who may be asked about it: without credentials, and cut to size.
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

/// The longest arguments that a person is shown, in bytes.
const MAX_ABOUT: usize = 4 * 1024;

/// Why nobody extended a limit where nobody is there.
const NOBODY: &str = "no gateway is connected through which somebody could be asked to extend it";

/// The exit code of a run that timed out.
const TIMED_OUT_CODE: i32 = -1;
