//! Specifies a container with types that cannot express privilege.
//!
//! There is no field for capabilities, devices, host namespaces, an unconfined filter or an engine's socket,
//! so no configuration, however it is parsed, leads to a container that has one.

pub(crate) mod bind;
mod image;
pub(crate) mod lower;
pub(crate) mod name;
mod volume;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_exec::filter::{UnknownFilter, filter_document};
use ringfence_exec::owner::Owner;
use ringfence_exec::trust::Ledger;
use ringfence_policy::{Bytes, Cpus, EnvName, NetworkMode, Pids};
use serde::{Deserialize, Serialize};

pub use bind::{Bind, BindError, Binds};
pub use image::{Image, ParseImageError};
pub use name::{Name, ParseNameError};
pub use volume::Volume;

/// The specification of a container.
#[derive(Debug, Clone)]
pub struct Spec {
    pub name: Name,
    pub image: Image,
    /// Program and arguments, started without a shell.
    pub command: Vec<String>,
    /// Environment, beside the image's.
    pub env: Vec<(EnvName, String)>,
    /// Absolute working directory.
    pub directory: String,
    /// User of the program, in the container and for the host's files.
    pub user: User,
    /// Resource limits.
    pub resources: Resources,
    /// The bound of its processes beside the control group's.
    pub process_limit: ProcessLimit,
    /// Network mode.
    pub network: NetworkMode,
    /// Seccomp filter.
    pub filter: Filter,
    /// Bind mounts of host paths.
    pub binds: Binds,
    /// Places where programs may write, and exchange the path of a bind for a link.
    pub ledger: Ledger,
    /// Tmpfs volumes, created and removed with the container.
    pub volumes: Vec<Volume>,
    pub oci_runtime: OciRuntime,
    /// The first process.
    pub init: Init,
    pub stdin: Stdin,
    /// Log of the container's output.
    pub log: Log,
    /// Scope of the container's requests: scopes share no container.
    pub scope: String,
    /// The process responsible for its removal.
    pub owner: Owner,
}

impl Spec {
    /// Checks that no volume shares its mount point with another mount.
    ///
    /// # Errors
    /// If one does.
    pub(super) fn has_places(&self) -> Result<(), BindError> {
        let mut taken: Vec<&Path> = self.binds.iter().map(Bind::guest).collect();
        for place in self.volumes.iter().flat_map(|volume| &volume.places) {
            if taken.contains(&place.as_path()) {
                return Err(BindError::Twice(place.clone()));
            }
            taken.push(place);
        }
        Ok(())
    }

    /// Returns `true` if our init runs in the container, and sees the files of the host as the kernel does. gVisor
    /// numbers files by itself.
    pub(super) fn reports_mounts(&self) -> bool {
        let is_of_host = matches!(self.oci_runtime, OciRuntime::Runc | OciRuntime::Crun);
        is_of_host && self.init == Init::Program
    }

    /// Returns the names of the container and its volumes.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        std::iter::once(&self.name).chain(self.volumes.iter().map(|volume| &volume.name))
    }

    /// Checks that the OCI runtime enforces the filter, or is equally strict.
    ///
    /// # Errors
    /// If it ignores the filter, and its own kernel permits calls that the filter would deny.
    pub(super) fn is_filtered(&self) -> Result<(), super::Error> {
        match self.oci_runtime == OciRuntime::Runsc && !self.filter.lets_fork() {
            true => Err(super::Error::Unfiltered {
                filter: self.filter.name().to_owned(),
            }),
            false => Ok(()),
        }
    }
}

/// A numeric user and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// Resource limits of a container.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resources {
    /// Limit of the memory of all processes together, without additional swap.
    pub memory: Bytes,
    /// Processor time per wall-clock time.
    pub cpus: Cpus,
    /// Limit of processes and threads.
    pub pids: Pids,
    /// Size limit of each writable directory: `/tmp`, and its volumes.
    pub disk: Bytes,
}

impl Resources {
    /// Returns the size of a volume. Its pages count as the container's memory, half of which is left for
    /// programs.
    pub fn volume(&self) -> Bytes {
        self.disk.min(Bytes(self.memory.0 / 2))
    }
}

/// The bound of a container's processes beside `pids`, which a control group enforces if the engine can.
///
/// The kernel counts RLIMIT_NPROC for a user of the host, and guests of a rootful engine are one: what is enough for one
/// container lets a few others starve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessLimit {
    /// One for the containers of the user together: no control group bounds the container.
    User,
    /// None but the engine's own: a control group bounds the container.
    Container,
}

/// The OCI runtime that runs a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OciRuntime {
    /// The engine's default.
    Default,
    Runc,
    Crun,
    /// gVisor: a user-space kernel between the program and the host's.
    Runsc,
}

/// The first process of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// The engine's init: forwards signals and reaps orphaned processes.
    Engine,
    /// The program itself, which forwards signals and reaps processes.
    Program,
}

/// The standard input of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    /// End of file at once.
    Empty,
    /// Standard input of the first attached client; closed with its connection.
    Attached,
}

/// The log of a container's output, beside attached clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// None: a client is attached from the start.
    None,
    /// A file of the engine, of limited size.
    File,
}

/// A built-in seccomp filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    name: String,
    document: Arc<str>,
}

/// Cache: serializing a filter takes longer than a call.
static FILTERS: Mutex<BTreeMap<String, Filter>> = Mutex::new(BTreeMap::new());

impl Filter {
    /// Returns the built-in filter of this name, for this machine's architecture.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str) -> Result<Self, UnknownFilter> {
        let mut known = FILTERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(filter) = known.get(name) {
            return Ok(filter.clone());
        }
        let filter = Self {
            name: name.to_owned(),
            document: filter_document(name, std::env::consts::ARCH)?.to_string().into(),
        };
        known.insert(name.to_owned(), filter.clone());
        Ok(filter)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns `true` if the filter permits child processes. Otherwise there is nothing to reap, and an init
    /// could not start the program.
    pub(crate) fn lets_fork(&self) -> bool {
        self.name != "strict"
    }

    /// Returns the filter in the engines' JSON format.
    pub(crate) fn document(&self) -> &str {
        &self.document
    }
}

impl OciRuntime {
    /// Returns the name that engines use; `None` for their default.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::Runc => Some("runc"),
            Self::Crun => Some("crun"),
            Self::Runsc => Some("runsc"),
        }
    }

    /// Returns the OCI runtime of this name; the engine's default if it is unknown.
    pub(crate) fn named(name: &str) -> Self {
        let known = [Self::Runc, Self::Crun, Self::Runsc];
        let found = known.into_iter().find(|known| known.name() == Some(name));
        found.unwrap_or(Self::Default)
    }
}
