//! The warm Python that guests are forked from, and the tasks that keep it and its pool.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use ringfence_jail::protocol::{Guest as Origin, Program};
use ringfence_policy::{Limits, Timeout};
use tokio::sync::watch;

use super::super::error::Error;
use super::super::extra::{Extra, WORKSPACE};
use super::super::guest::{Groups, Plan};
use super::super::interpreters::python_for;
use super::super::launcher::{FailedModule, LauncherClient, Zygote};
use super::super::layout::{self, WritableDirs};
use super::super::log::Log;
use super::super::notice;
use super::super::pool::WorkerPool;
use super::super::settings::{Settings, Warmth};
use super::super::worker_program::WORKER;
use super::LauncherState;
use super::python::{with_packages, worker_arguments};
use super::renewal::Renewal;
use crate::interpreter::Python;

/// Extension library that a zygote's interpreter loads; built by `build.rs`.
const EXTENSION: &[u8] = include_bytes!(env!("RINGFENCE_EXTENSION"));
/// Maximum number of restarts of a zygote that exits by itself.
const MAX_REVIVALS: u32 = 5;

impl LauncherState {
    /// Starts the tasks of the zygote and the pool.
    pub(in super::super) fn keep_warm(&self, settings: &Settings) -> Result<(), Error> {
        let (
            Warmth::Pool {
                size,
                renew_after,
                renew_every,
            },
            WritableDirs::Cell,
        ) = (settings.warmth, &self.dirs)
        else {
            return Ok(());
        };
        // Without Python there is nothing to prepare; other languages still run.
        let Ok(python) = python_for(&self.extra, settings) else {
            return Ok(());
        };
        let zygote = WarmPython::new(python, &self.extra, settings);
        let library = ringfence_jail::code_file(EXTENSION).map_err(Error::Pipes)?;
        // Programs with packages come from an interpreter that has imported these.
        let size = if self.packages.is_some() { 0 } else { size };
        let pool = Arc::new(WorkerPool::new(size, settings.limits));
        let keeper = PoolTask {
            launcher: Arc::clone(&self.launcher),
            groups: self.groups.clone(),
            renewal: Arc::clone(&self.zygote_renewal),
            confinement: self.worker_confinement(&settings.limits),
            limits: settings.limits,
        };
        self.zygote_renewal.after.store(renew_after, Ordering::Relaxed);
        let (launcher, renewal) = (Arc::clone(&self.launcher), Arc::clone(&self.zygote_renewal));
        let filled = Arc::clone(&pool);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(async move { keep_zygote(&launcher, zygote, &library, &renewal, renew_every).await });
        tasks.spawn(async move {
            filled
                .keep_full(&keeper.launcher, keeper.groups.as_deref(), || keeper.plan())
                .await
        });
        let _ = self.pool.set(pool);
        Ok(())
    }
}

/// The specification of a pool's workers.
struct PoolTask {
    launcher: Arc<LauncherClient>,
    groups: Option<Arc<Groups>>,
    renewal: Arc<Renewal>,
    confinement: ringfence_jail::protocol::Confinement,
    limits: Limits,
}

impl PoolTask {
    fn plan(&self) -> Plan {
        self.renewal.count();
        Plan {
            origin: Origin::Fork,
            code: None,
            confinement: self.confinement.clone(),
            limits: self.limits,
            group: None,
            listen: None,
            directory: None,
            job: Vec::new(),
            initial_files: None,
        }
    }
}

/// Starts the zygote, its replacements when they are due, and a new one when one exits by itself.
///
/// A module that ends the interpreter is left out of the next one.
async fn keep_zygote(
    launcher: &LauncherClient,
    mut zygote: WarmPython,
    library: &std::os::fd::OwnedFd,
    renewal: &Renewal,
    every: std::time::Duration,
) {
    let mut state = launcher.zygote();
    let mut revivals = 0;
    loop {
        state.mark_unchanged();
        let modules = zygote.modules.clone();
        let started = launcher.start_zygote(zygote.program(), WORKER, modules, library.as_fd());
        if started.await.is_err() {
            return;
        }
        tokio::select! {
            () = renewal.due.notified() => {}
            () = tokio::time::sleep(every) => {}
            () = renewal.rested() => {}
            broken = until_broken(launcher, &mut state, &mut zygote) => {
                let by_module = launcher.blames_module(&zygote.patience);
                revivals += u32::from(!by_module);
                if !broken || revivals > MAX_REVIVALS {
                    return renewal.given_up.notify_one();
                }
            }
        }
        zygote.report(&launcher.failed_modules());
    }
}

/// Waits for the exit of a zygote, and reports the modules that it could not import; `false` if the launcher
/// has died.
async fn until_broken(
    launcher: &LauncherClient,
    state: &mut watch::Receiver<Zygote>,
    zygote: &mut WarmPython,
) -> bool {
    loop {
        if state.changed().await.is_err() {
            return false;
        }
        let broken = *state.borrow_and_update() == Zygote::Broken;
        if broken {
            return true;
        }
        zygote.report(&launcher.failed_modules());
    }
}

/// Boot code that reads the worker's program from the zygote's socket: as an argument it would appear in
/// every process list.
const ZYGOTE_BOOT: &str = "import posix
exec(compile(posix.read(4, 1 << 20), '<worker>', 'exec'))
";

/// The interpreter that guests are forked from. It is less confined than guests, so it imports nothing that a
/// guest may have written.
#[derive(Debug)]
pub(super) struct WarmPython {
    python: Python,
    /// Directories that the interpreter imports from, joined by newlines.
    search_path: String,
    environment: Vec<(String, String)>,
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
        let search_path = own.join("\n");
        // Guests search the packages of strangers, too, and these come before the interpreter's own: one of the latter that is
        // there already would take the place of another version.
        let modules = match extra.mounts.is_empty() {
            true => settings.preload.clone(),
            false => Vec::new(),
        };
        Self {
            python: with_packages(python, &extra.mounts),
            search_path,
            environment: WritableDirs::Cell.environment(&Extra {
                mounts: extra.mounts.clone(),
                ..Extra::default()
            }),
            modules,
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
        let mut environment = self.environment.clone();
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
