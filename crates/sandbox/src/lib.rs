//! Long-lived sandboxes, each with a file system, processes and interpreters, until it is ended or expires.
//!
//! A sandbox is a cell of this machine, or a container of Docker or Podman. Its init starts programs, and
//! reads and writes files, inside and with the guest's rights; the server opens no path that a guest may have written.
//!
//! - [`Sandboxes`]: the sandboxes of a server, with their owners, names and expiry.
//! - [`Sandbox`]: one of them, with its operations.
//! - [`process`]: its processes; [`output`]: their output, for readers that come and go.
//! - [`context`]: its interpreters.
//! - [`files`]: its files.
//! - [`KeyHosts`]: hosts that those of API keys may reach.
//! - [`Consumption`]: what they use, by their owner.
//! - [`SnapshotStore`]: files of sandboxes that are kept.
#![forbid(unsafe_code)]

mod cell;
pub mod context;
mod copies;
mod error;
mod events;
pub mod files;
mod hints;
mod id;
mod image;
mod kept_output;
mod key_hosts;
mod lock;
mod meter;
mod network;
pub mod output;
mod packages;
mod pause;
mod place;
mod ports;
pub mod process;
mod registry;
mod sandbox;
mod snapshots;
mod spec;
mod text;

pub use packages::SandboxPackages;
pub use ringfence_exec::bridge;
pub use ringfence_packages::Digest;
pub use ringfence_policy::timestamp::rfc3339;

pub use error::{Error, ErrorKind, ImageError};
pub use events::{LifeEvent, LifeEventType, LifeEvents, LifeItem};
pub use hints::hint;
pub use id::{SandboxId, SandboxName};
pub use key_hosts::{ClosedHost, KeyHosts};
pub use meter::{Consumption, ConsumptionByOwner};
pub use ports::{PROXY_PORT, PortReader};
pub use registry::{ListPosition, SandboxEnd, SandboxPage, Sandboxes, Unclaimed};
pub use sandbox::{ContextChoice, MAX_CONNECTIONS, Sandbox};
pub use snapshots::{NewSnapshot, SnapshotInfo, SnapshotStore, Tag, Template, new_tags};
pub use spec::{
    ImageName, NewCopies, NewSandbox, OnExpiry, PausedProcesses, Resources, Runtime, SandboxFence,
    SandboxImage, SandboxInfo, SandboxLimits, SandboxState,
};
pub use text::TextDecoder;
