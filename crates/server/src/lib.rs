//! Speaks the engine's socket protocol to the runtime.
//!
//! - [`frame`]: how messages are told apart on the socket.
//! - [`wire`]: what they say.
//! - [`client`]: the side of whoever wants code run.
//! - [`listener`]: the engine's side.
//! - [`http`]: the interface for browsers and programs.
//! - [`console`]: the page on which a person answers questions.
//! - [`gateway`]: what passes questions on to people, and their answers back.
//!
//! Nothing here comes from a guest as a message: what guests print travels as the payload of output frames.
#![forbid(unsafe_code)]

pub mod client;
pub mod console;
pub mod frame;
pub mod gateway;
pub mod http;
pub mod listener;
pub mod mcp;
pub mod wire;

mod lines;
mod sandboxes;
mod socket;
mod tls;
