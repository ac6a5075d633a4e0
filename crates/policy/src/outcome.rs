//! What came of a run: the one result shape of every runtime and every surface.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Isolation, Language, Limits, RuntimeKind};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The program ended by itself.
    Exited,
    /// It was killed at its time limit.
    TimedOut,
    /// It was killed at its memory limit.
    MemoryExceeded,
    /// A signal killed it.
    Signalled,
    /// It was refused before it ran.
    Blocked,
    /// The caller took the request back.
    Cancelled,
    /// The executor broke; nothing is known of the program's end.
    Unknown,
}

/// The result of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExecutionResult {
    /// What the program wrote to standard output, as far as it was kept.
    pub stdout: String,
    /// What the program wrote to standard error, and our notices about its end.
    pub stderr: String,
    /// The program's status; negative for a signal, -1 for a timeout.
    pub exit_code: i32,
    /// Seconds from request to result.
    pub duration: f64,
    /// Everything else.
    pub meta: Meta,
}

/// Facts about a run beside its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Meta {
    /// Which backend ran it.
    pub runtime: String,
    /// The language.
    pub language: String,
    /// Whether stdout or stderr was cut.
    pub truncated: bool,
    /// Whether it was killed at its time limit.
    pub timed_out: bool,
    /// The modules that the import check refused.
    pub blocked_imports: Vec<String>,
    /// The limits that held for all processes of the run together.
    pub resource_limits: ResourceLimits,
    /// The layers of the fence that were applied.
    pub isolation: Isolation,
    /// How it ended.
    pub outcome: Outcome,
    /// All bytes written to standard output, kept or not.
    pub stdout_bytes: u64,
    /// All bytes written to standard error, kept or not.
    pub stderr_bytes: u64,
    /// The most memory in use at once: of all processes locally, of the largest one in a container; `None` where nothing
    /// measured it.
    pub peak_memory_bytes: Option<u64>,
    /// Processor time of all processes; `None` where nothing measured it.
    pub cpu_seconds: Option<f64>,
    /// Where the artifact was stored.
    pub artifact: Option<String>,
    /// Whether a process that was started beforehand ran it.
    pub warm: bool,
    /// Files that the program left in its output directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_files: Vec<OutputFile>,
    /// Files of the output directory could not be read or delivered; `warnings` names them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_incomplete: bool,
    /// What it tried to reach, where it had a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressFacts>,
    /// The session that it ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionFacts>,
    /// Things that a person should know about this run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What a program tried to reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EgressFacts {
    /// The attempts in their order; the first two hundred of them.
    pub attempts: Vec<EgressAttempt>,
    /// How many more there were.
    pub left_off: u64,
}

/// One attempt to reach a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EgressAttempt {
    /// Host and port.
    pub target: String,
    /// `connected`, `refused`, `not_found`, `unreachable`, `timed_out`, `closed` or `malformed`.
    pub verdict: String,
    /// Why, where the verdict does not say it all.
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
    /// The facts of a run of which no more is known yet: it printed nothing, and nothing fenced or measured it.
    pub fn of(runtime: RuntimeKind, language: Language, limits: Limits, outcome: Outcome) -> Self {
        Self {
            runtime: runtime.as_str().to_owned(),
            language: language.as_str().to_owned(),
            truncated: false,
            timed_out: outcome == Outcome::TimedOut,
            blocked_imports: Vec::new(),
            resource_limits: limits.into(),
            isolation: Isolation::NONE,
            outcome,
            stdout_bytes: 0,
            stderr_bytes: 0,
            peak_memory_bytes: None,
            cpu_seconds: None,
            artifact: None,
            warm: false,
            output_files: Vec::new(),
            output_incomplete: false,
            egress: None,
            session: None,
            warnings: Vec::new(),
        }
    }
}

/// What a session says of one evaluation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionFacts {
    /// Which session.
    pub id: String,
    /// How many evaluations it has seen, this one included; 1 means that it was new.
    pub evaluations: u64,
    /// The value of the code's last expression, as Python's `repr` writes it; `None` where there is none.
    pub value: Option<String>,
    /// Whether the session ended with it, and its variables are lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}

/// A file that the program left in its output directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputFile {
    /// Path below the output directory.
    pub path: String,
    /// Its length.
    pub bytes: u64,
}

/// [`Limits`] as the result prints them. One that did not hold for the run as a whole is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceLimits {
    /// Seconds.
    pub timeout: f64,
    /// Bytes kept of each stream.
    pub max_output_bytes: u64,
    /// Bytes.
    pub memory_bytes: Option<u64>,
    /// Cores.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Bytes in the writable directories.
    pub disk_bytes: u64,
}

impl From<Limits> for ResourceLimits {
    fn from(limits: Limits) -> Self {
        Self {
            timeout: limits.timeout.as_duration().as_secs_f64(),
            max_output_bytes: limits.max_output.0,
            memory_bytes: Some(limits.memory.0),
            cpus: Some(limits.cpus.get()),
            pids: Some(limits.pids.get()),
            disk_bytes: limits.disk.0,
        }
    }
}
