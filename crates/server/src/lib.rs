//! The server's interfaces: its socket, HTTP, MCP and gateways.
//!
//! - [`frame`]: frames of the socket.
//! - [`wire`]: their payloads.
//! - [`client`]: the client's side.
//! - [`server_or_local`]: a backend that is such a client.
//! - [`listener`]: the server's side.
//! - [`http`]: the interface for browsers and programs.
//! - [`console`]: the web console for approvals.
//! - [`gateway`]: approval requests over chat services.
//!
//! Guests never send messages here: their output is the payload of output frames.
#![forbid(unsafe_code)]

pub mod client;
pub mod console;
pub mod frame;
pub mod gateway;
pub mod http;
pub mod listener;
pub mod mcp;
pub mod server_or_local;
pub mod wire;

mod lines;
mod sandboxes;
mod socket;
