//! Runs untrusted code in the strongest fence that this machine supports: the library that other programs embed.
//!
//! Call [`init`] first in `main`, build a [`Runner`], and give it [`Request`]s:
//!
//! ```standalone_crate
//! use ringfence::{Request, Runner};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // The library starts this very program anew, as the process that makes fences.
//!     ringfence::init();
//!     tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//!         let runner = Runner::builder().build()?;
//!         let result = runner.run(Request::python("print('hello')")).await?;
//!         assert_eq!(result.stdout, "hello\n");
//!         runner.close().await;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! `docs/guide/library.md` goes through the tasks. The modules are what the command line and the server are made of:
//! they turn a configuration into backends, skills and a toolbox for agents.

pub mod audit;
mod cloud;
pub mod config;
pub mod container;
pub mod context;
pub mod doctor;
pub mod env;
pub mod failure;
pub mod gateway_token;
pub mod images;
mod in_process;
pub mod local;
pub mod mount_guard;
pub mod named_paths;
mod own_directory;
pub mod packages;
pub mod parts;
pub mod paths;
pub mod private_workspace;
pub mod pyodide;
mod request;
pub mod resolve;
mod run_log;
mod runner;
pub mod settings;
pub mod skills;
pub mod source;
pub mod state_lock;
pub mod toolbox;
pub mod trust;

pub use context::{Configuration, Context};
pub use env::Environment;
pub use failure::{Cause, Error, Failure};
pub use in_process::InProcess;
pub use packages::Requirement;
pub use request::{LimitChoices, Request, Stdin};
pub use ringfence_exec::local::{Chunk, Fence, Stream, init};
pub use ringfence_policy::{
    Access, Bytes, Cpus, EgressPolicy, EnvName, ExecutionResult, HostPattern, Language, Limits, Mount,
    Network, Outcome, Pids, RuntimeKind, Scope, SessionId, Timeout,
};
pub use run_log::AuditedRuns;
pub use runner::{Builder, Cancellation, Run, Runner, StdinWriter};

/// The guide, whose programs are tested as those of this page are.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/library.md")]
struct Guide;
