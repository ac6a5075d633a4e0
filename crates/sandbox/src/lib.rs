//! Sandboxes that live: a file system, processes and interpreters that stay until somebody ends them or they expire.
//!
//! A sandbox is a cell of this machine or a container of Docker or Podman. Its init starts programs, and reads and writes
//! files, inside and with the guest's rights; the server opens no path that a guest may have written.
//!
//! - [`Sandboxes`]: the sandboxes of a server, with their owners, names and expiry.
//! - [`Sandbox`]: one of them, with its operations.
//! - [`process`]: its processes; [`output`]: their output, for readers that come and go.
//! - [`context`]: its interpreters.
//! - [`files`]: its files.
#![forbid(unsafe_code)]

pub mod context;
mod error;
pub mod files;
mod id;
pub mod output;
mod place;
pub mod process;
mod registry;
mod sandbox;
mod spec;

pub use error::{Error, ErrorKind};
pub use id::{SandboxId, SandboxName};
pub use registry::Sandboxes;
pub use sandbox::{ContextChoice, Sandbox};
pub use spec::{NewSandbox, Resources, Runtime, SandboxInfo, SandboxLimits, SandboxState};
