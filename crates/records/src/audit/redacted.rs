//! Records of clients' operations without a tool, such as on sandboxes.

use std::time::{Duration, SystemTime};

use ringfence_network::redact::Redactor;
use serde_json::Value;

use super::arguments::Arguments;
use super::entry::{AuditedCaller, Decision, Entry, Outcome};
use super::error::Error;
use super::log::Log;

/// A log that redacts its records.
#[derive(Debug)]
pub struct RedactedLog {
    log: Log,
    redactor: Redactor,
}

/// One operation of a client, once it has ended.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    pub who: AuditedCaller<'a>,
    /// Name, in the place of a tool's.
    pub name: &'a str,
    pub arguments: &'a Value,
    /// Time of the request.
    pub started: SystemTime,
    pub duration: Duration,
    pub outcome: Outcome,
    /// Kind of the error, if it failed.
    pub error: Option<&'a str>,
}

impl RedactedLog {
    pub const fn new(log: Log, redactor: Redactor) -> Self {
        Self { log, redactor }
    }

    /// See [`Log::has_room`].
    pub fn has_room(&self) -> bool {
        self.log.has_room()
    }

    /// Appends the record of an operation; it is in the file on return.
    ///
    /// # Errors
    /// If it is not in the log.
    pub fn append(&self, operation: &Operation<'_>) -> Result<(), Error> {
        let appended = self.log.append(&Entry {
            started: operation.started,
            who: operation.who,
            tool: operation.name,
            arguments: &Arguments::new(operation.arguments, &self.redactor),
            attempts: &[],
            judgement: None,
            decision: Decision::Allowed,
            outcome: operation.outcome,
            error: operation.error,
            duration: operation.duration,
            result: None,
            on_host: false,
        });
        appended.map(drop)
    }
}
