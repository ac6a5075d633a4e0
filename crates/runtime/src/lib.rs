//! Runs requests on a backend and owns every process until it is gone.
//!
//! The crate serves no HTTP and does not know MCP, terminals or configuration files: it takes a
//! [`ringfence_policy::Request`] and returns a [`ringfence_policy::ExecutionResult`].
//!
//! - [`execute`]: executes one request on any backend, from the import check to the artifact.
//! - [`backend`]: execution backends; [`shell`]: execution of shell commands.
//! - [`local`]: the backend of fenced processes on this machine; [`container`]: containers of Docker and
//!   Podman.
//! - [`pyodide`]: CPython as WebAssembly in Deno.
//! - [`probe`]: isolation layers that this machine supports.
//! - [`kernel`]: dispatch of tool calls; [`audit`]: the audit log.
//! - [`approval`]: approval requests to people; [`assessor`]: risk scores from a model.
//! - [`bridge`]: the protocol between programs and host functions; [`skills`]: those functions.
//! - [`trust`]: checks that a path is not writable by guests.
//! - [`files`]: the workspace that file tools and code share; [`egress`]: the network guard; [`fetch`]: HTTP
//!   requests through it.
//! - [`imports`], [`hints`], [`output`], [`redact`], [`artifact`], [`interpreter`]: building blocks of a run.
#![forbid(unsafe_code)]

pub mod approval;
pub mod artifact;
pub mod assessor;
pub mod audit;
pub mod backend;
pub mod bridge;
pub mod container;
pub mod egress;
pub mod execute;
pub mod exposure;
pub mod fetch;
pub mod files;
pub mod hints;
pub mod host;
pub mod imports;
pub mod interpreter;
pub mod kernel;
pub mod local;
pub mod output;
pub mod probe;
pub mod pyodide;
pub mod redact;
pub mod shell;
pub mod skills;
mod told;
pub mod trust;
pub mod workspaces;

mod clock;
mod filter;
pub mod owner;
mod tools;

pub use filter::{UnknownFilter, filter_document};
