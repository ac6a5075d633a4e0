//! One call on its way into the audit log.

use std::time::{Instant, SystemTime};

use serde_json::{Value, json};

use super::super::Fault;
use super::Visitor;
use crate::audit::{Arguments, Decision, Digest, Entry, Outcome, Who};
use crate::bridge::Call;

/// One call. If it is dropped before its end, nobody waits for it any more, and that is recorded.
#[derive(Debug)]
pub(super) struct Record<'a> {
    visitor: Visitor<'a>,
    tool: String,
    arguments: Option<Arguments>,
    since: (SystemTime, Instant),
    /// Whether it was let through.
    pub(super) decision: Decision,
    /// What the policy, and a person, said of it.
    pub(super) judgement: Option<String>,
}

impl<'a> Record<'a> {
    pub(super) fn begin(visitor: Visitor<'a>, call: &Call) -> Self {
        let given = || json!({"args": call.args, "kwargs": call.kwargs});
        Self {
            visitor,
            tool: format!("device.{}", call.path),
            arguments: visitor.audit.map(|_| Arguments::new(&given(), visitor.redactor)),
            since: (SystemTime::now(), Instant::now()),
            decision: Decision::Refused,
            judgement: None,
        }
    }

    /// Records what came of it. A result that could not be recorded does not go out.
    pub(super) fn finish(mut self, called: Result<Value, Fault>) -> Result<Value, Fault> {
        let (outcome, error, digest) = match &called {
            Ok(value) => (Outcome::Answered, None, Some(Digest::of_value(value))),
            Err(fault) => (Outcome::Failed, Some(fault.kind.as_str()), None),
        };
        match self.append(outcome, error, digest) {
            true => called,
            false => Err(Fault::new(
                "failed",
                "the call could not be recorded in the audit log",
            )),
        }
    }

    fn append(&mut self, outcome: Outcome, error: Option<&str>, result: Option<Digest>) -> bool {
        let (Some(log), Some(arguments)) = (self.visitor.audit, self.arguments.take()) else {
            return true;
        };
        let caller = self.visitor.caller;
        let entry = Entry {
            attempts: &[],
            judgement: self.judgement.as_deref(),
            started: self.since.0,
            who: Who {
                scope: caller.scope.as_str(),
                session: caller.session.as_ref().map(|session| session.as_str()),
                surface: caller.surface.as_str(),
                client: caller.client.as_deref(),
            },
            tool: &self.tool,
            arguments: &arguments,
            decision: self.decision,
            outcome,
            error,
            duration: self.since.1.elapsed(),
            result,
            on_host: false,
        };
        log.append(&entry).is_ok()
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        // Nobody is left to be told of a failure.
        self.append(Outcome::Cancelled, Some("cancelled"), None);
    }
}
