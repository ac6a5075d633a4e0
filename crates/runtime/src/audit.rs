//! The audit log: one chained record for each use of a tool.
//!
//! A log is a directory with the file `audit.jsonl`, to which records are appended, and older files that are closed,
//! called `audit-<first sequence>.jsonl`. Each line is a record: a JSON object that begins with its sequence number
//! and the hash of the record before, and ends with its own hash. Many processes may append at once.

mod arguments;
mod end;
mod entry;
mod error;
mod files;
mod follow;
mod line;
mod log;
mod verify;

pub use arguments::Arguments;
pub(crate) use entry::MAX_ATTEMPTS;
pub use entry::{Decision, Entry, Outcome, Who};
pub use error::{Broken, Error};
pub use follow::{Follow, Mark, mark, tail};
pub use line::{Digest, Link, ParseLinkError};
pub use log::{Limits, Log};
pub use verify::{Verified, verify};

#[cfg(test)]
mod tests;
