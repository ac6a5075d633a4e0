//! Runs one request in a fence of this machine, and owns every process until it is gone.
//!
//! The crate takes a [`ringfence_policy::Request`] and returns a [`ringfence_policy::ExecutionResult`]. It knows
//! no container engine, tool, protocol, terminal or configuration file.
//!
//! - [`execute`]: executes one request on any backend, from the import check to the artifact.
//! - [`backend`]: the trait of backends, and their error.
//! - [`local`]: the backend of fenced processes; [`pyodide`]: CPython as WebAssembly in Deno.
//! - [`interpreter`]: Python, Node.js and bash on this machine; [`probe`]: the isolation layers it supports.
//! - [`bridge`]: the protocol between programs and host functions.
//! - [`egress`]: the network guard and the proxy of programs; [`fetch`]: HTTP requests through the guard.
//! - [`trust`]: checks that a path is not writable by guests; [`exposure`], [`protected`]: paths that guests
//!   must not see or change.
//! - [`imports`], [`hints`], [`output`], [`redact`], [`artifact`]: building blocks of a run.
//! - [`secret`]: keys that debug output does not show; [`owner`]: marks of the process that owns a resource;
//!   [`clock`]: time stamps.
#![forbid(unsafe_code)]

pub mod artifact;
pub mod backend;
pub mod bridge;
pub mod clock;
pub mod execute;
pub mod filter;
pub mod interpreter;
pub mod key;
pub mod local;
pub mod mount_guard;
pub mod output;
pub mod owner;
pub mod probe;
pub mod protected;
pub mod pyodide;
pub mod trust;

pub use filter::{UnknownFilter, filter_document};
