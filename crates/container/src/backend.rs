//! Runs requests in containers of Docker and Podman.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_exec::backend;
use ringfence_exec::filter::UnknownFilter;
use ringfence_exec::local::{Connection, Destination, Fence, Spared};
use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::owner::Owner;
use ringfence_exec::trust::{Conflict, Ledger};
use ringfence_network::egress::NetworkSettings;
use ringfence_policy::{self as policy, Access, EngineKind, ExecutionResult, NetworkMode, Request};
use serde::Serialize;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::agent::{self, InitLost, Interpreter, NotRun};
use super::keepalive::{Again, Kept};
use super::manager::Manager;
use super::outputs::Outputs;
use super::pins::{self, Pins};
use super::pool::{self, ContainerPool, Ready};
use super::pool_key::{Making, PoolKey};
use super::spec::{BindError, Image, OciRuntime, ParseImageError, ParseNameError, User};
use super::{ContainerRuntime, Error, Surroundings, layout, oneshot};

/// Settings of request containers. Backends with equal ones create equal containers for a request.
#[derive(Debug, Clone, Serialize)]
pub struct Settings {
    /// Endpoint candidates of the engines.
    pub surroundings: Surroundings,
    /// Image of the containers.
    pub image: Image,
    /// File with the digests of images that were set up on this host.
    pub pins: PathBuf,
    /// Network mode.
    pub network: NetworkMode,
    pub oci_runtime: OciRuntime,
    /// Name of the seccomp filter.
    pub filter: String,
    /// Host paths that no program may see.
    pub hidden: DeniedPaths,
    /// Host directories that programs were allowed to write.
    pub ledger: Ledger,
    /// Workspace paths that are read-only for programs: those that the host would execute.
    pub protected: Vec<String>,
    /// Parent of the runs' working directories.
    pub scratch: PathBuf,
    /// Private directory for the init program of warm containers; created if necessary.
    pub agent: PathBuf,
    /// Output directories of reused containers.
    pub outputs: Outputs,
    /// Our own user.
    pub user: User,
    /// Egress settings of programs that may reach some hosts.
    pub egress: NetworkSettings,
}

/// Limit of remembered unpinned images; beyond it, every result warns about its image.
const MAX_UNPINNED: usize = 64;

/// Docker and Podman, each connected to on first use.
#[derive(Debug)]
pub struct Containers {
    pub(super) settings: Settings,
    docker: OnceCell<Arc<Manager>>,
    podman: OnceCell<Arc<Manager>>,
    pool: ContainerPool,
    pub(super) kept: Kept,
    /// One sweeping task for each engine in use.
    sweepers: Mutex<JoinSet<()>>,
    /// Unpinned images that a result has warned about.
    unpinned: Mutex<BTreeSet<String>>,
}

/// Interval of orphan removal. A killed process may have no successor that cleans up after it.
const SWEEP_EVERY: Duration = Duration::from_secs(5 * 60);

/// Chooses image, network and filter of the containers in an engine.
pub(super) type Makes<'a> = dyn Fn(&Manager) -> Result<Making<'a>, RunError> + Send + Sync + 'a;

/// The reason why a request did not run in a container.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] Error),
    /// A mount of the request is denied.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A trusted path cannot be protected from the program.
    #[error(transparent)]
    Trusted(#[from] Conflict),
    /// The seccomp filter does not exist.
    #[error(transparent)]
    Filter(UnknownFilter),
    /// The pinned images cannot be read.
    #[error(transparent)]
    Pins(#[from] pins::Error),
    /// A required resource limit is not supported by the engine.
    #[error("the container engine cannot limit {0}")]
    Unlimited(String),
    /// The working directory of the run cannot be created.
    #[error("cannot create the run's directory: {0}")]
    Directory(io::Error),
    /// The output directory cannot be used, so the program's files would be lost.
    #[error("the output directory cannot be used: {0}")]
    OutputDirectory(io::Error),
    /// The command is empty.
    #[error("there is no program to run")]
    NoProgram,
    /// Our own process cannot be identified, so containers would have no owner.
    #[error("cannot identify this process: /proc is not readable")]
    NoOwner,
    /// The requested working directory does not exist.
    #[error("cannot start in `{}`: there is no such directory", .0.display())]
    WorkingDirectory(PathBuf),
    /// Invalid name of a sandbox.
    #[error(transparent)]
    Name(ParseNameError),
    /// Invalid name of an image.
    #[error(transparent)]
    Image(ParseImageError),
    /// The sandbox is a reused container, which serves calls by itself.
    #[error("{0} is reserved for `sandbox_exec`: it can only be listed, measured and removed")]
    KeptForCalls(String),
    /// The sandbox is paused, so it runs no command.
    #[error("the sandbox `{0}` is paused")]
    Paused(String),
    /// The limit of sandboxes is reached.
    #[error("sandbox limit reached ({0})")]
    TooMany(usize),
    /// The init program cannot be written.
    #[error("cannot write the init for containers: {0}")]
    AgentFile(io::Error),
    /// The connection to a container's init closed.
    #[error(transparent)]
    InitLost(#[from] InitLost),
    /// A call was not run in its container.
    #[error(transparent)]
    NotRun(#[from] NotRun),
    /// Invalid allowlist of a sandbox's hosts.
    #[error("cannot read the sandbox's network rules: {0}")]
    Reach(String),
    /// The seccomp filter prevents our init from starting anything.
    #[error(
        "the seccomp filter `{0}` allows no network: Ringfence's init, which connects to hosts, cannot run under it"
    )]
    ReachUnder(String),
    /// The init, the only way to the proxy, does not run in the container.
    #[error(
        "limiting the network to allowed hosts needs Ringfence's init, which does not run in this image: {0}"
    )]
    NoAgent(InitLost),
    /// The image lacks the interpreter of the language.
    #[error("there is no {program} in the image {image}")]
    ProgramMissing {
        /// Reference of the image.
        image: String,
        program: &'static str,
    },
    /// All reused containers are busy.
    #[error("container limit reached ({0})")]
    KeptFull(usize),
    /// The directory for output files cannot be used.
    #[error("cannot use the directory for the files of programs: {0}")]
    Outputs(io::Error),
    /// The requested feature exists in the local runtime only.
    #[error("{0} is not supported in a container")]
    LocalOnly(&'static str),
}

impl RunError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Engine(error) => error.hint(),
            Self::Bind(error) => error.hint(),
            Self::Filter(_) => "`ringfence seccomp show` names the filters",
            Self::Directory(_) => {
                "check that the directory for temporary files (`TMPDIR`) can be written and its disk is not full"
            }
            Self::OutputDirectory(_) => "name a directory that you may write, or one that can be made",
            Self::Unlimited(_) => {
                "give it control groups (rootless engines: version 2), or run without them: `--isolation best-effort`"
            }
            Self::Pins(error) => error.hint(),
            Self::NoProgram => "name a program",
            Self::WorkingDirectory(_) => {
                "name a directory of the workspace that exists; without a workspace there is none"
            }
            Self::Name(_) => "choose another name",
            Self::Image(_) => "name an image",
            Self::KeptForCalls(_) => {
                "what runs there prints to its caller; `ringfence sandbox rm` ends it, and the next call gets another one"
            }
            Self::Paused(_) => "resume it with `ringfence sandbox resume NAME`",
            Self::TooMany(_) => "remove one with `ringfence sandbox rm`",
            Self::NoOwner => "mount /proc",
            Self::AgentFile(_) => "make the state directory yours and writable (`ringfence doctor`)",
            Self::InitLost(parted) => parted.hint(),
            Self::NotRun(error) => error.hint(),
            Self::Reach(_) => "write hosts like `example.com`, `*.example.com` or `example.com:8443`",
            Self::ReachUnder(_) => {
                "choose the filter `standard-net` for it, or leave out the hosts (`allowed_hosts`)"
            }
            Self::NoAgent(_) => {
                "use another image, of this machine's architecture, or run it without a network"
            }
            Self::ProgramMissing { .. } => "use another language, or name an image that has it",
            Self::KeptFull(_) => "wait until a call has ended",
            Self::Outputs(_) => "make that directory yours alone, or remove it",
            Self::Trusted(conflict) => conflict.hint(),
            Self::LocalOnly(_) => {
                "use the runtime `local` (an argument of the tool, `--runtime local`, or SANDBOX_TYPE=local)"
            }
        }
    }

    /// Converts a missing program to [`Self::ProgramMissing`] if the image lacks the interpreter of the
    /// request's language.
    pub(super) fn of_image(self, request: &Request, image: &Image) -> Self {
        match (&self, layout::interpreter(request.language)) {
            (Self::NotRun(error), Some(program)) if error.is_missing() => Self::ProgramMissing {
                image: image.to_string(),
                program,
            },
            _ => self,
        }
    }

    /// Returns `true` if the cause may be that the init, not the program, cannot run in a container.
    pub(super) fn may_be_of_the_agent(&self) -> bool {
        matches!(
            self,
            Self::InitLost(_) | Self::Engine(Error::Said { .. } | Error::Conflict { .. })
        )
    }

    fn reason(&self) -> backend::Reason {
        use backend::Reason as R;
        match self {
            Self::Engine(error) => match error {
                Error::Unavailable { .. }
                | Error::NotPermitted { .. }
                | Error::Endpoint(_)
                | Error::TooOld { .. }
                | Error::OciRuntime { .. }
                | Error::Unfiltered { .. }
                | Error::ImageMissing { .. } => R::Unavailable,
                Error::NotFound { .. } => R::NotFound,
                _ => R::Failed,
            },
            Self::Bind(_)
            | Self::Trusted(_)
            | Self::NoProgram
            | Self::LocalOnly(_)
            | Self::Name(_)
            | Self::Image(_)
            | Self::Reach(_)
            | Self::KeptForCalls(_)
            | Self::Paused(_)
            | Self::ReachUnder(_) => R::Invalid,
            Self::TooMany(_) | Self::KeptFull(_) | Self::NotRun(NotRun::Busy) => R::Busy,
            Self::NotRun(NotRun::TooLong) => R::Invalid,
            Self::ProgramMissing { .. } | Self::NotRun(NotRun::NotStarted { .. }) => R::NotFound,
            Self::NotRun(NotRun::InitLost(_)) => R::Failed,
            Self::WorkingDirectory(_) => R::NotFound,
            Self::Filter(_) | Self::NoOwner | Self::Pins(_) | Self::NoAgent(_) | Self::Unlimited(_) => {
                R::Unavailable
            }
            Self::Directory(_)
            | Self::OutputDirectory(_)
            | Self::Outputs(_)
            | Self::AgentFile(_)
            | Self::InitLost(_) => R::Failed,
        }
    }
}

impl From<RunError> for backend::Error {
    fn from(error: RunError) -> Self {
        Self {
            reason: error.reason(),
            hint: error.hint().to_owned(),
            message: error.to_string(),
        }
    }
}

/// Returns the warning for a program that requested a bridge and got none.
pub(super) fn without_bridge(why: &str) -> String {
    format!(
        "the program had no bridge to the skills, and no `device`: that needs Ringfence's init in the container, and {why}"
    )
}

impl Containers {
    /// Connects to no engine before the first use.
    pub fn new(settings: Settings) -> Self {
        Self::keeping(0, settings)
    }

    /// Like [`Self::new`], with a pool of at most `ready` idle containers, for a process that serves many
    /// requests.
    pub fn keeping(ready: usize, settings: Settings) -> Self {
        Self {
            pool: ContainerPool::new(ready, settings.clone()),
            settings,
            docker: OnceCell::new(),
            podman: OnceCell::new(),
            kept: Kept::new(),
            sweepers: Mutex::default(),
            unpinned: Mutex::default(),
        }
    }

    /// Returns the settings of its containers.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs a request in a container of its own, which is removed before this returns.
    ///
    /// # Errors
    /// If the request could not be run at all. A failed program is no error.
    pub async fn run(
        &self,
        engine_kind: EngineKind,
        (request, fence): (&Request, Fence),
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        self.admit(engine_kind, request, fence).await?;
        let making = |manager: &Manager| {
            Ok(Making {
                image: self.image(manager.engine().kind())?,
                network: self.settings.network,
                filter: &self.settings.filter,
            })
        };
        let ran = self.run_once((engine_kind, &making), request, output_directory, connection);
        let image = &self.settings.image;
        let mut result = ran.await.map_err(|error| error.of_image(request, image))?;
        result.meta.warnings.extend(self.unpinned(engine_kind, image));
        Ok(result)
    }

    /// Runs a request in a container used once: an idle one from the pool, or a new one.
    pub(super) async fn run_once(
        &self,
        (engine_kind, making): (EngineKind, &Makes<'_>),
        request: &Request,
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        let since = Instant::now();
        let output = output_directory.as_deref();
        let taken = output.filter(|output| !self.settings.outputs.holds(output, &request.scope));
        let spared = Spared {
            protected: &self.settings.protected,
            trusted: &request.trusted,
        };
        let destination = taken.map(|path| Destination::open(path, spared)).transpose();
        let destination = destination.map_err(RunError::OutputDirectory)?;
        let manager = self.shared_manager(engine_kind).await?;
        let frame = PoolKey::of((self, manager), making(manager)?, (request, output))?;
        let destination = destination.as_ref();
        let again = Again::of(&connection);
        let made = (manager, &frame);
        let ran = match self.pool.take(manager, &frame, request) {
            None => self.run_made(made, request, destination, connection).await,
            Some(ready) => {
                let serving = pool::serve(ready, manager, request, destination, connection);
                match (self.pool.refilled(serving).await, again) {
                    // The container died while idle, and nothing had noticed.
                    (Err(RunError::NotRun(NotRun::InitLost(_))), Some(again)) => {
                        let connection = again.connection();
                        self.run_made(made, request, destination, connection).await
                    }
                    (ran, _) => ran,
                }
            }
        };
        let mut result = ran?;
        result.duration = since.elapsed().as_secs_f64();
        Ok(result)
    }

    /// Runs a request in a new container.
    async fn run_made(
        &self,
        (manager, frame): (&Arc<Manager>, &PoolKey),
        request: &Request,
        destination: Option<&Destination>,
        connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        let bridged = connection.bridge.is_some();
        let (ready, warning) = self.fresh(manager, frame, (request, bridged)).await?;
        let mut result = match ready {
            Some(ready) => {
                let serving = pool::serve(ready, manager, request, destination, connection);
                self.pool.refilled(serving).await?
            }
            None => {
                let made = (&**manager, frame);
                let serving = oneshot::run(&self.settings, made, request, destination, connection);
                self.pool.refilled(serving).await?
            }
        };
        let closed = layout::warning(request.workspace.as_deref(), &self.settings);
        result.meta.warnings.extend(warning.into_iter().chain(closed));
        Ok(result)
    }

    /// Starts a new container for a request, with our init if it runs there, as it reports more about a
    /// program's end. Otherwise returns a warning about the features that are lost.
    async fn fresh(
        &self,
        manager: &Arc<Manager>,
        frame: &PoolKey,
        (request, bridged): (&Request, bool),
    ) -> Result<(Option<Ready>, Option<String>), RunError> {
        let without = |why: &str| (None, bridged.then(|| without_bridge(why)));
        if !frame.filter.lets_fork() {
            let why = format!("under the filter `{}` it can start nothing", frame.filter.name());
            return Ok(without(&why));
        }
        // A program's bridge requires the warm interpreter.
        let interpreter = match bridged {
            true => Interpreter::Warm,
            false => Interpreter::None,
        };
        match self.pool.fresh(manager, frame, interpreter).await {
            Ok(ready) => Ok((Some(ready), None)),
            Err(error) if error.may_be_of_the_agent() && brings_files(request) => Err(RunError::LocalOnly(
                "files that come along with code, where Ringfence's init does not run,",
            )),
            Err(error) if request.network == policy::Network::None && error.may_be_of_the_agent() => {
                Ok(without(&error.to_string()))
            }
            // Without the init, no host is reachable.
            Err(RunError::InitLost(parted)) => Err(RunError::NoAgent(parted)),
            Err(error) => Err(error),
        }
    }

    /// Checks that an engine's containers can run a request with the required fence.
    pub(super) async fn admit(
        &self,
        engine_kind: EngineKind,
        request: &Request,
        fence: Fence,
    ) -> Result<(), RunError> {
        if request.session.is_some() {
            return Err(RunError::LocalOnly("a session"));
        }
        match fence {
            Fence::Unfenced | Fence::Host => Err(RunError::LocalOnly("a run without a fence")),
            Fence::Required => match self.manager(engine_kind).await?.info().unlimited() {
                Some(what) => Err(RunError::Unlimited(what)),
                None => Ok(()),
            },
            Fence::Default | Fence::BestEffort => Ok(()),
        }
    }

    /// Returns the sandbox manager of an engine; removes orphans of dead processes on first use.
    ///
    /// # Errors
    /// If the engine cannot be used.
    pub async fn manager(&self, engine_kind: EngineKind) -> Result<&Manager, RunError> {
        Ok(self.shared_manager(engine_kind).await?)
    }

    async fn shared_manager(&self, engine_kind: EngineKind) -> Result<&Arc<Manager>, RunError> {
        let cell = match engine_kind {
            EngineKind::Docker => &self.docker,
            EngineKind::Podman => &self.podman,
        };
        cell.get_or_try_init(|| self.open(engine_kind)).await
    }

    async fn open(&self, engine_kind: EngineKind) -> Result<Arc<Manager>, RunError> {
        let engine = ContainerRuntime::open(engine_kind, &self.settings.surroundings).await?;
        let owner = Owner::new().ok_or(RunError::NoOwner)?;
        let info = engine.info().await?;
        let manager = Arc::new(Manager::new(engine, owner, info));
        // Before the first container is created, so that names of orphans are free.
        let _ = manager.sweep().await;
        self.sweepers().spawn(sweep(Arc::clone(&manager), SWEEP_EVERY));
        Ok(manager)
    }

    /// Returns the path of the init program, as a file that containers can mount.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn agent_program(&self) -> Result<PathBuf, RunError> {
        agent::file(&self.settings.agent).map_err(RunError::AgentFile)
    }

    /// Resolves the configured image to the digest that was set up on this host, if any: its tag may have
    /// moved.
    pub(super) fn image(&self, engine_kind: EngineKind) -> Result<Image, RunError> {
        self.pinned(engine_kind, &self.settings.image)
    }

    /// Resolves an image to its pinned digest, if it was set up on this host.
    pub(super) fn pinned(&self, engine_kind: EngineKind, image: &Image) -> Result<Image, RunError> {
        let pins = Pins::read(&self.settings.pins)?;
        Ok(pins.get(engine_kind, image).unwrap_or_else(|| image.clone()))
    }

    fn sweepers(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.sweepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a warning about an unpinned image, once per image and state directory.
    fn unpinned(&self, engine_kind: EngineKind, image: &Image) -> Option<String> {
        let pins = Pins::read(&self.settings.pins).ok()?;
        let mut told = self.unpinned.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = engine_kind.as_str();
        let is_news = !pins.hold(engine_kind, image)
            && (told.len() >= MAX_UNPINNED || told.insert(format!("{engine} {image}")))
            && pins::is_new(&self.settings.pins, (engine_kind, image));
        is_news.then(|| {
            format!(
                "the image {image} is not pinned: whoever may use {engine} can give its name to another image; \
                 `ringfence setup image --engine {engine}` pins it, and so does a name with `@sha256:…`"
            )
        })
    }

    /// Stops all containers and tasks, and waits until none is left.
    pub async fn close(&self) {
        let mut sweepers = std::mem::take(&mut *self.sweepers());
        sweepers.shutdown().await;
        self.pool.close().await;
        self.kept.close().await;
        for manager in [&self.docker, &self.podman].into_iter().filter_map(OnceCell::get) {
            manager.close().await;
        }
    }
}

/// Returns `true` if the request copies files that only our init can put into a container.
fn brings_files(request: &Request) -> bool {
    request.mounts.iter().any(|mount| mount.access == Access::Copy)
}

/// Removes orphans periodically. Never returns.
async fn sweep(manager: Arc<Manager>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        // A failed removal is retried in the next period.
        let _ = manager.sweep().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Id;
    use crate::spec::Spec;
    use crate::testing::{engines, owned, spec};

    #[tokio::test]
    async fn orphans_are_removed_while_a_process_runs() {
        for engine in engines().await {
            let manager = Manager::new(engine.clone(), owned(), engine.info().await.unwrap());
            // An unregistered container of its own: no other process's sweep removes it.
            let stray = Spec {
                owner: manager.owner().clone(),
                ..spec(&["sleep", "600"])
            };
            let manager = Arc::new(manager);
            let mut sweeping = JoinSet::new();
            sweeping.spawn(sweep(Arc::clone(&manager), Duration::from_millis(1)));
            engine.create(&stray).await.unwrap();
            while engine.inspect(&Id::from(&stray.name)).await.is_ok() {}
            sweeping.shutdown().await;
            manager.close().await;
        }
    }
}
