//! Implementations of the commands, one module each.

pub(crate) mod accept;
pub(crate) mod approvals;
pub(crate) mod artifacts;
pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod console;
pub(crate) mod doctor;
pub(crate) mod gateway;
pub(crate) mod image;
pub(crate) mod keys;
pub(crate) mod lock_stdin;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod packages;
pub(crate) mod policy;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod seccomp;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod setup;
pub(crate) mod skills;
pub(crate) mod tool;
