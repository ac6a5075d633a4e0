//! The engine's socket for gateways: programs that pass questions on to people, and their answers back.
//!
//! One JSON object a line, in both directions; `docs/protocol/gateway.md` specifies it. Everything that matters
//! is decided in the store ([`ringfence_runtime::approval`]): a connection shows what is there and passes answers on.
//!
//! A gateway has a [`Link`] to the engine and, if it asks by buttons in chats, a [`Desk`] that knows which questions
//! are on show and what a press means.

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
pub use shown::{Piece, decidable, foreign, framed, lines, pieces, remaining, visible};
pub use words::{
    FromEngine, FromGateway, Refusal, RequestWords, VERSION, parse_from_engine, parse_from_gateway,
};

/// The longest line, its end not included. A question's text of 10,000 characters, each escaped, fits.
const MAX_LINE: usize = 256 * 1024;

#[cfg(test)]
mod tests;
