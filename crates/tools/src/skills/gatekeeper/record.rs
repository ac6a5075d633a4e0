//! Records one call of a host function in the audit log.

use std::time::{Instant, SystemTime};

use ringfence_exec::bridge::Call;
use serde_json::{Value, json};

use super::super::CallError;
use super::CallInfo;
use ringfence_records::audit::{Arguments, AuditedCaller, Decision, Digest, Entry, Outcome};

/// The record of one call. Dropped before its end, it records a cancellation.
#[derive(Debug)]
pub(super) struct Record<'a> {
    visitor: CallInfo<'a>,
    tool: String,
    arguments: Option<Arguments>,
    since: (SystemTime, Instant),
    /// Decision of the gatekeeper.
    pub(super) decision: Decision,
    /// Verdict of the policy and of a person.
    pub(super) judgement: Option<String>,
}

impl<'a> Record<'a> {
    pub(super) fn begin(visitor: CallInfo<'a>, call: &Call) -> Self {
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

    /// Appends the record. A result that cannot be recorded is not returned.
    pub(super) fn finish(mut self, called: Result<Value, CallError>) -> Result<Value, CallError> {
        let (outcome, error, digest) = match &called {
            Ok(value) => (Outcome::Answered, None, Some(Digest::of_value(value))),
            Err(fault) => (Outcome::Failed, Some(fault.kind.as_str()), None),
        };
        match self.append(outcome, error, digest) {
            true => called,
            false => Err(CallError::new(
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
            who: AuditedCaller {
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
        // There is no caller left to report a failure to.
        self.append(Outcome::Cancelled, Some("cancelled"), None);
    }
}
