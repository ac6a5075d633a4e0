//! Starts Python guests: from the pool, from the zygote, or by starting an interpreter.

use std::path::Path;

use ringfence_jail::protocol::{Guest as Origin, Program};
use ringfence_policy::{Limits, Network, Request, Timeout};

use super::super::found::python_for;
use super::super::guest::{self, Begun, Guest};
use super::super::launcher::{FailedModule, Zygote};
use super::super::layout::{self, Extra, Places, WORKSPACE};
use super::super::sessions::SessionOrigin;
use super::super::{Error, Log, Settings, bytecode, job, notice};
use super::{LauncherState, Terms, Text, environment};
use crate::interpreter::Python;

/// Program of a Python guest.
pub(in super::super) const WORKER: &str = concat!(
    include_str!("../../../python/bridge.py"),
    include_str!("../../../python/session.py"),
    include_str!("../../../python/worker.py")
);

/// Timeout of a session for a zygote that is still warming up.
const ZYGOTE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

impl LauncherState {
    /// Returns a Python for one program, and `true` if it comes from the zygote or the pool.
    pub(super) async fn python_guest(
        &self,
        (request, bridged): (&Request, bool),
        settings: &Settings,
    ) -> Result<(Guest, bool), Error> {
        let job = |variables| {
            let job = job::encode(&request.name, &request.code, &request.args, variables);
            if bridged { job::bridged(&job) } else { job }
        };
        if let Some(pool) = self.pool.get() {
            let job = job(&request.env);
            // An idle worker has no network and cannot be given one.
            if request.network == Network::None
                && let Some(mut guest) = pool.take(&request.limits)
            {
                guest.job = job;
                self.zygote_renewal.note_use();
                return Ok((guest, true));
            }
            if *self.lane.zygote().borrow() == Zygote::Warm {
                self.zygote_renewal.count();
                self.zygote_renewal.note_use();
                let terms = Terms::of(request);
                let mut guest = self.start(Origin::Fork, Text::Job(job), terms, None).await?;
                // Its greeting is no message of its program.
                if bridged && let Err(error) = guest.greeted().await {
                    // The failure is all there is to report.
                    let _ = guest.close().await;
                    return Err(error);
                }
                return Ok((guest, true));
            }
        }
        let job = job(&[]);
        let guest = self.cold_python(request, settings, job).await?;
        Ok((guest, false))
    }

    /// Starts the Python of a session.
    pub(in super::super) async fn session(
        &self,
        request: &Request,
        settings: &Settings,
    ) -> Result<(Guest, SessionOrigin), Error> {
        let mut zygote = self.lane.zygote();
        // A zygote that is warming up is worth waiting for: only its descendants can be forked again.
        let settled = zygote.wait_for(|state| *state != Zygote::Cold);
        let settled = tokio::time::timeout(ZYGOTE_PATIENCE, settled);
        if self.pool.get().is_some() && matches!(settled.await, Ok(Ok(state)) if *state == Zygote::Warm) {
            self.zygote_renewal.count();
            self.zygote_renewal.note_use();
            let job = Text::Job(job::SESSION.to_vec());
            let mut guest = self.start(Origin::Session, job, Terms::of(request), None).await?;
            return match guest.greeted().await {
                Ok(()) => Ok((guest, SessionOrigin::Forked)),
                Err(error) => {
                    // The failure is all there is to report.
                    let _ = guest.close().await;
                    Err(error)
                }
            };
        }
        let without_variables = Request {
            env: Vec::new(),
            ..request.clone()
        };
        let job = job::SESSION.to_vec();
        let guest = self.cold_python(&without_variables, settings, job).await?;
        Ok((guest, SessionOrigin::Started))
    }

    /// Requests a fork of the session with this number, which must then be told to allow it.
    pub(in super::super) async fn begin_fork(&self, of: u64, limits: &Limits) -> Result<Begun, Error> {
        let job = Text::Job(Vec::new());
        let terms = Terms {
            limits,
            below: None,
            has_network: false,
        };
        let plan = self.plan(Origin::ForkOf { of }, job, terms, None);
        guest::begin(&self.lane, self.groups.as_deref(), plan).await
    }

    async fn cold_python(
        &self,
        request: &Request,
        settings: &Settings,
        job: Vec<u8>,
    ) -> Result<Guest, Error> {
        let python = python_for(&self.extra, settings)?;
        let directory = self.directory(settings)?;
        let places = self.places_in(directory.as_ref());
        let workspace = places.workspace(&self.extra);
        let compiled = bytecode::message(&python, settings);
        let text = if compiled.is_some() {
            bytecode::BOOT
        } else {
            WORKER
        };
        let arguments = worker_arguments(&python, text, &workspace);
        let program = Program {
            reads_job: true,
            ..layout::program(
                &python.executable,
                arguments,
                environment(&places, &self.extra, request),
            )
        };
        let job = [compiled.unwrap_or_default(), job].concat();
        self.start(
            Origin::Exec(program),
            Text::Job(job),
            Terms::of(request),
            directory,
        )
        .await
    }
}

fn worker_arguments(python: &Python, text: &str, workspace: &Path) -> Vec<String> {
    let mut search_path = vec![workspace.display().to_string()];
    search_path.extend(python.search_path.iter().map(|path| path.display().to_string()));
    let mut arguments: Vec<String> = ["-I", "-S", "-B", "-X", "utf8", "-c", text]
        .into_iter()
        .map(str::to_owned)
        .collect();
    arguments.push(search_path.join("\n"));
    arguments
}

/// Boot code that reads the worker's program from the zygote's socket: as an argument it would appear in
/// every process list.
const ZYGOTE_BOOT: &str = "import posix
exec(compile(posix.read(4, 1 << 20), '<worker>', 'exec'))
";

/// The interpreter that guests are forked from. It is not confined as they are, so it imports nothing
/// that a guest may have written.
#[derive(Debug)]
pub(super) struct WarmPython {
    python: Python,
    /// Directories that it imports from, joined by newlines.
    search_path: String,
    /// Modules to import in advance, without those that failed.
    pub(super) modules: Vec<String>,
    /// Time limit for each import.
    pub(super) patience: Timeout,
    log: Log,
    /// Number of failed modules already reported.
    reported: usize,
}

impl WarmPython {
    pub(super) fn new(python: Python, extra: &Extra, settings: &Settings) -> Self {
        let own = python
            .search_path
            .iter()
            .filter(|path| !extra.may_be_written(path));
        let own: Vec<String> = own.map(|path| path.display().to_string()).collect();
        Self {
            python,
            search_path: own.join("\n"),
            modules: settings.preload.clone(),
            patience: settings.preload_timeout,
            log: settings.log.clone(),
            reported: 0,
        }
    }

    pub(super) fn program(&self) -> Program {
        let mut arguments = worker_arguments(&self.python, ZYGOTE_BOOT, Path::new(WORKSPACE));
        arguments.push("zygote".to_owned());
        arguments.push(self.search_path.clone());
        arguments.push(self.patience.as_duration().as_secs_f64().to_string());
        arguments.extend(self.modules.iter().cloned());
        let mut environment = Places::Cell.environment(&Extra::default());
        if !self.modules.is_empty() {
            // A zygote must have a single thread: others would be missing in its forks.
            environment.extend(
                ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"]
                    .map(|name| (name.to_owned(), "1".to_owned())),
            );
        }
        layout::program(&self.python.executable, arguments, environment)
    }

    /// Reports newly failed modules, and leaves them out from now on.
    pub(super) fn report(&mut self, failed: &[FailedModule]) {
        for module in failed.iter().skip(self.reported) {
            self.log.write(&notice::not_preloaded(module));
        }
        self.reported = failed.len();
        self.modules
            .retain(|module| !failed.iter().any(|failed| failed.module == *module));
    }
}
