//! A client of the server's HTTP API over its private socket.
//!
//! - [`Client`]: requests and answers.
//! - [`events`]: answers that are streams of events.
//! - [`terminal`]: a process of a sandbox in the caller's terminal.
#![forbid(unsafe_code)]

mod client;
pub mod events;
pub mod terminal;

pub use client::{Body, Client, Error, Response, query};
