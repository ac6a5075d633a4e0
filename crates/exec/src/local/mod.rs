//! The local backend: fenced processes on this machine.
//!
//! A launcher starts the cells that share its root. The server keeps one launcher per scope, with a zygote and a
//! pool of idle workers; a request that needs another root, or comes without a server, gets a launcher of its
//! own. Where namespaces are forbidden, a flat launcher confines guests by the other layers.

mod bytecode;
mod command;
mod confined_thread;
mod confinement;
mod connection;
mod destination;
mod error;
mod exchange;
mod exit;
mod extra;
mod fenced;
mod guest;
mod host_output;
mod image;
mod initial_files;
mod interpreters;
mod job;
mod launcher;
mod launcher_state;
mod launchers;
mod layout;
mod log;
mod network;
mod notice;
mod opener;
pub mod output_files;
mod output_reader;
mod pool;
mod result;
mod root;
mod root_ids;
mod run;
mod sandbox;
mod session_calls;
mod session_error;
mod sessions;
mod settings;
mod user;
mod view;
mod workdir;
mod worker_program;
mod workspace;

use std::future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_policy::{Account, ExecutionResult, Language, Limits, Network, Request, Scope, Trusted};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::fingerprint::Fingerprint;
use crate::processors;
use crate::spec::OutputDirectory;

pub use crate::open_flags::{O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK};
pub use crate::output::{Chunk, Stream};
pub use confined_thread::confine_thread_to;
pub use connection::Connection;
pub use destination::{Destination, Spared, below, handle};
pub use error::Error;
pub(crate) use interpreters::find_python;
pub use interpreters::interpreter;
pub use log::Log;
pub use notice::{is_for_operators, is_limits_gap, notice, session_ended, session_kept, started_cold};
pub use result::{ProgramEnd, execution_result};
pub use ringfence_jail::{Launcher, init};
pub use sandbox::{NoSockets, PauseControl, PauseError, SandboxCell, SandboxRequest, SandboxUsage};
pub use session_error::Error as SessionError;
pub use sessions::{RichResults, SessionInfo, messages as session_messages};
pub use settings::{Fence, FencedRequest, InterpreterCache, SessionSettings, Settings, Warmth};
pub use user::{NOBODY, is_root};
pub use workdir::{PrivateDirectory, Usage, Workdir, disk_limit_exceeded, remove_tree, soon};
pub use worker_program::{Imports, interpreter_command, interpreter_greeting};
pub use workspace::{MAX_RULES, Workspace, owner_for_guests, rights};

use guest::{Grouping, Guest};
pub(crate) use host_output::HostOutput;
use initial_files::{InitialFiles, RequestFiles};
use launcher_state::guests::{Attempt, GuestOptions};
use launcher_state::{LauncherState, Start, clear_up};
use launchers::{Kind, Launchers};
use network::Exit;
use result::{add_groups, assemble, collect};
use sessions::{EvaluationCall, Sessions};

/// Timeout of a server's start for its first workers.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// The local backend.
#[derive(Debug)]
pub struct Local {
    settings: Settings,
    groups: Grouping,
    launchers: Launchers,
    gate: Arc<Semaphore>,
    sessions: Arc<Sessions>,
    queued: AtomicUsize,
    /// Cleanup tasks of finished runs.
    cleaners: Mutex<JoinSet<()>>,
}

impl Local {
    /// Creates the backend. Nothing is started before the first request.
    pub fn new(settings: Settings) -> Self {
        // A single run does that while its launcher comes up.
        if settings.warmth != Warmth::Cold {
            workdir::Workdir::sweep(&settings.scratch);
            // Without it fewer runs fit at once, and the error of the next one says so.
            let _ = ringfence_jail::raise_open_files();
        }
        let gate = Arc::new(Semaphore::new(settings.max_concurrent));
        let sessions = Arc::new(Sessions::new(settings.sessions));
        Self {
            settings,
            groups: Grouping::default(),
            launchers: Launchers::default(),
            gate,
            sessions,
            queued: AtomicUsize::new(0),
            cleaners: Mutex::default(),
        }
    }

    /// Uses a pre-forked launcher for the first request.
    #[must_use]
    pub fn beginning_with(mut self, launcher: Option<Launcher>) -> Self {
        self.launchers.opener.spare = Mutex::new(launcher);
        self
    }

    /// Returns `true` if control groups enforce the limits of programs, and not rlimits of each process.
    pub(crate) fn has_control_groups(&self) -> bool {
        self.groups.get().is_some()
    }

    /// Runs a request to completion. Output files are copied to `output_directory`, whose path must satisfy
    /// [`check_output_directory`].
    ///
    /// # Errors
    /// If the request could not be run at all. The program's own failure is not an error.
    pub async fn run(
        &self,
        request: &Request,
        fence: Fence,
        output_directory: Option<OutputDirectory>,
        connection: Connection,
    ) -> Result<ExecutionResult, Error> {
        let fenced = FencedRequest { request, fence };
        self.run_until(fenced, output_directory, connection, future::pending())
            .await
    }

    /// Like [`Local::run`], but resolving `over` returns a cancelled result at once, and the process is
    /// killed in the background. Until that is done it counts as running.
    pub(crate) async fn run_until(
        &self,
        fenced: FencedRequest<'_>,
        output_directory: Option<OutputDirectory>,
        connection: Connection,
        over: impl Future<Output = ()>,
    ) -> Result<ExecutionResult, Error> {
        let FencedRequest { request, fence } = fenced;
        let since = Instant::now();
        check(request, fence)?;
        let equipped = network::equipped(request);
        let (request, request_files) = RequestFiles::of(equipped.as_ref());
        let request = request.as_ref();
        let host_output = output_directory
            .map(|output| HostOutput::open(&output, self.settings.spared(request), request.limits.disk))
            .transpose()
            .map_err(Error::OutputDirectory)?
            .map(Arc::new);
        if let Some(id) = &request.session {
            let work = EvaluationCall {
                request: request.clone(),
                fence,
                since,
                request_files,
                host_output,
                connection,
            };
            return self.evaluate(id, work).await;
        }
        let turn = self.turn(&request.limits, since).await?;
        let initial_files = InitialFiles::new(request_files, host_output.as_ref());
        let options = GuestOptions {
            bridged: connection.bridge.is_some(),
            initial_files: initial_files.as_ref(),
            attempt: Attempt::First,
        };
        let (served, mut guest, start) = self.started_anew(fenced, request, options).await?;
        let outlet = match self.outlet(request, &mut guest) {
            Ok(outlet) => outlet,
            Err(error) => {
                self.retire(served, Some(guest), None);
                return Err(error);
            }
        };
        let finished = run::supervise(&mut guest, &request.limits, since, connection, over).await;
        let turn = finished.lives.then_some(turn);
        if Arc::strong_count(&served) == 1 {
            // Nobody else uses the launcher: the kernel tears it down while the result is assembled.
            served.end();
        }
        let collected = match &host_output {
            Some(host_output) => host_output.collect(&guest.output),
            None => collect(&guest.output, None, request.limits.disk.0),
        };
        let survivors = finished.survivors();
        let mut result = assemble(request, &guest, finished, start, since);
        let meta = &mut result.meta;
        let groups = guest.group.as_ref().and(self.groups.get());
        add_groups(meta, groups.map(|groups| groups.version().to_owned()));
        meta.output_files = collected.files;
        meta.output_incomplete = collected.incomplete;
        if let Some(outlet) = outlet {
            meta.egress = Some(outlet.close().await);
        }
        meta.warnings = served.warnings();
        meta.warnings.extend(survivors);
        meta.warnings.extend(served.preload_warnings(request.language));
        if fence != Fence::Host {
            let gap = notice::limits_gap(guest.limit_scope, &request.limits, false);
            meta.warnings.extend(gap);
        }
        meta.warnings.extend(notice::landlock_gap(guest.applied));
        meta.warnings.extend(collected.warnings);
        self.retire(served, Some(guest), turn);
        result.duration = since.elapsed().as_secs_f64();
        Ok(result)
    }

    /// Starts the guest of a request as [`Self::started`] does, and once again if its launcher died.
    async fn started_anew(
        &self,
        fenced: FencedRequest<'_>,
        request: &Request,
        options: GuestOptions<'_>,
    ) -> Result<(Arc<LauncherState>, Guest, Start), Error> {
        match self.started(fenced, request, options).await {
            // Nothing of the program has run, so a new launcher can start it. If that dies as well, something on this machine
            // kills launchers.
            Err(Error::LauncherLost) => match self.started(fenced, request, options.again()).await {
                Err(Error::NoLauncher) => Err(Error::LauncherLost),
                started => started,
            },
            started => started,
        }
    }

    /// Starts the guest of a request in a launcher of its kind, which is returned with it.
    async fn started(
        &self,
        fenced: FencedRequest<'_>,
        request: &Request,
        options: GuestOptions<'_>,
    ) -> Result<(Arc<LauncherState>, Guest, Start), Error> {
        let kind = Kind::of(fenced.fence);
        let served = self.launchers.serve(request, kind, &self.settings, &self.groups);
        let served = served.await?;
        match served.guest(request, options, &self.settings).await {
            Ok((guest, start)) => Ok((served, guest, start)),
            Err(error) => {
                self.retire(served, None, None);
                Err(error)
            }
        }
    }

    /// Opens the guest's route to the network, if it may have one.
    fn outlet(&self, request: &Request, guest: &mut Guest) -> Result<Option<Exit>, Error> {
        let Network::Allowlist(policy) = &request.network else {
            return Ok(None);
        };
        Exit::new(policy, guest.listener.take(), &self.settings.network).map(Some)
    }

    /// Returns the interpreter of a language on this machine, if there is one.
    pub fn interpreter(&self, language: Language) -> Option<PathBuf> {
        interpreter(&self.settings, language)
    }

    /// Returns a fingerprint of the interpreter of a language. `None` if the language has no usable
    /// interpreter, or its path is not UTF-8. A command has no interpreter, and a constant fingerprint.
    pub fn fingerprint(&self, language: Language) -> Option<Fingerprint> {
        match (language, self.interpreter(language)) {
            (Language::Python | Language::Bash | Language::Javascript, None) => None,
            (_, interpreter) => Fingerprint::of(&interpreter),
        }
    }

    /// Opens the launcher of a scope and workspace before its first request, and waits up to a timeout until
    /// its pool is full.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub async fn warm_up(
        &self,
        scope: &Scope,
        workspace: Option<&Path>,
        trusted: &Trusted,
    ) -> Result<(), Error> {
        let warmed = self
            .warm_up_within(WARM_UP_TIMEOUT, scope, workspace, trusted)
            .await;
        warmed.map(drop)
    }

    /// Like [`Local::warm_up`], with another timeout; `false` if no worker is ready.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub async fn warm_up_within(
        &self,
        patience: Duration,
        scope: &Scope,
        workspace: Option<&Path>,
        trusted: &Trusted,
    ) -> Result<bool, Error> {
        let key = launchers::Key {
            scope: scope.clone(),
            account: Account::Sandbox,
            packages: None,
            workspace: workspace.map(Path::to_path_buf),
            trusted: trusted.clone(),
        };
        let warmed = self.launchers.warm_up(&key, &self.settings, &self.groups);
        // Without idle workers everything still runs, so a timeout is not a failure.
        tokio::time::timeout(patience, warmed).await.unwrap_or(Ok(false))
    }

    /// Ends every process that no run uses, removes every control group and directory, and waits for that.
    pub async fn close(&self) {
        self.sessions.close().await;
        let mut cleaners = std::mem::take(&mut *self.cleaners());
        while cleaners.join_next().await.is_some() {}
        self.launchers.close().await;
        if let Some(groups) = self.groups.found() {
            groups.remove_owner();
        }
    }

    /// Waits for a permit, at most until the request's deadline.
    async fn turn(&self, limits: &Limits, since: Instant) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(permit) = Arc::clone(&self.gate).try_acquire_owned() {
            return Ok(permit);
        }
        let busy = || Error::Busy {
            running: self.settings.max_concurrent,
            queued: self.settings.max_queued,
        };
        let _place = QueueSlot::take(&self.queued, self.settings.max_queued).ok_or_else(busy)?;
        let deadline = since + limits.timeout.as_duration();
        match tokio::time::timeout_at(deadline.into(), Arc::clone(&self.gate).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(busy()),
        }
    }

    /// Cleans up after a run in the background. The permit is released afterwards.
    fn retire(&self, served: Arc<LauncherState>, guest: Option<Guest>, turn: Option<OwnedSemaphorePermit>) {
        let mut cleaners = self.cleaners();
        while cleaners.try_join_next().is_some() {}
        cleaners.spawn(async move {
            clear_up(served, guest).await;
            drop(turn);
        });
    }

    fn cleaners(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.cleaners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue, released on drop.
struct QueueSlot<'a>(&'a AtomicUsize);

impl<'a> QueueSlot<'a> {
    fn take(queued: &'a AtomicUsize, limit: usize) -> Option<Self> {
        let place = Self(queued);
        // Counted first; if there was no room, the drop of the place uncounts it.
        (queued.fetch_add(1, Ordering::AcqRel) < limit).then_some(place)
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Checks that files can be delivered to the directory at `path`, which is absolute and contains neither
/// links nor `..`: no component has a name in `protected`, and no trusted path conflicts. Creates missing
/// components.
///
/// # Errors
/// If files cannot be delivered there.
pub fn check_output_directory(path: &Path, protected: &[String], trusted: &Trusted) -> io::Result<()> {
    destination::check_name(path, protected)?;
    Destination::open(path, Spared { protected, trusted }).map(drop)
}

/// Rejects a request that cannot be met.
fn check(request: &Request, fence: Fence) -> Result<(), Error> {
    network::check(request, fence)?;
    image::check(request, fence)?;
    Ok(processors::check(request.limits.cpus)?)
}
