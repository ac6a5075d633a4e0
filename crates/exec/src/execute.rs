//! Executes one request on any backend: checks its imports, runs it, stores its artifact.

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use ringfence_policy::{ExecutionResult, Language, Meta, Outcome, Request, RuntimeKind};

use crate::artifact::{self, Record, Store, StorePolicy};
use crate::local::Fence;
use ringfence_imports::{self as imports, Findings};
use ringfence_network::redact::Redactor;

/// Configuration of the steps before and after a run.
#[derive(Debug)]
pub struct Rules {
    /// Modules that Python code may not import. `None` disables the check.
    pub blocked_imports: Option<Vec<String>>,
    /// Modules that Python code may not import in Pyodide. `None` disables the check.
    pub blocked_in_pyodide: Option<Vec<String>>,
    /// Condition under which an artifact is stored.
    pub store_policy: StorePolicy,
    pub store: Store,
    pub redactor: Redactor,
}

/// A request with its backend, its required fence and its output directory.
#[derive(Debug)]
pub struct Order {
    pub request: Request,
    /// The requested backend.
    pub runtime: RuntimeKind,
    /// Minimum strength of the fence.
    pub fence: Fence,
    /// Host directory that receives the program's output files.
    pub output_directory: Option<PathBuf>,
}

/// A request was not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("runtime_unavailable: the runtime `{runtime}` is not available: {missing}")]
    RuntimeUnavailable {
        /// The requested backend.
        runtime: RuntimeKind,
        missing: &'static str,
    },
    /// The import check failed.
    #[error(transparent)]
    Imports(#[from] imports::Error),
}

impl Error {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::RuntimeUnavailable { .. } => {
                "use the runtime `local` (an argument of the tool, `--runtime local`, or SANDBOX_TYPE=local)"
            }
            Self::Imports(_) => {
                "split the code up, or switch the check off with `sandbox.block_dangerous_imports`"
            }
        }
    }
}

/// Executes a request: checks its imports, runs it with `run`, stores its artifact.
///
/// # Errors
/// If the request could not be run. A program that fails is no error.
pub async fn execute<E: From<Error>>(
    rules: &Rules,
    order: &Order,
    run: impl AsyncFnOnce(&Order) -> Result<ExecutionResult, E>,
) -> Result<ExecutionResult, E> {
    let started = SystemTime::now();
    available(order.runtime)?;
    let mut result = match blocked(&order.request, order.runtime, rules)? {
        Some(result) => result,
        None => run(order).await?,
    };
    keep(rules, &order.request, started, &mut result);
    Ok(result)
}

/// Rejects backends that this version does not support.
fn available(runtime: RuntimeKind) -> Result<(), Error> {
    let missing = match runtime {
        RuntimeKind::Local | RuntimeKind::Docker | RuntimeKind::Podman | RuntimeKind::Pyodide => {
            return Ok(());
        }
        RuntimeKind::E2b => "this version has no E2B client yet",
    };
    Err(Error::RuntimeUnavailable { runtime, missing })
}

fn blocked(request: &Request, runtime: RuntimeKind, rules: &Rules) -> Result<Option<ExecutionResult>, Error> {
    let since = Instant::now();
    let (blocklist, setting) = match runtime {
        RuntimeKind::Pyodide => (
            &rules.blocked_in_pyodide,
            "take them out of `skills.sandbox.blocked_imports`",
        ),
        _ => (
            &rules.blocked_imports,
            "set `sandbox.block_dangerous_imports` to false",
        ),
    };
    let (Some(blocklist), Language::Python) = (blocklist, request.language) else {
        return Ok(None);
    };
    let Findings::Blocked(found) = imports::check(&request.code, blocklist)? else {
        return Ok(None);
    };
    let mut modules: Vec<String> = found.iter().map(|import| import.module.clone()).collect();
    modules.sort();
    modules.dedup();
    let stderr = imports::message(&found, setting);
    Ok(Some(ExecutionResult {
        stdout: String::new(),
        exit_code: BLOCKED_STATUS,
        duration: since.elapsed().as_secs_f64(),
        meta: Meta {
            blocked_imports: modules,
            stderr_bytes: stderr.len() as u64,
            ..Meta::of(runtime, request.language, request.limits, Outcome::Blocked)
        },
        stderr,
    }))
}

/// Exit status of a program that the import check rejected: 126, as in shells for a file that may not be
/// executed.
const BLOCKED_STATUS: i32 = 126;

/// Stores the artifact. A failure to store it becomes a warning in the result.
fn keep(rules: &Rules, request: &Request, started: SystemTime, result: &mut ExecutionResult) {
    let record = Record {
        scope: &request.scope,
        code: &request.code,
        language: request.language,
        started,
        result,
        name: &request.name,
        args: &request.args,
        env: &request
            .env
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), value.clone()))
            .collect::<Vec<_>>(),
        redactor: &rules.redactor,
    };
    match rules.store.store(rules.store_policy, &record) {
        Ok(path) => result.meta.artifact = path.map(|path| path.display().to_string()),
        Err(error) => result.meta.warnings.push(not_kept(&error)),
    }
}

fn not_kept(error: &artifact::Error) -> String {
    format!("the artifact was not kept: {error}")
}
