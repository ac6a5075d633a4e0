//! Gateways: programs that forward approval requests to people, and return their answers.
//!
//! Messages are JSON objects, one per line, in both directions; `docs/protocol/gateway.md` specifies them.
//! All decisions are made in the store ([`ringfence_records::approval`]): a connection only shows pending
//! requests and forwards answers.
//!
//! A gateway has a [`Link`] to the server. Those of chat services are the program `ringfence-gateway`, which takes
//! its settings ([`Start`]) from `ringfence gateway`.
//!
//! - [`socket`]: Unix sockets for one user, and the loop that serves connections.
//! - [`peer`]: the user at the other end of a TCP connection on this machine.
//! - [`line_reader`]: lines of bounded length.
#![forbid(unsafe_code)]

mod board;
mod client;
mod connection;
pub mod line_reader;
mod link;
mod listener;
mod messages;
pub mod peer;
mod secret;
mod shown;
mod signals;
pub mod socket;
mod start;
mod table;

pub use board::{Board, Input};
pub use client::Client;
pub use link::{Link, LinkEvent};
pub use listener::{Listener, ReadTimeout};
pub use messages::{
    FromGateway, FromServer, Refusal, RequestWords, VERSION, parse_from_gateway, parse_from_server,
};
pub use secret::{NotASecret, Secret};
pub use shown::{Piece, decidable, foreign, framed, is_hidden, lines, pieces, remaining, visible, waiting};
pub use signals::interrupted;
pub use start::{ChatService, PROGRAM, Start};
pub use table::table;

/// Maximum length of a line, without its newline. A question of 10,000 characters, each escaped, fits.
const MAX_LINE: usize = 256 * 1024;

#[cfg(test)]
mod tests;
