//! Runs requests on a backend and owns every process until it is gone.
//!
//! The crate serves no HTTP and knows nothing of MCP, terminals or configuration files: it takes a
//! [`ringfence_policy::Request`] and answers with a [`ringfence_policy::ExecutionResult`].
//!
//! - [`execute`]: one request from check to artifact, whatever the backend.
//! - [`backend`]: where code runs; [`shell`]: what runs a command.
//! - [`local`]: the backend of fenced processes on this machine; [`container`]: containers of Docker and Podman.
//! - [`pyodide`]: CPython as WebAssembly in Deno.
//! - [`probe`]: what this machine offers, layer by layer.
//! - [`kernel`]: the one door through which every tool is used; [`audit`]: what is kept of each use.
//! - [`approval`]: questions that a person answers; [`assessor`]: one that a model answers.
//! - [`bridge`]: what goes between programs and the host's functions; [`skills`]: those functions.
//! - [`trust`]: what lies where no guest writes.
//! - [`files`]: the workspace that file tools and code share; [`egress`]: the guard of every way out;
//!   [`fetch`]: pages through it.
//! - [`imports`], [`hints`], [`output`], [`redact`], [`artifact`], [`interpreter`]: the parts of the work.
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
