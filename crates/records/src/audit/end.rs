//! The last whole record of a file, and a torn line behind it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::digest::Link;
use super::error::{Error, failed};
use super::{MAX_LINE, line};

/// Bytes that contain most records. If they do not suffice, [`WHOLE_LOOK`] bytes are read.
const FIRST_LOOK: u64 = 8 * 1024;
/// Bytes that contain any torn line and the record before it.
const WHOLE_LOOK: u64 = 2 * MAX_LINE as u64 + 1;

/// The tail of a log file: its last whole record, and a torn line after it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Last record, if any.
    pub(super) newest: Option<Link>,
    /// Bytes behind it: at most one line.
    pub(super) torn: Vec<u8>,
}

/// The result of parsing a file's last bytes.
#[derive(Debug, PartialEq, Eq)]
enum TailScan {
    Found(End),
    /// The record begins before these bytes.
    Further,
    /// No crash leaves this: each record is written with one call, so at most one line is torn.
    Damaged,
}

/// Reads the end of a file of this length.
pub(super) fn of(file: &File, length: u64, path: &Path) -> Result<End, Error> {
    for look in [FIRST_LOOK, WHOLE_LOOK] {
        let start = length.saturating_sub(look);
        let mut bytes = vec![0; usize::try_from(length - start).unwrap_or_default()];
        file.read_exact_at(&mut bytes, start)
            .map_err(failed("read", path))?;
        match look_at(&bytes, start == 0) {
            TailScan::Found(end) => return Ok(end),
            TailScan::Further => {}
            TailScan::Damaged => break,
        }
    }
    Err(Error::Damaged(path.to_owned()))
}

/// Parses a file's last bytes; `whole` if they are the whole file.
fn look_at(bytes: &[u8], whole: bool) -> TailScan {
    let lines = after_last_newline(bytes);
    let newest = match last_line(&bytes[..lines], whole) {
        Last::None => return found(None, &bytes[lines..]),
        Last::Cut => return TailScan::Further,
        Last::Line(start) => match line::open(&bytes[start..lines - 1]) {
            Ok(record) => return found(Some(record.link()), &bytes[lines..]),
            // With bytes behind it, it was whole when those were written.
            Err(_) if lines < bytes.len() => return TailScan::Damaged,
            Err(_) => start,
        },
    };
    match last_line(&bytes[..newest], whole) {
        Last::None => found(None, &bytes[newest..]),
        Last::Cut => TailScan::Further,
        Last::Line(start) => match line::open(&bytes[start..newest - 1]) {
            Ok(record) => found(Some(record.link()), &bytes[newest..]),
            Err(_) => TailScan::Damaged,
        },
    }
}

fn found(newest: Option<Link>, torn: &[u8]) -> TailScan {
    if torn.len() > MAX_LINE {
        return TailScan::Damaged;
    }
    TailScan::Found(End {
        newest,
        torn: torn.to_vec(),
    })
}

/// The last of some whole lines.
enum Last {
    None,
    /// The line begins before these bytes.
    Cut,
    Line(usize),
}

fn last_line(lines: &[u8], whole: bool) -> Last {
    let Some((_, before)) = lines.split_last() else {
        return if whole { Last::None } else { Last::Cut };
    };
    match after_last_newline(before) {
        0 if !whole => Last::Cut,
        start => Last::Line(start),
    }
}

fn after_last_newline(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1)
}
