//! The result of a run, in one shape for every runtime and every surface.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Isolation, Language, Limits, RuntimeKind};

/// Classification of a run's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The program exited by itself.
    Exited,
    /// Killed, or in a session interrupted, at the timeout.
    TimedOut,
    /// Killed at the memory limit.
    MemoryExceeded,
    /// Killed by a signal.
    Signalled,
    /// Refused before it ran.
    Blocked,
    /// Cancelled by the caller.
    Cancelled,
    /// The runtime failed; the program's end is unknown.
    Unknown,
}

/// The result of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionResult {
    /// Captured standard output, up to the output limit.
    pub stdout: String,
    /// Captured standard error, and Ringfence's notices about the program's end.
    pub stderr: String,
    /// Exit status; negative for a signal, -1 for a timeout.
    pub exit_code: i32,
    /// Seconds from request to result.
    pub duration: f64,
    /// Metadata.
    pub meta: Meta,
}

/// Metadata of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Meta {
    /// The backend.
    pub runtime: String,
    /// The language.
    pub language: String,
    /// Set if standard output or standard error was truncated.
    pub truncated: bool,
    /// Set if it was killed, or in a session interrupted, at the timeout.
    pub timed_out: bool,
    /// Modules refused by the import check.
    pub blocked_imports: Vec<String>,
    /// Limits that applied to all processes of the run together.
    pub resource_limits: ResourceLimits,
    /// The isolation layers applied. `None` where another machine ran it: nothing is known of it.
    pub isolation: Option<Isolation>,
    /// Set if a machine of a service ran it, to which its code and files were sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remote: bool,
    /// The outcome.
    pub outcome: Outcome,
    /// Total bytes written to standard output, captured or not.
    pub stdout_bytes: u64,
    /// Total bytes written to standard error, captured or not.
    pub stderr_bytes: u64,
    /// Peak memory: of all processes locally, of the largest one in a container; `None` if not measured.
    pub peak_memory_bytes: Option<u64>,
    /// Processor time of all processes; `None` if not measured.
    pub cpu_seconds: Option<f64>,
    /// Path of the stored artifact. For clients of the HTTP API its name, by which the operator finds it.
    pub artifact: Option<String>,
    /// Set if a pre-started process ran it.
    pub warm: bool,
    /// Set if that process had imported the packages beforehand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preloaded: bool,
    /// Image that it ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageFacts>,
    /// Files in the program's output directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_files: Vec<OutputFile>,
    /// Set if files of the output directory could not be read or delivered; `warnings` names them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_incomplete: bool,
    /// Egress attempts, if it had a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressFacts>,
    /// Packages that were installed for it, with their versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// The session it ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionFacts>,
    /// Values of a session's evaluation that offer more than a text, and what it displayed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<RichResult>,
    /// Number of processes and threads that could not start at the limit; 0 if nothing counts them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_forks: u64,
    /// Warnings for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Remedies, if the program failed for a known cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The image that a program ran on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageFacts {
    /// Its name in full, or its digest, as the caller named it.
    pub reference: String,
    /// Digest of its configuration.
    pub digest: String,
}

/// Egress attempts of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EgressFacts {
    /// The first two hundred attempts, in order.
    pub attempts: Vec<EgressAttempt>,
    /// Number of further attempts.
    pub left_off: u64,
    /// Bytes that were sent to hosts and received from them.
    #[serde(default)]
    pub bytes: u64,
}

/// One attempt to reach a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EgressAttempt {
    /// Host and port.
    pub target: String,
    /// `connected`, `refused`, `not_found`, `unreachable`, `timed_out`, `closed` or `malformed`.
    pub verdict: String,
    /// Reason, where the verdict alone is not enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl std::fmt::Display for EgressAttempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.target, self.verdict)?;
        self.reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

impl Meta {
    /// Returns the metadata of a run that printed nothing, with no layer applied and nothing measured.
    pub fn of(runtime: RuntimeKind, language: Language, limits: Limits, outcome: Outcome) -> Self {
        Self {
            runtime: runtime.as_str().to_owned(),
            language: language.as_str().to_owned(),
            truncated: false,
            timed_out: outcome == Outcome::TimedOut,
            blocked_imports: Vec::new(),
            resource_limits: limits.into(),
            isolation: Some(Isolation::NONE),
            remote: false,
            outcome,
            stdout_bytes: 0,
            stderr_bytes: 0,
            peak_memory_bytes: None,
            cpu_seconds: None,
            artifact: None,
            warm: false,
            preloaded: false,
            image: None,
            output_files: Vec::new(),
            output_incomplete: false,
            egress: None,
            packages: Vec::new(),
            session: None,
            results: Vec::new(),
            failed_forks: 0,
            warnings: Vec::new(),
            hints: Vec::new(),
        }
    }
}

/// Session state after one evaluation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionFacts {
    /// Session id.
    pub id: String,
    /// Number of evaluations, this one included; 1 for a new session.
    pub evaluations: u64,
    /// Value of the code's last expression, as Python's `repr` writes it; `None` if there is none.
    pub value: Option<String>,
    /// Set if this evaluation was interrupted, at its timeout or on cancellation. The session lives on, with its
    /// variables.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Set if the session ended with this evaluation; its variables are lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

/// A result of an evaluation, in the formats that it offers. A guest's data: nothing here may be rendered as markup or
/// run outside of a browser's sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RichResult {
    /// Set for the value of the last expression; unset for what was displayed.
    pub main: bool,
    /// Data by MIME type: base64 for PNG, JPEG and PDF, JSON for JSON, else text.
    pub data: BTreeMap<String, serde_json::Value>,
    /// Formats that were left out, with their length in bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub omitted: BTreeMap<String, u64>,
}

impl RichResult {
    /// Returns the type and the length in bytes of each picture and document.
    pub fn documents(&self) -> impl Iterator<Item = (&'static str, usize)> {
        const DOCUMENTS: [&str; 4] = ["image/png", "image/jpeg", "image/svg+xml", "application/pdf"];
        DOCUMENTS.into_iter().filter_map(|mime| {
            let data = self.data.get(mime)?.as_str()?;
            // SVG is text, the others are encoded with four characters for three bytes.
            let length = if mime == "image/svg+xml" {
                data.len()
            } else {
                data.len() / 4 * 3
            };
            Some((mime, length))
        })
    }

    /// The format that every result has.
    pub const TEXT: &str = "text/plain";

    /// Returns the result as a text, if it has one.
    pub fn text(&self) -> Option<&str> {
        self.data.get(Self::TEXT).and_then(serde_json::Value::as_str)
    }

    /// Keeps the text alone, and the names of the other formats: for records, and for models, which would read base64.
    pub fn keep_text(&mut self) {
        let text = self.data.remove(Self::TEXT);
        for (mime, value) in std::mem::take(&mut self.data) {
            let length = value.as_str().map_or_else(|| value.to_string().len(), str::len);
            self.omitted.insert(mime, length as u64);
        }
        self.data.extend(text.map(|text| (Self::TEXT.to_owned(), text)));
    }
}

/// A file in the program's output directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputFile {
    /// Path below the output directory.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
}

/// [`Limits`] as results print them. A limit that did not apply to the run as a whole is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceLimits {
    /// Timeout, in seconds.
    pub timeout: f64,
    /// Capture limit of each stream, in bytes.
    pub max_output_bytes: u64,
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Processor cores.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Bytes in the writable directories.
    pub disk_bytes: Option<u64>,
}

impl From<Limits> for ResourceLimits {
    fn from(limits: Limits) -> Self {
        Self {
            timeout: limits.timeout.as_duration().as_secs_f64(),
            max_output_bytes: limits.max_output.0,
            memory_bytes: Some(limits.memory.0),
            cpus: Some(limits.cpus.get()),
            pids: Some(limits.pids.get()),
            disk_bytes: Some(limits.disk.0),
        }
    }
}
