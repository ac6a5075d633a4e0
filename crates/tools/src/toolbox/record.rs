//! Records one tool call in the audit log.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use ringfence_network::egress::Attempt;
use ringfence_network::redact::Redactor;
use ringfence_policy::EgressFacts;
use serde_json::Value;

use super::{Answer, Caller, ErrorKind, ToolError};
use ringfence_records::audit::{
    self, Arguments, AuditedCaller, Decision, Digest, Entry, Log, MAX_ATTEMPTS, Outcome,
};

/// Facts collected during an invocation for its record.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    attempts: Vec<String>,
    judgement: Option<String>,
    /// Set if a command is started, or about to be, on this machine itself.
    on_host: bool,
    /// Set if a person is asked for approval and has not given it.
    is_asked: bool,
    /// Set if a program was killed because its caller left, or the server stopped.
    is_cancelled: bool,
}

impl Notes {
    /// Adds attempts to reach hosts.
    pub(super) fn tried(&self, attempts: &[Attempt]) {
        let all = &mut self.noted().attempts;
        let room = MAX_ATTEMPTS.saturating_sub(all.len());
        all.extend(attempts.iter().take(room).map(Attempt::with_address));
    }

    /// Adds attempts of its program to reach hosts.
    pub(super) fn reached(&self, facts: Option<&EgressFacts>) {
        let all = &mut self.noted().attempts;
        let room = MAX_ATTEMPTS.saturating_sub(all.len());
        let attempts = facts.into_iter().flat_map(|facts| &facts.attempts);
        all.extend(attempts.take(room).map(ToString::to_string));
    }

    /// Sets the verdict of the policy.
    pub(super) fn judged(&self, judgement: String) {
        self.noted().judgement = Some(judgement);
    }

    /// Sets or clears the pending approval.
    pub(super) fn asked(&self, is_asked: bool) {
        self.noted().is_asked = is_asked;
    }

    /// Sets the outcome of a program that the call ran.
    pub(super) fn ended(&self, outcome: ringfence_policy::Outcome) {
        self.noted().is_cancelled = outcome == ringfence_policy::Outcome::Cancelled;
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record of one tool call. Dropped before its end, it records that the caller is gone.
#[derive(Debug)]
pub(super) struct CallRecord<'a> {
    log: Option<&'a Log>,
    caller: &'a Caller,
    tool: &'a str,
    arguments: Option<Arguments>,
    since: (SystemTime, Instant),
    notes: Notes,
    pub(super) decision: Decision,
}

impl<'a> CallRecord<'a> {
    pub(super) fn begin(
        log: Option<&'a Log>,
        redactor: &Redactor,
        caller: &'a Caller,
        tool: &'a str,
        arguments: &Value,
    ) -> Self {
        Self {
            log,
            caller,
            tool,
            arguments: log.map(|_| match tool {
                "host_exec" | "shell" => Arguments::of_command(arguments, redactor),
                _ => Arguments::new(arguments, redactor),
            }),
            since: (SystemTime::now(), Instant::now()),
            notes: Notes::default(),
            decision: Decision::Refused,
        }
    }

    pub(super) const fn caller(&self) -> &'a Caller {
        self.caller
    }

    /// Returns the facts collected for the record.
    pub(super) const fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Appends the record. An answer that cannot be recorded is not returned.
    pub(super) fn finish(mut self, result: Result<Answer, ToolError>) -> Result<Answer, ToolError> {
        let (outcome, error, digest) = match &result {
            Ok(answer) => {
                let outcome = match self.notes.noted().is_cancelled {
                    true => Outcome::Cancelled,
                    false => Outcome::Answered,
                };
                (outcome, None, Some(Digest::of(answer.text.as_bytes())))
            }
            Err(error) => {
                let outcome = if error.kind == ErrorKind::Cancelled {
                    Outcome::Cancelled
                } else {
                    Outcome::Failed
                };
                (outcome, Some(error.kind.as_str()), None)
            }
        };
        if let Err(error) = &result
            && error.kind.is_refusal()
            && !self.notes.noted().on_host
        {
            self.decision = Decision::Refused;
        }
        self.append(outcome, error, digest).map_err(unrecorded)?;
        result
    }

    /// Records the start of something whose end a killed process could not record. It must not start
    /// unrecorded.
    pub(super) fn begun(&self) -> Result<(), ToolError> {
        let Some(arguments) = &self.arguments else {
            self.notes.noted().on_host = true;
            return Ok(());
        };
        // Padding must not push the end of a command line out of its record.
        if !arguments.is_whole() {
            return Err(not_begun(audit::Error::Cut));
        }
        self.notes.noted().on_host = true;
        self.write(arguments, Outcome::Begun, None, None)
            .map_err(|error| {
                self.notes.noted().on_host = false;
                not_begun(error)
            })
    }

    fn append(
        &mut self,
        outcome: Outcome,
        error: Option<&str>,
        result: Option<Digest>,
    ) -> Result<(), audit::Error> {
        match self.arguments.take() {
            Some(arguments) => self.write(&arguments, outcome, error, result),
            None => Ok(()),
        }
    }

    fn write(
        &self,
        arguments: &Arguments,
        outcome: Outcome,
        error: Option<&str>,
        result: Option<Digest>,
    ) -> Result<(), audit::Error> {
        let Some(log) = self.log else {
            return Ok(());
        };
        let noted = self.notes.noted();
        let entry = Entry {
            attempts: &noted.attempts,
            judgement: noted.judgement.as_deref(),
            started: self.since.0,
            who: AuditedCaller {
                scope: self.caller.scope.as_str(),
                session: self.caller.session.as_ref().map(|session| session.as_str()),
                surface: self.caller.surface.as_str(),
                client: self.caller.client.as_deref(),
            },
            tool: self.tool,
            arguments,
            decision: if noted.is_asked {
                Decision::Refused
            } else {
                self.decision
            },
            outcome,
            error,
            duration: self.since.1.elapsed(),
            result,
            on_host: noted.on_host,
        };
        log.append(&entry).map(drop)
    }
}

fn not_begun(error: audit::Error) -> ToolError {
    let kind = match error {
        audit::Error::Crowded { .. } | audit::Error::Cut => ErrorKind::LimitExceeded,
        audit::Error::File { .. }
        | audit::Error::Directory { .. }
        | audit::Error::Busy(_)
        | audit::Error::Damaged(_)
        | audit::Error::Encode(_)
        | audit::Error::TooLong
        | audit::Error::Gone { .. }
        | audit::Error::Broken(_) => ErrorKind::Internal,
    };
    let message = format!("the command was not started, for the audit log cannot record it: {error}");
    ToolError::new(kind, message, error.hint())
}

fn unrecorded(error: audit::Error) -> ToolError {
    ToolError::new(
        ErrorKind::Internal,
        format!("what the tool did could not be recorded in the audit log: {error}"),
        error.hint(),
    )
}

impl Drop for CallRecord<'_> {
    fn drop(&mut self) {
        // There is no caller left to report a failure to.
        let _ = self.append(Outcome::Cancelled, Some(ErrorKind::Cancelled.as_str()), None);
    }
}
