//! The tools of agents, behind one entry point that checks, asks and records.
//!
//! The crate knows no protocol, flag or configuration file.
//!
//! - [`toolbox`]: dispatch of tool calls.
//! - [`shell`]: execution of shell commands; [`host`]: commands outside of the fence.
//! - [`files`]: the workspace that file tools and code share; [`workspaces`]: one for each conversation.
//! - [`skills`]: functions of the host that programs call.
#![forbid(unsafe_code)]

pub mod files;
pub mod host;
pub mod shell;
pub mod skills;
pub mod toolbox;
pub mod workspaces;

mod pictures;
mod render;
mod tools;

pub use tools::{NAMES as TOOL_NAMES, host_tools};
