//! Runs requests in containers of Docker and Podman, through the HTTP API of their engines.
//!
//! The crate knows no tool, protocol, terminal or configuration file.
//!
//! - [`endpoint`]: the socket of the API; [`runtime`]: every API call.
//! - [`spec`]: the specification of a container; [`check`]: the allowlist of API requests, applied before
//!   they are sent.
//! - [`state`]: the state machine of a container; [`supervisor`]: the containers of this process, and orphans of
//!   dead processes.
//! - [`sandboxes`]: named sandboxes that a person created.
//! - [`keepalive`]: containers that are reused by the calls of a scope; [`outputs`]: the host directories for
//!   their output files.
//! - `exchange`: file transfer into and out of a container.
//! - [`image`]: building the image of containers; [`pins`]: digests of the images that were set up on this host.
//! - [`backend`]: Docker and Podman as backends for requests.
//! - [`init`]: the host side of our init process in a container, and of the calls it runs; [`warm`]:
//!   containers that run it.
//! - [`probe`]: a report on the engines.
#![forbid(unsafe_code)]

mod answers;
mod attached;
pub mod backend;
mod binds;
pub mod check;
mod cleanup;
mod counters;
pub mod endpoint;
mod error;
mod exchange;
mod filters;
mod guest_paths;
pub mod image;
pub mod info;
pub mod init;
mod inspected;
pub mod keepalive;
mod layout;
mod mounts;
mod oneshot;
mod orphans;
pub mod outputs;
pub mod pins;
mod pool;
mod pool_key;
pub mod probe;
mod retry;
mod run_error;
pub mod runtime;
mod sandbox_container;
pub mod sandboxes;
mod settings;
pub mod spec;
pub mod state;
mod streams;
pub mod supervisor;
mod task;
#[cfg(test)]
mod testing;
pub mod warm;
mod wire;

pub use backend::{Containers, RunError};
pub use endpoint::Surroundings;
pub use error::Error;
pub use orphans::Swept;
pub use runtime::ContainerRuntime;
pub use sandbox_container::{ContainerPause, NewSandboxContainer, SandboxContainer};
pub use sandboxes::Sandboxes;
pub use streams::{Attached, Event, Events, Happening, Input, Logs, RunResult, Stats, Use};
pub use supervisor::{Container, ContainerSupervisor};
pub use task::{Life, NewContainer};
