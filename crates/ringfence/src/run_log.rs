//! The records of runs in the audit log.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use ringfence_exec::local::Fence;
use ringfence_exec::runner::{EndedRun, RunLog, RunSpec};
use ringfence_network::redact::Redactor;
use ringfence_policy::{ExecutionResult, Outcome as End};
use ringfence_records::audit::{Arguments, AuditedCaller, Decision, Digest, Entry, Limits, Log, Outcome};
use ringfence_tools::toolbox::{ErrorKind, Surface};
use serde_json::{Value, json};

use crate::audit;
use crate::context::Context;
use crate::failure::Error;

/// Name of runs in the audit log, where calls have that of their tool.
const RUN: &str = "run";

/// Appends the records of runs to the audit log, which is opened at the first.
///
/// A record is in the file at once, and on the disk when the kernel writes it back: a sync would take longer than a
/// run.
#[derive(Debug)]
pub struct AuditedRuns {
    directory: PathBuf,
    limits: Limits,
    redactor: Redactor,
    surface: Surface,
    log: Mutex<Option<Log>>,
}

impl AuditedRuns {
    /// Creates the log of runs that `surface` asks for.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub fn new(surface: Surface, context: &Context) -> Result<Self, Error> {
        Ok(Self {
            directory: audit::directory(context)?,
            limits: audit::limits(context)?,
            redactor: Redactor::from_environment(context.environment.lossy_pairs()),
            surface,
            log: Mutex::default(),
        })
    }
}

impl RunLog for AuditedRuns {
    fn append(&self, run: &EndedRun<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match log.take() {
            Some(log) => log,
            None => Log::open(&self.directory, self.limits)?,
        };
        let arguments = Arguments::new(&described(run.spec), &self.redactor);
        let attempts = attempts(run.result.ok());
        let (decision, outcome, error) = verdict(run);
        log.insert(opened).append(&Entry {
            started: run.started,
            who: AuditedCaller {
                scope: run.spec.request.scope.as_str(),
                session: None,
                surface: self.surface.as_str(),
                client: None,
            },
            tool: RUN,
            arguments: &arguments,
            attempts: &attempts,
            judgement: None,
            decision,
            outcome,
            error: error.map(ErrorKind::as_str),
            duration: run.duration,
            result: run.result.ok().map(|result| Digest::of(result.stdout.as_bytes())),
            on_host: false,
        })?;
        Ok(())
    }
}

impl Drop for AuditedRuns {
    fn drop(&mut self) {
        if let Some(log) = self.log.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            log.close_without_sync();
        }
    }
}

/// Returns the arguments of a run's record. Environment variables are left out: most are credentials.
fn described(spec: &RunSpec) -> Value {
    let request = &spec.request;
    let mut described = json!({
        "code": request.code,
        "name": request.name,
        "language": request.language,
        "runtime": spec.target.runtime(),
    });
    let mounts: Vec<String> = request.mounts.iter().map(ToString::to_string).collect();
    let session = request.session.as_ref().map(|session| session.as_str());
    let optional = [
        ("args", (!request.args.is_empty()).then(|| json!(request.args))),
        ("session", session.map(Value::from)),
        ("workspace", request.workspace.as_deref().map(shown)),
        (
            "output",
            spec.output_directory.as_ref().map(|output| shown(&output.path)),
        ),
        ("mounts", (!mounts.is_empty()).then(|| json!(mounts))),
        (
            "unfenced",
            (spec.fence == Fence::Unfenced).then_some(Value::Bool(true)),
        ),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            described[name] = value;
        }
    }
    described
}

fn shown(path: &std::path::Path) -> Value {
    path.display().to_string().into()
}

/// Returns the program's attempts to reach hosts.
fn attempts(result: Option<&ExecutionResult>) -> Vec<String> {
    let egress = result.and_then(|result| result.meta.egress.as_ref());
    let attempts = egress.into_iter().flat_map(|facts| &facts.attempts);
    attempts.map(ToString::to_string).collect()
}

/// Returns the decision, the outcome and the kind of the error.
fn verdict(run: &EndedRun<'_>) -> (Decision, Outcome, Option<ErrorKind>) {
    let end = match run.result {
        Ok(result) => result.meta.outcome,
        Err(error) => {
            let kind = ErrorKind::from(error.reason);
            let decision = match kind.is_refusal() {
                true => Decision::Refused,
                false => Decision::Allowed,
            };
            return (decision, Outcome::Failed, Some(kind));
        }
    };
    match end {
        End::Blocked => (Decision::Refused, Outcome::Failed, Some(ErrorKind::Blocked)),
        End::Cancelled => (Decision::Allowed, Outcome::Cancelled, Some(ErrorKind::Cancelled)),
        End::Exited | End::TimedOut | End::MemoryExceeded | End::Signalled | End::Unknown => {
            (Decision::Allowed, Outcome::Answered, None)
        }
    }
}
