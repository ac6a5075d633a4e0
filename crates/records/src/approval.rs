//! Approval requests: asked by one process, answered through another, stored in SQLite.
//!
//! A [`Service`] is one process's view of a directory's store. The asker inserts a request and waits; a
//! gateway answers by changing that request. Both poll for the other's change, so no server is needed and the
//! death of either loses nothing. A request leaves the state `pending` once, and an approval is consumed
//! once.

mod answer;
mod approved;
mod error;
mod grants;
mod listeners;
mod pending;
mod request;
mod service;
mod state;
mod store;

pub use approved::{Approved, Entry};
pub use error::{Error, Unanswerable};
pub use listeners::{Audience, Listener, Notice};
pub use pending::PendingApproval;
pub use request::{
    Answer, Chat, CommandContext, Id, Kind, Lasting, Malformed, Question, Remember, Request, Verdict,
};
pub use service::{Changes, Decision, Service};
pub use state::{Event, State};

/// Maximum length of a question's text, in characters: a person must be able to read it.
pub const MAX_TEXT: usize = 10_000;
/// Maximum number of pending requests per scope.
pub const MAX_PENDING_PER_SCOPE: usize = 32;
/// Maximum number of pending requests per session, so that one session cannot exhaust its scope's quota.
pub const MAX_PENDING_PER_SESSION: usize = 16;
/// Maximum number of pending requests.
pub const MAX_PENDING: usize = 256;
/// Number of finished requests kept of each outcome: approved, rejected, unanswered.
pub const MAX_HISTORY: usize = 1_000;
/// Number of further calls of a function that a person is offered to approve at once.
pub const BATCH: u32 = 10;
/// Maximum number of uses that one answer can grant.
pub const MAX_USES: u32 = 1_000;

#[cfg(test)]
mod tests;
