//! The audit log: one chained record for each use of a tool.
//!
//! A log is a directory with the file `audit.jsonl`, to which records are appended, and older files that are closed,
//! called `audit-<first sequence>.jsonl`. Each line is a record: a JSON object that begins with its sequence number
//! and the hash of the record before, and ends with its own hash. Many processes may append at once.
//!
//! Below it, `host` is a log of the same kind: commands that ran on this machine itself, and what people answered.

mod arguments;
mod chain;
mod end;
mod entry;
mod error;
mod files;
mod follow;
mod line;
mod log;
mod refusals;
mod verify;

pub use arguments::Arguments;
pub use chain::Limits;
pub(crate) use entry::MAX_ATTEMPTS;
pub use entry::{Answered, Decision, Entry, Outcome, Removed, Who};
pub use error::{Broken, Error};
pub use files::host;
pub use follow::{Follow, Mark, mark, tail};
pub use line::{Digest, Link, ParseLinkError};
pub use log::{AnswerLog, Log};
pub use verify::{Verified, verify};

#[cfg(test)]
mod tests;
