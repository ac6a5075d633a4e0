//! Questions that a person answers: asked by one process, answered through another, kept in a file.
//!
//! A [`Service`] is a directory's store as one process sees it. Whoever asks puts a request into the store and waits;
//! whoever answers changes the request there. Both see the other's change by polling, so that no engine is needed, and
//! the end of one loses nothing. A request leaves the state `pending` once, and an approval is used once.

mod approved;
mod asked;
mod error;
mod grants;
mod listeners;
mod request;
mod service;
mod state;
mod store;

pub use approved::{Approved, Entry};
pub use asked::Asked;
pub use error::{Error, Unanswerable};
pub use listeners::{Listener, Notice};
pub use request::{Answer, Chat, Id, Kind, Lasting, Malformed, Place, Question, Remember, Request, Verdict};
pub use service::{Changes, Decision, Service};
pub use state::{Event, State};

/// The longest text that is asked about, in characters: a person must be able to read it.
pub const MAX_TEXT: usize = 10_000;
/// Questions of one scope that wait at once.
pub const MAX_PENDING_PER_SCOPE: usize = 32;
/// Questions of one session that wait at once: none takes the places of the others.
pub const MAX_PENDING_PER_SESSION: usize = 16;
/// Questions that wait at once.
pub const MAX_PENDING: usize = 256;
/// Requests that are kept once they are over: so many that were approved, rejected, and never answered.
pub const MAX_HISTORY: usize = 1_000;
/// How many more calls of a function a person is offered to allow at once.
pub const BATCH: u32 = 10;
/// The most uses that one answer gives.
pub const MAX_USES: u32 = 1_000;

#[cfg(test)]
mod tests;
