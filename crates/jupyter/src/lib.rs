//! Jupyter's kernels: unmodified clients of a Jupyter server run code in sandboxes of this one.
//!
//! - [`Service`]: the kernels of a server.
//! - [`Gate`]: the caller's side of a connection, which counts and records what its client does.
//! - `spec`: the kernels that there are to choose from.
//! - `kernel`: one kernel, with its sandbox and its clients.
//! - `request_queue`: its requests, answered in turn.
//! - `cell`: the execution of a cell.
//! - `questions`: completions and the like, which the interpreter answers about itself.
//! - `outputs`: the forms of results and text that may reach a front end.
//! - `connection`: a client at the channels of a kernel, over a WebSocket.
//! - `message`: messages, in both protocols of the WebSocket.
//!
//! Keys, hosts, origins and records are the caller's.
#![forbid(unsafe_code)]

mod cell;
mod connection;
mod error;
mod kernel;
mod media;
mod message;
mod outputs;
mod peer;
mod questions;
mod request_queue;
mod service;
mod spec;

pub use connection::{Channels, MAX_MESSAGE};
pub use error::Error;
pub use message::{Incoming, MessageError, Protocol};
pub use peer::{Act, Gate, Guard, KeyEnd, Refusal};
pub use service::{Kernel, KernelInfo, NewKernel, Service};
pub use spec::{KernelSpec, KernelSpecs};
