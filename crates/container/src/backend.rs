//! Runs requests in containers of Docker and Podman.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_exec::local::{Connection, Destination, Fence, FencedRequest, Spared};
use ringfence_exec::owner::Owner;
use ringfence_policy::{self as policy, EngineKind, ExecutionResult, Remedy, Request, remedy};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::init::{Interpreter, NotRun};
use super::keepalive::reused::ReusedContainers;
use super::outputs::{Delivered, Wanted};
use super::pins::{self, Pins};
use super::pool::ready::Ready;
use super::pool::{self, ContainerPool};
use super::pool_key::{Making, PoolKey};
use super::retry::Retry;
pub use super::run_error::RunError;
use super::runtime::ContainerRuntime;
pub use super::settings::Settings;
use super::spec::Image;
use super::supervisor::ContainerSupervisor;
use super::warm::without_bridge;
use super::{mounts, oneshot};

/// Limit of remembered unpinned images; beyond it, every result warns about its image.
const MAX_UNPINNED: usize = 64;

/// Docker and Podman, each connected to on first use.
#[derive(Debug)]
pub struct Containers {
    pub(super) settings: Settings,
    docker: OnceCell<Arc<ContainerSupervisor>>,
    podman: OnceCell<Arc<ContainerSupervisor>>,
    pool: ContainerPool,
    pub(super) reused: ReusedContainers,
    /// One sweeping task for each engine in use.
    sweepers: Mutex<JoinSet<()>>,
    /// Unpinned images that a result has warned about.
    unpinned: Mutex<BTreeSet<String>>,
}

/// Interval of orphan removal. A killed process may have no successor that cleans up after it.
const SWEEP_EVERY: Duration = Duration::from_secs(5 * 60);

/// Chooses image, network and filter of the containers in an engine.
pub(super) type Makes<'a> = dyn Fn(&ContainerSupervisor) -> Result<Making<'a>, RunError> + Send + Sync + 'a;

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
            reused: ReusedContainers::new(),
            sweepers: Mutex::default(),
            unpinned: Mutex::default(),
        }
    }

    /// Returns the settings of containers.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs a request in a container of its own, which is removed before this returns.
    ///
    /// # Errors
    /// If the request could not be run at all. A failed program is not an error.
    pub async fn run(
        &self,
        engine_kind: EngineKind,
        fenced: FencedRequest<'_>,
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        let FencedRequest { request, fence } = fenced;
        self.admit(engine_kind, request, fence).await?;
        let making = |supervisor: &ContainerSupervisor| {
            Ok(Making {
                image: self.image(supervisor.engine().kind())?,
                network: self.settings.network,
                filter: &self.settings.filter,
            })
        };
        let delivered = Delivered {
            request,
            output_directory,
        };
        let ran = self.run_once(engine_kind, &making, delivered, connection);
        let image = &self.settings.image;
        let mut result = ran.await.map_err(|error| error.of_image(request, image))?;
        result.meta.warnings.extend(self.unpinned(engine_kind, image));
        Ok(result)
    }

    /// Runs a request in a container used once: an idle one from the pool, or a new one.
    pub(super) async fn run_once(
        &self,
        engine_kind: EngineKind,
        making: &Makes<'_>,
        delivered: Delivered<'_>,
        connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        let Delivered {
            request,
            output_directory,
        } = delivered;
        let since = Instant::now();
        let output = output_directory.as_deref();
        let taken = output.filter(|output| !self.settings.outputs.holds(output, &request.scope));
        let spared = Spared {
            protected: &self.settings.protected,
            trusted: &request.trusted,
        };
        let destination = taken.map(|path| Destination::open(path, spared)).transpose();
        let destination = destination.map_err(RunError::OutputDirectory)?;
        let supervisor = self.shared_supervisor(engine_kind).await?;
        let frame = PoolKey::of(&self.settings, supervisor, making(supervisor)?, request, output)?;
        let destination = destination.as_ref();
        let retry = Retry::of(&connection);
        let ran = match self.pool.take(supervisor, &frame, request) {
            None => {
                self.run_made(supervisor, &frame, Wanted { request, destination }, connection)
                    .await
            }
            Some(ready) => {
                let serving = pool::serve(ready, supervisor, request, destination, connection);
                match (self.pool.refilled(serving).await, retry) {
                    // The container died while idle, and nothing had noticed.
                    (Err(RunError::NotRun(NotRun::InitLost(_))), Some(retry)) => {
                        let connection = retry.connection();
                        self.run_made(supervisor, &frame, Wanted { request, destination }, connection)
                            .await
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
        supervisor: &Arc<ContainerSupervisor>,
        frame: &PoolKey,
        wanted: Wanted<'_>,
        connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        let Wanted { request, destination } = wanted;
        let bridged = connection.bridge.is_some();
        let (ready, warning) = self.fresh(supervisor, frame, request, bridged).await?;
        let mut result = match ready {
            Some(ready) => {
                let serving = pool::serve(ready, supervisor, request, destination, connection);
                self.pool.refilled(serving).await?
            }
            None => {
                let serving = oneshot::run(&self.settings, supervisor, frame, wanted, connection);
                self.pool.refilled(serving).await?
            }
        };
        let closed = mounts::warning(request.workspace.as_deref(), &self.settings);
        result.meta.warnings.extend(warning.into_iter().chain(closed));
        Ok(result)
    }

    /// Starts a new container for a request, with our init. Under a filter that lets it start nothing, returns a warning
    /// about the features that are lost.
    async fn fresh(
        &self,
        supervisor: &Arc<ContainerSupervisor>,
        frame: &PoolKey,
        request: &Request,
        bridged: bool,
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
        match self.pool.fresh(supervisor, frame, interpreter).await {
            Ok(ready) => Ok((Some(ready), None)),
            // Without the init, no host is reachable.
            Err(RunError::InitLost(parted)) if request.network != policy::Network::None => {
                Err(RunError::NoAgent(parted))
            }
            // Nor do its directories have a size, which the engine alone cannot give them.
            Err(error) if request.network == policy::Network::None && error.may_be_of_the_init() => {
                Err(RunError::NoInit {
                    image: frame.image.to_string(),
                    why: error.to_string(),
                })
            }
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
            Fence::Required => match self.supervisor(engine_kind).await?.info().unlimited() {
                Some(what) => Err(RunError::Unlimited(what)),
                None => Ok(()),
            },
            Fence::Default | Fence::BestEffort => Ok(()),
        }
    }

    /// Returns the supervisor of an engine; removes orphans of dead processes on first use.
    ///
    /// # Errors
    /// If the engine cannot be used.
    pub async fn supervisor(&self, engine_kind: EngineKind) -> Result<&ContainerSupervisor, RunError> {
        Ok(self.shared_supervisor(engine_kind).await?)
    }

    async fn shared_supervisor(
        &self,
        engine_kind: EngineKind,
    ) -> Result<&Arc<ContainerSupervisor>, RunError> {
        let cell = match engine_kind {
            EngineKind::Docker => &self.docker,
            EngineKind::Podman => &self.podman,
        };
        cell.get_or_try_init(|| self.open(engine_kind)).await
    }

    async fn open(&self, engine_kind: EngineKind) -> Result<Arc<ContainerSupervisor>, RunError> {
        let engine = ContainerRuntime::open(engine_kind, &self.settings.surroundings).await?;
        let owner = Owner::new().ok_or(RunError::NoOwner)?;
        let info = engine.info().await?;
        let supervisor = Arc::new(ContainerSupervisor::new(engine, owner, info));
        // Before the first container is created, so that names of orphans are free.
        let _ = supervisor.sweep().await;
        self.sweepers().spawn(sweep(Arc::clone(&supervisor), SWEEP_EVERY));
        Ok(supervisor)
    }

    /// Returns the path of the init program, as a file that containers can mount.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn init_program(&self) -> Result<PathBuf, RunError> {
        self.settings.init_program()
    }

    /// Resolves the configured image to the digest that was set up on this host, if any: its tag may have
    /// moved.
    pub(super) fn image(&self, engine_kind: EngineKind) -> Result<Image, RunError> {
        self.settings.pinned(engine_kind, &self.settings.image)
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
            && pins::is_new(&self.settings.pins, engine_kind, image);
        is_news.then(|| {
            format!(
                "the image {image} is not pinned: whoever may use {engine} can give its name to another image; {}",
                Remedy::from(remedy::Container::PinImage(engine_kind)).person()
            )
        })
    }

    /// Stops all containers and tasks, and waits until none is left.
    pub async fn close(&self) {
        let mut sweepers = std::mem::take(&mut *self.sweepers());
        sweepers.shutdown().await;
        self.pool.close().await;
        self.reused.close().await;
        for supervisor in [&self.docker, &self.podman].into_iter().filter_map(OnceCell::get) {
            supervisor.close().await;
        }
    }
}

/// Removes orphans periodically. Never returns.
async fn sweep(supervisor: Arc<ContainerSupervisor>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        // A failed removal is retried in the next period.
        let _ = supervisor.sweep().await;
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
            let supervisor = ContainerSupervisor::new(engine.clone(), owned(), engine.info().await.unwrap());
            // An unregistered container of its own: no other process's sweep removes it.
            let stray = Spec {
                owner: supervisor.owner().clone(),
                ..spec(&["sleep", "600"])
            };
            let supervisor = Arc::new(supervisor);
            let mut sweeping = JoinSet::new();
            sweeping.spawn(sweep(Arc::clone(&supervisor), Duration::from_millis(1)));
            engine.create(&stray).await.unwrap();
            while engine.inspect(&Id::from(&stray.name)).await.is_ok() {}
            sweeping.shutdown().await;
            supervisor.close().await;
        }
    }
}
