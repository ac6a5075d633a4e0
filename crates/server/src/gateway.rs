//! Gateways: programs that forward approval requests to people, and return their answers.
//!
//! Messages are JSON objects, one per line, in both directions; `docs/protocol/gateway.md` specifies them.
//! All decisions are made in the store ([`ringfence_tools::approval`]): a connection only shows pending
//! requests and forwards answers.
//!
//! A gateway has a [`Link`] to the server and, if it uses buttons in chats, a [`Desk`] that tracks the
//! messages and interprets presses.

mod card;
mod client;
mod connection;
mod desk;
pub mod discord;
mod link;
mod listener;
mod secret;
mod shown;
pub mod telegram;
mod words;

pub use card::{Card, Choice};
pub use client::Client;
pub use desk::{Desk, Due, Ignored, Notice, Press};
pub use link::{Link, News};
pub use listener::{Listener, Patience};
pub use secret::{NotASecret, Secret};
pub use shown::{Piece, decidable, foreign, framed, lines, pieces, remaining, visible, waiting};
pub use words::{
    FromEngine, FromGateway, Refusal, RequestWords, VERSION, parse_from_engine, parse_from_gateway,
};

/// Maximum length of a line, without its newline. A question of 10,000 characters, each escaped, fits.
const MAX_LINE: usize = 256 * 1024;

#[cfg(test)]
mod tests;
