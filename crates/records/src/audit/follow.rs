//! Reading the newest records, and those appended from now on.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Take};
use std::path::{Path, PathBuf};

use ringfence_exec::lines::{LineEnd, LineReader};

use super::end;
use super::error::{Error, failed};
use super::files::{self, Piece};
use super::{MAX_LINE, line};

/// Returns the newest lines of the log in `directory`, at most `count`, newest last.
///
/// Lines are returned as written; a damaged one is included and may contain anything.
///
/// # Errors
/// If the log cannot be read.
pub fn tail(directory: &Path, count: usize) -> Result<Vec<String>, Error> {
    let mut newest = VecDeque::new();
    for piece in files::pieces(directory)?.into_iter().rev() {
        let wanted = count - newest.len();
        if wanted == 0 {
            break;
        }
        for line in last_lines(piece, wanted)?.into_iter().rev() {
            newest.push_front(line);
        }
    }
    Ok(newest.into())
}

/// A log's position at a moment. A different position means that something was appended or a file closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    file: (u64, u64),
    length: u64,
}

/// Returns the position of the log in `directory`; `None` without a current file.
pub fn mark(directory: &Path) -> Option<Mark> {
    let meta = std::fs::symlink_metadata(files::current(directory)).ok()?;
    Some(Mark {
        file: files::identity(&meta),
        length: meta.len(),
    })
}

fn last_lines(piece: Piece, wanted: usize) -> Result<VecDeque<String>, Error> {
    let mut last = VecDeque::new();
    let mut lines = lines(piece.file, 0, piece.length).map_err(failed("read", &piece.path))?;
    while let Some(line) = lines.next_line().map_err(failed("read", &piece.path))? {
        if line.end == LineEnd::EndOfStream {
            break;
        }
        if last.len() == wanted {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(line.bytes).into_owned());
    }
    Ok(last)
}

/// A reader of appended records.
#[derive(Debug)]
pub struct Follow {
    directory: PathBuf,
    /// Sequence number of the newest record passed on.
    newest: u64,
    /// Identity of the current file, and the offset read so far.
    read: Option<((u64, u64), u64)>,
}

impl Follow {
    /// Follows the log in `directory` from behind `lines`, a result of [`tail`].
    pub fn behind(directory: &Path, lines: &[String]) -> Self {
        let newest = lines
            .iter()
            .rev()
            .find_map(|line| line::open(line.as_bytes()).ok());
        Self {
            directory: directory.to_owned(),
            newest: newest.map_or(0, |record| record.sequence),
            read: None,
        }
    }

    /// Passes on the lines appended since the last call, across closed files.
    ///
    /// # Errors
    /// If the log cannot be read, or `each` fails.
    pub fn poll(&mut self, mut each: impl FnMut(&str) -> io::Result<()>) -> Result<(), Error> {
        let pieces = files::pieces(&self.directory)?;
        // Closed file that may contain the next record.
        let begin = pieces
            .iter()
            .rposition(|piece| piece.first.is_some_and(|first| first <= self.newest + 1));
        for piece in pieces.into_iter().skip(begin.unwrap_or_default()) {
            if piece.first.is_some() && self.has_seen(&piece)? {
                continue;
            }
            self.read(piece, &mut each)?;
        }
        Ok(())
    }

    fn has_seen(&self, piece: &Piece) -> Result<bool, Error> {
        let end = end::of(&piece.file, piece.length, &piece.path)?;
        Ok(end.newest.is_none_or(|newest| newest.sequence <= self.newest))
    }

    fn read(&mut self, piece: Piece, each: &mut impl FnMut(&str) -> io::Result<()>) -> Result<(), Error> {
        let meta = piece.file.metadata().map_err(failed("look at", &piece.path))?;
        let identity = files::identity(&meta);
        let start = match self.read {
            // The line behind the offset may have been torn and truncated; the offset itself is never behind
            // a torn line.
            Some((read, offset)) if read == identity && offset <= piece.length => offset,
            _ => 0,
        };
        let mut offset = start;
        let mut lines = lines(piece.file, start, piece.length).map_err(failed("read", &piece.path))?;
        while let Some(line) = lines.next_line().map_err(failed("read", &piece.path))? {
            if line.end == LineEnd::EndOfStream {
                break;
            }
            offset += line.bytes.len() as u64 + u64::from(line.end == LineEnd::Newline);
            let sequence = line::open(line.bytes).map(|record| record.sequence);
            if sequence.is_ok_and(|sequence| sequence <= self.newest) {
                continue;
            }
            self.newest = sequence.unwrap_or(self.newest);
            each(&String::from_utf8_lossy(line.bytes)).map_err(failed("show", &piece.path))?;
        }
        if piece.first.is_none() {
            self.read = Some((identity, offset));
        }
        Ok(())
    }
}

/// Returns the sequence number of a file's first record.
pub(super) fn first_sequence(file: &File, path: &Path) -> Result<u64, Error> {
    let file = file.try_clone().map_err(failed("read", path))?;
    let mut lines = lines(file, 0, MAX_LINE as u64).map_err(failed("read", path))?;
    let first = lines.next_line().map_err(failed("read", path))?;
    first
        .and_then(|line| line::open(line.bytes).ok())
        .map(|record| record.sequence)
        .ok_or_else(|| Error::Damaged(path.to_owned()))
}

/// Returns the lines of a file from `start` to `end`.
pub(super) fn lines(mut file: File, start: u64, end: u64) -> io::Result<LineReader<Take<File>>> {
    file.seek(SeekFrom::Start(start))?;
    Ok(LineReader::new(file.take(end - start), MAX_LINE))
}
