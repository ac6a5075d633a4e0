//! The engine's socket for gateways: programs that pass questions on to people, and their answers back.
//!
//! One JSON object a line, in both directions; `docs/protocol/gateway.md` specifies it. Everything that matters
//! is decided in the store ([`ringfence_runtime::approval`]): a connection shows what is there and passes answers on.

mod client;
mod connection;
mod lines;
mod listener;
mod words;

pub use client::Client;
pub use lines::{Lines, MAX_LINE, Next};
pub use listener::{Listener, Patience};
pub use words::{
    FromEngine, FromGateway, Refusal, RequestWords, VERSION, parse_from_engine, parse_from_gateway,
};

#[cfg(test)]
mod tests;
