//! The place of a sandbox: a cell of this machine, or a container.

use std::sync::{Arc, Mutex};

use ringfence_container::init::InitClient;
use ringfence_container::{ContainerPause, Containers, NewSandboxContainer, SandboxContainer, Use};
use ringfence_exec::local::{Fence, NoSockets, PauseControl, PauseError};
use ringfence_policy::{EgressPolicy, EngineKind, Isolation, Scope};

use super::cell::ConnectedCell;
use super::error::Error;
use super::lock::lock;
use super::spec::{NewSandbox, Resources, Runtime};

/// The cell or container of a sandbox, with the connection to its init.
#[derive(Debug)]
pub(crate) enum Place {
    Cell(Box<ConnectedCell>),
    Container(Box<SandboxContainer>),
}

/// Creates a container of an engine.
pub(crate) async fn open_container(
    containers: &Containers,
    engine: EngineKind,
    fence: Fence,
    scope: &Scope,
    new: &NewSandbox,
) -> Result<SandboxContainer, Error> {
    if new.image.is_some() {
        return Err(Error::NotSupported {
            runtime: new.runtime,
            what: "be on images of the store",
        });
    }
    if !new.packages.is_empty() {
        return Err(Error::NotSupported {
            runtime: new.runtime,
            what: "have packages that were installed for this machine's interpreters",
        });
    }
    if new.account.is_root() {
        return Err(Error::NotSupported {
            runtime: new.runtime,
            what: "have the fence `box`",
        });
    }
    if new.account.workspace_alias().is_some() {
        return Err(Error::NotSupported {
            runtime: new.runtime,
            what: "have a home directory beside /workspace",
        });
    }
    let network = new.network();
    let container = containers.open_sandbox(NewSandboxContainer {
        engine,
        scope,
        limits: new.limits(),
        network: &network,
        env: &new.env,
        fence,
    });
    Ok(container.await?)
}

impl Place {
    pub(crate) const fn init(&self) -> &InitClient {
        match self {
            Self::Cell(cell) => &cell.init,
            Self::Container(container) => container.init(),
        }
    }

    /// Returns the name or path of its Python.
    pub(crate) fn python(&self) -> &str {
        match self {
            Self::Cell(cell) => &cell.python,
            Self::Container(_) => "python3",
        }
    }

    pub(crate) fn freezer(&self) -> Freezer {
        match self {
            Self::Cell(cell) => Freezer::Cell(cell.pause_control()),
            Self::Container(container) => Freezer::Container(container.pause_control()),
        }
    }

    /// Returns the name of the root file system's source, for descriptions.
    pub(crate) fn image(&self) -> String {
        match self {
            Self::Cell(_) => "host".to_owned(),
            Self::Container(container) => container.image().to_owned(),
        }
    }

    pub(crate) fn isolation(&self) -> Isolation {
        match self {
            Self::Cell(cell) => cell.isolation(),
            Self::Container(container) => container.isolation().clone(),
        }
    }

    /// Returns a future that resolves to its resource usage, where only an engine measures that.
    pub(crate) fn measure(&self) -> Option<impl Future<Output = Option<Use>> + Send + use<>> {
        match self {
            Self::Cell(_) => None,
            Self::Container(container) => Some(container.measure()),
        }
    }

    /// Replaces the hosts that its programs may reach, and closes connections to others.
    pub(crate) fn replace_egress(&self, policy: &EgressPolicy) -> Result<(), NoSockets> {
        match self {
            Self::Cell(cell) => cell.replace_egress(policy),
            Self::Container(container) => container.replace_egress(policy),
        }
    }

    /// Returns `true` if each process has a proxy of the server's. The programs of a cell share one.
    pub(crate) fn has_proxies(&self) -> bool {
        match self {
            Self::Cell(_) => false,
            Self::Container(container) => container.has_proxies(),
        }
    }

    /// Returns the number of bytes that its programs sent to hosts and received from them so far.
    pub(crate) fn egress_bytes(&self) -> u64 {
        match self {
            Self::Cell(cell) => cell.egress_bytes(),
            Self::Container(container) => container.init().egress_bytes(),
        }
    }

    /// Returns the limits, and the usage unless only a container engine measures that.
    pub(crate) fn resources(&self) -> Resources {
        match self {
            Self::Cell(cell) => cell.resources(),
            Self::Container(container) => {
                let limits = container.limits();
                Resources {
                    memory_limit: limits.memory_bytes,
                    cpu_limit: limits.cpus,
                    pids_limit: limits.pids,
                    disk_limit: limits.disk_bytes.unwrap_or_default(),
                    ..Resources::default()
                }
            }
        }
    }

    /// Returns the number of processes that the kernel has killed for lack of memory, where it is counted.
    fn memory_kills(&self) -> u64 {
        match self {
            Self::Cell(cell) => cell.memory_kills(),
            // The init tells for each process.
            Self::Container(_) => 0,
        }
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        match self {
            Self::Cell(cell) => cell.warnings(),
            Self::Container(container) => container.warnings().to_vec(),
        }
    }

    /// Ends the cell or container with all processes, and waits for it.
    pub(crate) async fn close(self) {
        match self {
            Self::Cell(cell) => cell.close().await,
            Self::Container(container) => container.close().await,
        }
    }
}

/// Kills for lack of memory in a place, from a moment on.
#[derive(Debug)]
pub(crate) struct MemoryKills {
    place: Arc<Mutex<Option<Place>>>,
    before: u64,
}

impl MemoryKills {
    /// Counts from now on.
    pub(crate) fn since_now(place: &Arc<Mutex<Option<Place>>>) -> Self {
        Self {
            place: Arc::clone(place),
            before: count(place),
        }
    }

    /// Returns `true` if the kernel has killed a process since. Inits of containers report that themselves.
    pub(crate) fn any(&self) -> bool {
        count(&self.place) > self.before
    }
}

fn count(place: &Mutex<Option<Place>>) -> u64 {
    lock(place).as_ref().map_or(0, Place::memory_kills)
}

impl Runtime {
    /// Returns the engine of the runtime's containers; `None` for cells.
    pub(crate) const fn engine(self) -> Option<EngineKind> {
        match self {
            Self::Local => None,
            Self::Docker => Some(EngineKind::Docker),
            Self::Podman => Some(EngineKind::Podman),
        }
    }
}

/// The processes of a sandbox, all of which its place stops and continues.
#[derive(Debug, Clone)]
pub(crate) enum Freezer {
    Cell(PauseControl),
    Container(ContainerPause),
}

impl Freezer {
    /// Checks that there is one.
    pub(crate) const fn check(&self) -> Result<(), Error> {
        match self {
            Self::Cell(control) if !control.is_supported() => Err(Error::CannotPause(PauseError::NoFreezer)),
            Self::Cell(_) | Self::Container(_) => Ok(()),
        }
    }

    pub(crate) async fn pause(&self) -> Result<(), Error> {
        match self {
            Self::Cell(control) => control.pause().await.map_err(Error::CannotPause),
            Self::Container(control) => Ok(control.pause().await?),
        }
    }

    pub(crate) async fn resume(&self) -> Result<(), Error> {
        match self {
            Self::Cell(control) => control.resume().map_err(Error::CannotPause),
            Self::Container(control) => Ok(control.resume().await?),
        }
    }
}
