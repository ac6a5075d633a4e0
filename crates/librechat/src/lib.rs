//! LibreChat's Code API: programs of a conversation, each in a sandbox of its own, over files that stay until the day is over.
//!
//! - [`Service`]: the Code API of a server.
//! - `sessions`: its sessions, with their owners and bounds; `session`: one of them.
//! - `language`: program texts become command lines.
//! - `program_sandbox`: the sandbox of one program, from its files to those that it leaves.
//! - `exec`: programs that are run at once.
//! - `tools`: programs that call their client's tools, in rounds.
//!
//! Keys, hosts, origins and records are the caller's.
#![forbid(unsafe_code)]

mod error;
mod exec;
mod language;
mod program_sandbox;
mod service;
mod session;
mod sessions;
mod tools;

pub use error::Error;
pub use exec::{Exec, ExecAnswer, Ran};
pub use service::Service;
pub use session::{Download, FileInfo, FileRef, InputFile};
pub use sessions::{UploadAnswer, UploadedFile};
pub use tools::{Programmatic, ProgrammaticAnswer, Status, Tool, ToolCall, ToolResult};
