//! One line of the log: serialization, hashing, parsing.

use serde::{Deserialize, Serialize};

use super::MAX_LINE;
use super::digest::{Digest, HEX, Link};
use super::entry::Removed;
use super::error::Error;
use super::escape::Plain;

/// Separator between the hashed bytes and the hash.
const BEFORE_HASH: &[u8] = b",\"hash\":\"";
/// Bytes behind the hash.
const BEHIND_HASH: &[u8] = b"\"}";

/// The fields of a record that matter to the chain.
#[derive(Debug, Deserialize)]
pub(super) struct Record {
    pub(super) sequence: u64,
    pub(super) previous: Digest,
    #[serde(default)]
    pub(super) time: String,
    /// Present if a torn line was truncated before this record.
    pub(super) repair: Option<serde::de::IgnoredAny>,
    /// Present if the oldest records were removed.
    pub(super) removed: Option<Removed>,
    /// Present if the record counts refused uses.
    pub(super) refused: Option<Refused>,
    pub(super) hash: Digest,
}

/// A count of refused uses.
#[derive(Debug, Deserialize)]
pub(super) struct Refused {
    pub(super) count: u64,
}

/// A record without its hash.
#[derive(Serialize)]
struct Body<'a, C> {
    sequence: u64,
    previous: &'a Digest,
    #[serde(flatten)]
    content: &'a C,
}

/// Serializes the record that follows `before` into `line`, newline included.
pub(super) fn seal<C: Serialize>(line: &mut Vec<u8>, before: &Link, content: &C) -> Result<Link, Error> {
    line.clear();
    let body = Body {
        sequence: before.sequence + 1,
        previous: &before.hash,
        content,
    };
    let mut serializer = serde_json::Serializer::with_formatter(&mut *line, Plain);
    body.serialize(&mut serializer).map_err(Error::Encode)?;
    // The closing brace of the object comes behind the hash.
    line.pop();
    let hash = Digest::of(line);
    line.extend_from_slice(BEFORE_HASH);
    line.extend_from_slice(&hash.hex());
    line.extend_from_slice(BEHIND_HASH);
    line.push(b'\n');
    if line.len() > MAX_LINE {
        return Err(Error::TooLong);
    }
    Ok(Link {
        sequence: body.sequence,
        hash,
    })
}

/// Parses a line, without its newline, and checks its hash. The error describes the defect.
pub(super) fn open(line: &[u8]) -> Result<Record, &'static str> {
    let no_record = "it holds no record";
    let split = line
        .len()
        .checked_sub(BEFORE_HASH.len() + HEX + BEHIND_HASH.len());
    let (body, seal) = line.split_at_checked(split.ok_or(no_record)?).ok_or(no_record)?;
    let hash = seal
        .strip_prefix(BEFORE_HASH)
        .and_then(|rest| rest.strip_suffix(BEHIND_HASH));
    if hash.ok_or(no_record)? != Digest::of(body).hex() {
        return Err("it was modified: its hash does not match its content");
    }
    serde_json::from_slice(line).map_err(|_| no_record)
}

impl Record {
    /// Returns the record's place in the chain.
    pub(super) fn link(&self) -> Link {
        Link {
            sequence: self.sequence,
            hash: self.hash,
        }
    }
}
