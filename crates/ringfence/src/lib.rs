//! Ringfence as a library: configuration becomes a runner of fenced programs, and a toolbox for agents.
//!
//! A program that embeds it calls [`init`] first in `main`.

pub mod audit;
pub mod config;
pub mod container;
pub mod context;
pub mod doctor;
pub mod env;
pub mod failure;
pub mod gateway_token;
mod in_process;
pub mod kernel;
pub mod local;
pub mod mount_guard;
pub mod parts;
pub mod paths;
pub mod private_workspace;
pub mod pyodide;
mod request;
pub mod resolve;
mod run_log;
pub mod settings;
pub mod skills;
pub mod trust;

pub use context::{Configuration, Context};
pub use env::Environment;
pub use failure::{Cause, Error, Failure};
pub use in_process::InProcess;
pub use request::{LimitChoices, Request, Stdin};
pub use ringfence_exec::local::init;
pub use run_log::AuditedRuns;
