//! The outcome of an execution: from its interpreter's answer, or from the interpreter's end.

use ringfence_exec::local::session_messages::NoAnswer;
use ringfence_policy::{Outcome, RichResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SIGINT;
use crate::process::ProcessEnd;

/// The outcome of one execution, beside its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Execution {
    /// 0; 1 where Python or JavaScript raised an exception; the status of the last command in bash. Where the code ended its
    /// interpreter, that one's status, or the signal that killed it as a negative number.
    pub exit_code: i32,
    pub outcome: Outcome,
    /// Number of the execution in its context, from 1 on.
    pub execution_count: u32,
    /// Text of the last expression's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<RichResult>,
    /// Set if it was interrupted: the context has kept its state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Set if the interpreter has ended, and its state is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub context_ended: bool,
    /// Seconds from the beginning of the execution to its end.
    pub duration: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The answer of an interpreter to code.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u8,
    pub(super) value: Option<String>,
    pub(super) results: Vec<RichResult>,
    pub(super) warnings: Vec<String>,
}

impl Execution {
    /// Returns the outcome of an interpreter's answer, or of its end.
    pub(super) fn at_end(
        answered: Option<Result<Answer, NoAnswer>>,
        end: Option<ProcessEnd>,
        stop: Option<Outcome>,
    ) -> Self {
        match (answered, end) {
            (Some(Ok(answer)), None) => Self::of(answer, stop),
            (Some(Err(NoAnswer::Nonsense)), _) => Self::without_state(stop, None),
            (_, end) => Self::without_state(stop, end),
        }
    }

    fn of(answer: Answer, stop: Option<Outcome>) -> Self {
        Self {
            exit_code: match stop {
                Some(Outcome::TimedOut) => -1,
                Some(_) => -(SIGINT as i32),
                None => answer.status.into(),
            },
            outcome: stop.unwrap_or(Outcome::Exited),
            execution_count: 0,
            value: answer.value,
            results: answer.results,
            interrupted: stop.is_some(),
            context_ended: false,
            duration: 0.0,
            warnings: answer.warnings,
        }
    }

    /// An execution that ended its interpreter. Without an `end`, the interpreter was killed for an answer that makes no sense.
    fn without_state(stop: Option<Outcome>, end: Option<ProcessEnd>) -> Self {
        let (outcome, exit_code) = match (stop, end) {
            (Some(Outcome::TimedOut), _) => (Outcome::TimedOut, -1),
            (Some(stop), _) => (stop, 125),
            (None, Some(end)) => (end.outcome, end.exit_code),
            (None, None) => (Outcome::Unknown, 125),
        };
        Self {
            exit_code,
            outcome,
            execution_count: 0,
            value: None,
            results: Vec::new(),
            interrupted: false,
            context_ended: true,
            duration: 0.0,
            warnings: vec!["the interpreter has ended: the state of its context is lost".to_owned()],
        }
    }

    /// Returns `true` if a lack of memory may have ended the interpreter.
    pub(crate) fn may_lack_memory(&self) -> bool {
        let is_killed = self.outcome == Outcome::Signalled && self.exit_code == -9;
        self.context_ended && (is_killed || self.outcome == Outcome::Unknown)
    }

    /// The answer to code of a context whose interpreter had ended before.
    pub(crate) fn not_run() -> Self {
        Self {
            warnings: vec![
                "the interpreter had ended before, and the state of its context is lost: the code was not run"
                    .to_owned(),
            ],
            ..Self::without_state(None, None)
        }
    }
}
