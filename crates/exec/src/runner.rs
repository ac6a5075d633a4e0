//! The way of a request on any backend: its fallback, the import check, the bridge, the run, the artifact, the record.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ringfence_imports::{self as imports, Findings};
use ringfence_network::redact::Redactor;
use ringfence_policy::{
    ExecutionResult, Family, Language, Meta, Outcome, Remedy, Request, RuntimeKind, Target, remedy,
};

use crate::artifact::{self, Record, Store, StorePolicy};
use crate::backend::{Backend, Error};
use crate::bridge::MessageStream;
use crate::local::Connection;
pub use crate::spec::{OutputDirectory, RunSpec};

/// Configuration of the steps before and after a run.
#[derive(Debug)]
pub struct Rules {
    /// Modules that Python code may not import. `None` disables the check.
    pub blocked_imports: Option<Vec<String>>,
    /// Modules that Python code may not import in Pyodide. `None` disables the check.
    pub blocked_in_pyodide: Option<Vec<String>>,
    /// If unset, programs of the target Pyodide run in the local fence, with a warning.
    pub pyodide: bool,
    /// Condition under which an artifact is stored.
    pub store_policy: StorePolicy,
    pub store: Store,
    pub redactor: Redactor,
    /// Log of runs. `None` only for callers that keep records themselves.
    pub log: Option<Arc<dyn RunLog>>,
}

/// An append-only log of runs.
pub trait RunLog: fmt::Debug + Send + Sync {
    /// Appends the record of a run.
    ///
    /// # Errors
    /// If the whole record is not in the log.
    fn append(&self, run: &EndedRun<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;
}

/// A run that has ended, for its record.
#[derive(Debug, Clone, Copy)]
pub struct EndedRun<'a> {
    /// Specification that ran: the fallback, if that replaced the target.
    pub spec: &'a RunSpec,
    pub started: SystemTime,
    /// Time from the request to the result, the artifact included.
    pub duration: Duration,
    pub result: Result<&'a ExecutionResult, &'a Error>,
}

/// The functions of the host that a program may call while it runs.
pub trait Bridge: Sync {
    /// Serves the calls of one program, until it closes its end.
    fn serve(&self, calls: MessageStream) -> Serving<'_>;

    /// Returns warnings about the calls, for the program's result.
    fn warnings(&self) -> Vec<String>;
}

/// A future that serves a program's calls.
pub type Serving<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Additions of a surface to a run.
#[derive(Clone, Copy, Default)]
pub struct Hooks<'a> {
    /// Serves the functions of the host that the program calls. `None`: it has none.
    pub bridge: Option<&'a dyn Bridge>,
    /// Completes the result of a program that ran, before it is stored.
    pub complete: Option<&'a (dyn Fn(&mut ExecutionResult) + Sync)>,
}

impl fmt::Debug for Hooks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("bridge", &self.bridge.is_some())
            .field("complete", &self.complete.is_some())
            .finish()
    }
}

/// Runs requests of all origins. Every program that is checked and recorded goes through [`Runner::run`].
#[derive(Debug)]
pub struct Runner {
    backend: Arc<dyn Backend>,
    rules: Rules,
}

impl Runner {
    /// Creates a runner of requests on `backend`.
    pub fn new(backend: Arc<dyn Backend>, rules: Rules) -> Self {
        Self { backend, rules }
    }

    /// Returns the backend.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Returns the rules of runs.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Runs a request to completion: on its target or, if that is unavailable, on its fallback; with the import
    /// check before, a bridge beside, the artifact and the record after it. A failure to record the run becomes a
    /// warning in its result.
    ///
    /// # Errors
    /// If the request could not be run. A program that fails is not an error.
    pub async fn run(
        &self,
        spec: &RunSpec,
        hooks: Hooks<'_>,
        connection: Connection,
    ) -> Result<ExecutionResult, Error> {
        let started = SystemTime::now();
        let since = Instant::now();
        let (spec, replaced) = self.available(spec).await;
        let mut result = self.checked(spec, hooks, connection).await;
        if let Ok(result) = &mut result {
            result.meta.warnings.extend(replaced);
            keep(&self.rules, &spec.request, started, result);
        }
        let unrecorded = self.record(EndedRun {
            spec,
            started,
            duration: since.elapsed(),
            result: result.as_ref(),
        });
        match unrecorded {
            Some(warning) => with_warning(result, warning),
            None => result,
        }
    }

    /// Runs a program on the backend, unless it imports a blocked module.
    async fn checked(
        &self,
        spec: &RunSpec,
        hooks: Hooks<'_>,
        connection: Connection,
    ) -> Result<ExecutionResult, Error> {
        match blocked(&spec.request, spec.target.runtime(), &self.rules)? {
            Some(result) => Ok(result),
            None => self.dispatch(spec, hooks, connection).await,
        }
    }

    /// Appends the record of a run. Returns a warning if it could not be appended.
    fn record(&self, run: EndedRun<'_>) -> Option<String> {
        let error = self.rules.log.as_ref()?.append(&run).err()?;
        Some(format!("the run is not in the audit log: {error}"))
    }

    /// Returns the specification, or its fallback and a warning if the target is unavailable.
    async fn available<'s>(&self, spec: &'s RunSpec) -> (&'s RunSpec, Option<String>) {
        let Some(fallback) = &spec.fallback else {
            return (spec, None);
        };
        match self.backend.unavailable(&spec.target).await {
            Some(error) => (fallback, Some(replaced(&error.message, "fenced"))),
            None => (spec, None),
        }
    }

    /// Runs a program on the backend.
    async fn dispatch(
        &self,
        spec: &RunSpec,
        hooks: Hooks<'_>,
        connection: Connection,
    ) -> Result<ExecutionResult, Error> {
        let mut result = if spec.target == Target::Pyodide && !self.rules.pyodide {
            let spec = RunSpec {
                target: Target::Local,
                ..spec.clone()
            };
            let mut result = self.bridged(&spec, hooks.bridge, connection).await?;
            result.meta.warnings.push(NOT_IN_PYODIDE.to_owned());
            result
        } else {
            self.bridged(spec, hooks.bridge, connection).await?
        };
        if let Some(complete) = hooks.complete {
            complete(&mut result);
        }
        Ok(result)
    }

    /// Runs a program on the backend, with a bridge if it can use one.
    async fn bridged(
        &self,
        spec: &RunSpec,
        bridge: Option<&dyn Bridge>,
        connection: Connection,
    ) -> Result<ExecutionResult, Error> {
        let Some(bridge) = bridge.filter(|_| spec.has_bridge()) else {
            return self.backend.run(spec, connection).await;
        };
        let (calls, channel) = crate::bridge::bridge();
        let connection = Connection {
            bridge: Some(channel),
            ..connection
        };
        let mut running = self.backend.run(spec, connection);
        let mut result = tokio::select! {
            // Calls in progress are cancelled when the program ends.
            result = &mut running => result,
            () = bridge.serve(calls) => running.await,
        }?;
        result.meta.warnings.extend(bridge.warnings());
        Ok(result)
    }
}

const NOT_IN_PYODIDE: &str = "NOT IN PYODIDE: Pyodide is switched off, for development alone; the local fence was all that \
                              held this program";

/// Renders the warning that a fallback replaced a container.
pub fn replaced(why: &str, by: &str) -> String {
    format!("there was no container ({why}); as configured, the {by} runner ran it instead")
}

/// Returns the result of a program that imports a blocked module.
fn blocked(
    request: &Request,
    runtime: RuntimeKind,
    rules: &Rules,
) -> Result<Option<ExecutionResult>, imports::Error> {
    let since = Instant::now();
    let (blocklist, remedy) = match runtime.traits().family {
        Family::Pyodide => (&rules.blocked_in_pyodide, remedy::Run::UnblockImportsInPyodide),
        Family::General | Family::Container | Family::Remote => {
            (&rules.blocked_imports, remedy::Run::UnblockImports)
        }
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
    let stderr = imports::message(&found, &Remedy::from(remedy).person());
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

/// Adds a warning to a result, or to an error's message.
fn with_warning(result: Result<ExecutionResult, Error>, warning: String) -> Result<ExecutionResult, Error> {
    match result {
        Ok(mut result) => {
            result.meta.warnings.push(warning);
            Ok(result)
        }
        Err(error) => Err(Error {
            message: format!("{}; {warning}", error.message),
            ..error
        }),
    }
}

/// Renders an error of the store without its path: the result may go to another machine.
fn not_kept(error: &artifact::Error) -> String {
    let cause = match error {
        artifact::Error::File { step, source, .. } => format!("cannot {step} its file: {source}"),
        other => other.to_string(),
    };
    format!("the artifact was not kept: {cause}")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ringfence_policy::EngineKind;

    use crate::local::Fence;

    use super::*;
    use crate::artifact::Keep;
    use crate::backend::{Fingerprint, Reason, Running, Unavailable};

    /// A backend without container engines, which records where each request ran.
    #[derive(Debug, Default)]
    struct Fake(Mutex<Vec<RuntimeKind>>);

    impl Backend for Fake {
        fn run<'a>(&'a self, spec: &'a RunSpec, connection: Connection) -> Running<'a> {
            self.0.lock().unwrap().push(spec.target.runtime());
            Box::pin(async move {
                let meta = Meta::of(
                    spec.target.runtime(),
                    spec.request.language,
                    spec.request.limits,
                    Outcome::Exited,
                );
                Ok(ExecutionResult {
                    stdout: match connection.bridge {
                        Some(_) => "bridged",
                        None => "alone",
                    }
                    .to_owned(),
                    stderr: String::new(),
                    exit_code: 0,
                    duration: 0.0,
                    meta,
                })
            })
        }

        fn unavailable<'a>(&'a self, target: &'a Target) -> Unavailable<'a> {
            let error = matches!(target, Target::Container { .. }).then(|| Error {
                reason: Reason::Unavailable,
                message: "nobody answers".to_owned(),
                hint: "".into(),
            });
            Box::pin(std::future::ready(error))
        }

        fn fingerprint(&self, _: &RunSpec) -> Option<Fingerprint> {
            None
        }
    }

    /// A bridge whose program never calls.
    struct Silent;

    impl Bridge for Silent {
        fn serve(&self, _: MessageStream) -> Serving<'_> {
            Box::pin(std::future::pending())
        }

        fn warnings(&self) -> Vec<String> {
            vec!["a function is missing".to_owned()]
        }
    }

    fn runner(directory: &std::path::Path, pyodide: bool) -> (Arc<Fake>, Runner) {
        let backend = Arc::new(Fake::default());
        let rules = Rules {
            blocked_imports: Some(vec!["socket".to_owned()]),
            blocked_in_pyodide: None,
            pyodide,
            store_policy: StorePolicy::Always,
            store: Store::new(directory, Keep::DEFAULT),
            redactor: Redactor::from_environment([]),
            log: None,
        };
        (Arc::clone(&backend), Runner::new(backend, rules))
    }

    fn spec(code: &str, target: Target) -> RunSpec {
        RunSpec::new(Request::new(Language::Python, code), target, Fence::Default)
    }

    #[tokio::test]
    async fn a_fallback_runs_only_where_the_target_is_unavailable() {
        let directory = tempfile::tempdir().unwrap();
        let (backend, runner) = runner(directory.path(), true);
        let docker = Target::of(RuntimeKind::Docker);
        let check = async |target: Target, expected: RuntimeKind, warnings: usize| {
            let spec = RunSpec {
                fallback: Some(Box::new(spec("1", Target::Local))),
                ..spec("1", target)
            };
            let result = runner
                .run(&spec, Hooks::default(), Connection::none())
                .await
                .unwrap();
            assert_eq!(backend.0.lock().unwrap().pop(), Some(expected));
            assert_eq!(result.meta.warnings.len(), warnings, "{:?}", result.meta.warnings);
        };
        check(docker.clone(), RuntimeKind::Local, 1).await;
        check(Target::Pyodide, RuntimeKind::Pyodide, 0).await;
        // Without a fallback the backend reports why.
        let alone = spec("1", docker);
        runner
            .run(&alone, Hooks::default(), Connection::none())
            .await
            .unwrap();
        assert_eq!(
            backend.0.lock().unwrap().pop(),
            Some(EngineKind::Docker.runtime())
        );
    }

    #[tokio::test]
    async fn a_blocked_program_reaches_no_backend() {
        let directory = tempfile::tempdir().unwrap();
        let (backend, runner) = runner(directory.path(), true);
        let blocked = spec("import socket", Target::Local);
        let result = runner
            .run(&blocked, Hooks::default(), Connection::none())
            .await
            .unwrap();
        assert_eq!(result.meta.outcome, Outcome::Blocked);
        assert!(backend.0.lock().unwrap().is_empty());
        // Pyodide has a list of its own.
        let allowed = spec("import socket", Target::Pyodide);
        let result = runner
            .run(&allowed, Hooks::default(), Connection::none())
            .await
            .unwrap();
        assert_eq!(result.meta.outcome, Outcome::Exited);
    }

    /// A log that keeps the outcomes of runs, up to a number of them.
    #[derive(Debug)]
    struct BoundedLog {
        outcomes: Mutex<Vec<Option<Outcome>>>,
        most: usize,
    }

    impl RunLog for BoundedLog {
        fn append(&self, run: &EndedRun<'_>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            let mut outcomes = self.outcomes.lock().unwrap();
            if outcomes.len() == self.most {
                return Err("the log is full".into());
            }
            outcomes.push(run.result.ok().map(|result| result.meta.outcome));
            Ok(())
        }
    }

    #[tokio::test]
    async fn every_run_is_recorded_once_or_has_a_warning() {
        let directory = tempfile::tempdir().unwrap();
        let (_, mut runner) = runner(directory.path(), true);
        let log = Arc::new(BoundedLog {
            outcomes: Mutex::default(),
            most: 3,
        });
        runner.rules.log = Some(Arc::clone(&log) as _);
        let run = async |code: &str| {
            let spec = spec(code, Target::Local);
            runner.run(&spec, Hooks::default(), Connection::none()).await
        };
        // Too deeply nested for the import check.
        let deep = format!("import x; {}", "(".repeat(10_000));
        run("1").await.unwrap();
        run("import socket").await.unwrap();
        run(&deep).await.unwrap_err();
        let expected = [Some(Outcome::Exited), Some(Outcome::Blocked), None];
        assert_eq!(*log.outcomes.lock().unwrap(), expected);
        let unrecorded = "the run is not in the audit log: the log is full";
        assert_eq!(run("1").await.unwrap().meta.warnings, [unrecorded]);
        let error = run(&deep).await.unwrap_err();
        assert!(error.message.ends_with(unrecorded), "{error}");
    }

    #[tokio::test]
    async fn where_pyodide_is_disabled_the_local_fence_replaces_it_with_a_warning() {
        let directory = tempfile::tempdir().unwrap();
        let (backend, runner) = runner(directory.path(), false);
        let spec = spec("1", Target::Pyodide);
        let result = runner
            .run(&spec, Hooks::default(), Connection::none())
            .await
            .unwrap();
        assert_eq!(*backend.0.lock().unwrap(), [RuntimeKind::Local]);
        assert_eq!(result.meta.warnings, [NOT_IN_PYODIDE]);
    }

    #[tokio::test]
    async fn python_has_the_bridge_and_the_artifact_the_completed_result() {
        let directory = tempfile::tempdir().unwrap();
        let (_, runner) = runner(directory.path(), true);
        let complete = |result: &mut ExecutionResult| result.exit_code = 7;
        let hooks = Hooks {
            bridge: Some(&Silent),
            complete: Some(&complete),
        };
        let run = async |language| {
            let mut spec = spec("1", Target::Local);
            spec.request.language = language;
            runner.run(&spec, hooks, Connection::none()).await.unwrap()
        };
        let python = run(Language::Python).await;
        assert_eq!((python.stdout.as_str(), python.exit_code), ("bridged", 7));
        assert_eq!(python.meta.warnings, ["a function is missing"]);
        let artifact = std::fs::read_to_string(python.meta.artifact.unwrap()).unwrap();
        assert!(artifact.contains("a function is missing"), "{artifact}");
        let bash = run(Language::Bash).await;
        assert_eq!((bash.stdout.as_str(), bash.exit_code), ("alone", 7));
    }
}
