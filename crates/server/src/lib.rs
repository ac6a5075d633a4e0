//! The server's interfaces: its socket and HTTP.
//!
//! - [`frame`]: frames of the socket.
//! - [`wire`]: their payloads.
//! - [`client`]: the client's side.
//! - [`server_or_local`]: a backend that is such a client.
//! - [`listener`]: the server's side.
//! - [`http`]: connections of browsers and programs.
//! - [`api`]: the HTTP API.
//! - [`console`]: the web console for approvals.
//! - [`metrics`]: figures for monitoring.
//! - [`usage`]: the usage of keys.
//! - [`remains`]: files that runs leave.
//! - [`sources`]: the records that people see.
//! - [`site`]: the listeners of both.
//! - [`stop`]: requests to stop.
//!
//! Guests never send messages here: their output is the payload of output frames.
#![forbid(unsafe_code)]

pub mod api;
pub mod client;
pub mod console;
pub mod frame;
pub mod listener;
pub mod metrics;
pub mod remains;
pub mod server_or_local;
pub mod site;
pub mod sources;
pub mod stop;
pub mod usage;
pub mod wire;

mod questions;
mod sandboxes;
