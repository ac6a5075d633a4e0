//! A container before it exists: types in which privilege cannot be written down.
//!
//! There is no field for capabilities, devices, namespaces of the host, an unconfined filter or a socket of an
//! engine, so no configuration, however read, leads to a container that has one.

mod bind;
mod image;
mod lower;
mod name;
mod volume;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_policy::{Bytes, Cpus, EnvName, Pids};
use serde::{Deserialize, Serialize};

pub use bind::{Bind, BindError, Binds};
pub use image::{Image, ParseImageError};
pub(crate) use lower::{OWNER_LABEL, labels};
pub use name::{Name, ParseNameError};
pub use volume::Volume;

use crate::filter::{UnknownFilter, filter_document};
use crate::owner::Owner;

/// A container before it exists.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its name.
    pub name: Name,
    /// What it is made of.
    pub image: Image,
    /// The program and its arguments, started without a shell.
    pub command: Vec<String>,
    /// Its environment, beside the image's.
    pub env: Vec<(EnvName, String)>,
    /// Where the program starts; absolute.
    pub directory: String,
    /// Who the program is, inside and on the host's files.
    pub user: User,
    /// What it may use.
    pub resources: Resources,
    /// What it may reach.
    pub network: Network,
    /// The system calls it may make.
    pub filter: Filter,
    /// The directories of the host that it sees.
    pub binds: Binds,
    /// The file systems in memory that it sees, which are made and removed with it.
    pub volumes: Vec<Volume>,
    /// What runs it.
    pub oci_runtime: OciRuntime,
    /// What its first process is.
    pub init: Init,
    /// Whether it has a standard input.
    pub stdin: Stdin,
    /// What its output is kept in.
    pub log: Log,
    /// Whose it is: scopes share no container.
    pub scope: String,
    /// The process that removes it.
    pub owner: Owner,
}

impl Spec {
    /// That nothing else of the container lies where a volume shall be.
    ///
    /// # Errors
    /// If something does.
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

    /// The names of all that is made in the engine for it.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        std::iter::once(&self.name).chain(self.volumes.iter().map(|volume| &volume.name))
    }

    /// That what makes the container holds the program as the filter would.
    ///
    /// # Errors
    /// If it does not apply the filter, and its own kernel allows what the filter is to refuse.
    pub(super) fn is_filtered(&self) -> Result<(), super::Error> {
        match self.oci_runtime == OciRuntime::Runsc && !self.filter.lets_fork() {
            true => Err(super::Error::Unfiltered {
                filter: self.filter.name().to_owned(),
            }),
            false => Ok(()),
        }
    }
}

/// A user and a group by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// What a container may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resources {
    /// Memory of all its processes together; there is no swap beyond it.
    pub memory: Bytes,
    /// Processor time per wall time.
    pub cpus: Cpus,
    /// Processes and threads at once.
    pub pids: Pids,
    /// Bytes in each directory that it may write: `/tmp`, and its volumes.
    pub disk: Bytes,
}

impl Resources {
    /// The size of a volume. Its pages are the container's memory, of which programs always have half.
    pub fn volume(&self) -> Bytes {
        self.disk.min(Bytes(self.memory.0 / 2))
    }
}

/// What a container may reach over a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Nothing but itself.
    None,
    /// What the engine's bridge leads to, this machine's own services among it: only where the person allowed it.
    Bridge,
}

/// The OCI runtime that makes the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OciRuntime {
    /// The engine's own choice.
    Default,
    /// runc.
    Runc,
    /// crun.
    Crun,
    /// gVisor: a kernel of its own between the program and the host's.
    Runsc,
}

/// What the first process of a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// The engine's own: it passes signals on, and reaps what nobody waits for.
    Engine,
    /// The program itself, which sees to both.
    Program,
}

/// Whether a container has a standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    /// It is at its end at once.
    Empty,
    /// It is that of whoever attaches first, and ends with them.
    Attached,
}

/// What a container's output is kept in, beside whoever listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// Nothing: it is listened to from its start.
    None,
    /// A file of the engine, of bounded size.
    File,
}

/// A filter of system calls that came with this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    name: String,
    document: Arc<str>,
}

/// Those that were asked for before: to write one down takes longer than a call.
static FILTERS: Mutex<BTreeMap<String, Filter>> = Mutex::new(BTreeMap::new());

impl Filter {
    /// The filter of that name, for this machine.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it lets a program have children. Otherwise nothing needs an init to reap them, and no init could start
    /// the program.
    pub(crate) fn lets_fork(&self) -> bool {
        self.name != "strict"
    }

    /// The filter as engines read it.
    pub(crate) fn document(&self) -> &str {
        &self.document
    }
}

impl OciRuntime {
    /// The name that engines know; none for their own choice.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::Runc => Some("runc"),
            Self::Crun => Some("crun"),
            Self::Runsc => Some("runsc"),
        }
    }

    /// The one of that name; the engine's own choice if it is none that we know.
    pub(crate) fn named(name: &str) -> Self {
        let known = [Self::Runc, Self::Crun, Self::Runsc];
        let found = known.into_iter().find(|known| known.name() == Some(name));
        found.unwrap_or(Self::Default)
    }
}
