//! A client of the server's HTTP API over its private socket.
//!
//! - [`Client`]: requests and answers.
//! - [`events`]: answers that are streams of events.
//! - [`sandbox`]: the operations on a sandbox, with the caller's standard streams.
//! - [`place`]: paths in sandboxes, and on this machine.
//! - [`CopyOptions`]: copies of files and directories.
//! - [`life`]: events in the lives of sandboxes.
//! - [`logs`]: output that processes have left.
//! - [`Snapshots`]: files of sandboxes that the server keeps.
//! - [`terminal`]: the caller's terminal.
#![forbid(unsafe_code)]

mod attach;
mod client;
mod copy;
pub mod events;
mod keys;
pub mod life;
pub mod logs;
pub mod place;
mod port;
pub mod sandbox;
mod snapshot;
pub mod terminal;
mod tree;

pub use client::{Body, Client, Error, Response, query};
pub use copy::{Copied, CopyOptions};
pub use snapshot::Snapshots;
pub use tree::{LeftOut, OnProgress, Progress, Reason, Report, TreeError, for_people};
