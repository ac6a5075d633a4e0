//! Reading a whole log and checking every link of its chain.

use std::path::{Path, PathBuf};

use ringfence_exec::lines::LineEnd;
use serde::Serialize;

use super::digest::Link;
use super::entry::Removed;
use super::error::{ChainBreak, Error, failed};
use super::files::{self, Piece};
use super::follow::lines;
use super::line::{self, Record};

/// A summary of an intact log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Verified {
    /// Number of records.
    pub records: u64,
    /// Sequence number of the oldest kept record.
    pub first: Option<u64>,
    /// Newest record. Noted elsewhere, it later shows if records up to it were removed or replaced.
    pub head: Option<Link>,
    /// Last recorded removal.
    pub removed: Option<Removed>,
    /// Time of that removal.
    pub removed_at: Option<String>,
    /// Number of refused uses that are counted in a common record, without their own.
    pub counted: u64,
    /// Number of records of a truncated torn line.
    pub repairs: u64,
    /// Number of files.
    pub files: usize,
    /// Bytes of a record whose writer died; the next writer truncates them.
    pub torn_bytes: u64,
}

/// Checks every record of the log in `directory`, and that the noted one is among them.
///
/// # Errors
/// [`Error::Broken`] with the first break of the chain, or [`Error::Gone`] if the noted record is missing.
pub fn verify(directory: &Path, noted: Option<&Link>) -> Result<Verified, Error> {
    let pieces = files::pieces(directory)?;
    let mut check = Check {
        noted,
        found: noted.is_none(),
        verified: Verified {
            files: pieces.len(),
            ..Verified::default()
        },
    };
    let oldest = pieces.first().map(|piece| piece.path.clone());
    for piece in pieces {
        check.file(piece)?;
    }
    check.beginning(oldest)?;
    if check.found {
        return Ok(check.verified);
    }
    Err(check.gone())
}

struct Check<'a> {
    noted: Option<&'a Link>,
    found: bool,
    verified: Verified,
}

/// A reader's position.
struct Position {
    file: PathBuf,
    line: u64,
}

impl Position {
    fn broken(&self, sequence: Option<u64>, what: impl Into<String>) -> Error {
        Error::Broken(ChainBreak {
            file: self.file.clone(),
            line: self.line,
            sequence,
            what: what.into(),
        })
    }
}

impl Check<'_> {
    fn file(&mut self, piece: Piece) -> Result<(), Error> {
        let named = piece.first;
        let mut place = Position {
            file: piece.path,
            line: 0,
        };
        let mut lines = lines(piece.file, 0, piece.length).map_err(failed("read", &place.file))?;
        while let Some(line) = lines.next_line().map_err(failed("read", &place.file))? {
            place.line += 1;
            match line.end {
                LineEnd::Newline => {
                    let record = line::open(line.bytes).map_err(|what| place.broken(self.next(), what))?;
                    let misnamed = named.filter(|named| place.line == 1 && *named != record.sequence);
                    if let Some(named) = misnamed {
                        let what = format!(
                            "the file's name says {named}, its first record {}",
                            record.sequence
                        );
                        return Err(place.broken(Some(named), what));
                    }
                    self.record(&record, &place)?;
                }
                LineEnd::EndOfStream if named.is_none() => self.torn(line.bytes, &place)?,
                LineEnd::EndOfStream => {
                    return Err(place.broken(self.next(), "the closed file ends within a record"));
                }
                LineEnd::TooLong => return Err(place.broken(self.next(), "it is longer than any record")),
            }
        }
        if place.line == 0 && named.is_some() {
            place.line = 1;
            return Err(place.broken(named, "the closed file is empty"));
        }
        Ok(())
    }

    fn record(&mut self, record: &Record, place: &Position) -> Result<(), Error> {
        let broken = |what: String| Err(place.broken(self.next(), what));
        match self.verified.head {
            // The record before the oldest kept one is unknown.
            None if record.sequence > 1 => {}
            None if record.sequence == 1 && record.previous == Link::START.hash => {}
            None => return broken("a log does not begin like this".to_owned()),
            Some(head) if record.sequence != head.sequence + 1 => {
                let (found, expected) = (record.sequence, head.sequence + 1);
                return broken(format!("here should be record {expected}, not {found}"));
            }
            Some(head) if record.previous != head.hash => {
                return broken(format!(
                    "it does not follow on record {} as that stands",
                    head.sequence
                ));
            }
            Some(_) => {}
        }
        if let Some(noted) = self.noted.filter(|noted| noted.sequence == record.sequence) {
            if noted.hash != record.hash {
                return broken(format!("record {} is not the one that was noted", noted.sequence));
            }
            self.found = true;
        }
        let verified = &mut self.verified;
        verified.records += 1;
        verified.first.get_or_insert(record.sequence);
        verified.head = Some(record.link());
        verified.repairs += u64::from(record.repair.is_some());
        verified.counted += record.refused.as_ref().map_or(0, |refused| refused.count);
        if let Some(removed) = &record.removed {
            verified.removed = Some(removed.clone());
            verified.removed_at = Some(record.time.clone());
        }
        Ok(())
    }

    /// Checks that the log begins with its first record, or that a record announces the removal of those
    /// before.
    fn beginning(&self, oldest: Option<PathBuf>) -> Result<(), Error> {
        let Some(missing) = self.verified.first.map(|first| first.saturating_sub(1)) else {
            return Ok(());
        };
        let told = self.verified.removed.as_ref().map_or(0, |removed| removed.last);
        if missing <= told {
            return Ok(());
        }
        let place = Position {
            file: oldest.unwrap_or_default(),
            line: 1,
        };
        let what = format!("records 1 to {missing} are missing, and no record says that they were removed");
        Err(place.broken(Some(1), what))
    }

    /// Accepts the beginning of a record: a crash leaves nothing more.
    fn torn(&mut self, bytes: &[u8], place: &Position) -> Result<(), Error> {
        let changed = bytes
            .split_last()
            .is_some_and(|(_, line)| line::open(line).is_ok());
        if changed {
            return Err(place.broken(self.next(), "the end of the line was changed"));
        }
        self.verified.torn_bytes = bytes.len() as u64;
        Ok(())
    }

    fn next(&self) -> Option<u64> {
        self.verified.head.map(|head| head.sequence + 1)
    }

    /// Builds the error for a noted record that is missing.
    fn gone(&self) -> Error {
        let sequence = self.noted.map_or(0, |noted| noted.sequence);
        let why = if self.verified.first.is_some_and(|first| sequence < first) {
            "it is older than all that are kept"
        } else {
            "it was removed, with all that came after"
        };
        Error::Gone { sequence, why }
    }
}
