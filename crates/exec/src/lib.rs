//! Runs one request in a fence of this machine, and owns every process until it is gone.
//!
//! The crate takes a [`ringfence_policy::Request`] and returns a [`ringfence_policy::ExecutionResult`]. It knows
//! no container engine, tool, protocol, terminal or configuration file.
//!
//! - [`runner`]: the way of every run, from its fallback and the import check to its artifact.
//! - [`backend`]: the trait of backends, and their error.
//! - [`local`]: the backend of fenced processes; [`pyodide`]: CPython as WebAssembly in Deno.
//! - [`supervise`]: the limits of a run that its supervisor enforces, and its outcome.
//! - [`interpreter`]: Python, Node.js and bash on this machine; [`probe`]: the isolation layers it supports.
//! - [`bridge`]: the protocol between programs and host functions.
//! - [`trust`]: checks that a path is not writable by guests; [`mount_guard`], [`protected`]: paths that guests
//!   must not see or change.
//! - [`output`], [`lines`], [`pool`], [`artifact`], [`filter`], [`key`]: building blocks of a run.
//! - [`owner`]: marks of the process that owns a resource.
#![forbid(unsafe_code)]

pub mod backend;
pub mod bridge;
pub mod filter;
mod fingerprint;
pub mod interpreter;
pub mod key;
pub mod local;
mod open_flags;
pub mod owner;
pub mod probe;
pub mod processors;
pub mod pyodide;
pub mod runner;
mod spec;
pub mod supervise;

pub use filter::{UnknownFilter, filter_document};
pub use ringfence_artifacts as artifact;
pub use ringfence_jail::uptime;
pub use ringfence_streams::{lines, output};
pub use ringfence_trust::{self as trust, mount_guard, protected};
