//! The audit log: one hash-chained record for each use of a tool.
//!
//! A log is a directory with the file `audit.jsonl`, to which records are appended, and older, closed files
//! called `audit-<first sequence>.jsonl`. Each line is a record: a JSON object that begins with its sequence
//! number and the hash of the preceding record, and ends with its own hash. Many processes may append
//! concurrently.
//!
//! Its subdirectory `host` is a log of the same format: commands that ran on the host, and people's answers.

mod arguments;
mod chain;
mod digest;
mod end;
mod entry;
mod error;
mod escape;
mod files;
mod filter;
mod follow;
mod line;
mod log;
mod redacted;
mod refusals;
mod verify;

pub use arguments::Arguments;
pub use chain::Limits;
pub use digest::{Digest, Link, ParseLinkError};
pub use entry::MAX_ATTEMPTS;
pub use entry::{Answered, AuditedCaller, Decision, Entry, Outcome, Removed};
pub use error::{ChainBreak, Error};
pub use files::host;
pub use filter::Filter;
pub use follow::{Follow, Mark, mark, tail};
pub use log::{AnswerLog, Log};
pub use redacted::{Operation, RedactedLog};
pub use verify::{Verified, verify};

/// Maximum length of a line, newline included.
const MAX_LINE: usize = 64 * 1024;

#[cfg(test)]
mod tests;
