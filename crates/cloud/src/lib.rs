//! Runs requests in sandboxes of an E2B-compatible service: code, input and files leave this machine.
//!
//! One sandbox serves one run: it is created, given the program, and killed, whatever happens between. Everything that
//! the service answers is untrusted: bounded, checked, and never followed to another host. It applies none of this
//! machine's layers, and results claim none.
//!
//! - [`Settings`]: the service, its address and the key; [`Cloud`]: the backend.
//! - `exchange`: one HTTP request; `frames`: messages of a stream.
//! - `control`: the life of a sandbox; `envd`: its files and processes.
//! - `run`: a run from its request to its result; `program`: the process and its input; `files`: what is sent;
//!   `outputs`: what is fetched.
#![forbid(unsafe_code)]

mod backend;
mod control;
mod envd;
mod error;
mod exchange;
mod files;
mod frames;
mod outputs;
mod program;
mod run;
mod settings;

#[cfg(test)]
mod tests;

pub use backend::Cloud;
pub use error::Error;
pub use settings::{HOSTED, Sandboxes, Settings, SettingsError};
