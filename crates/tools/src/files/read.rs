//! Reads a range of lines from a text file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use rustix::fs::OFlags;
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;

use super::error::shown;
use super::resolve::Last;
use super::{Error, Root};

/// Maximum number of bytes scanned for a line.
const MAX_SCAN: u64 = 1 << 30;
const CHUNK: usize = 64 << 10;

/// Result of a read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileText {
    /// Size of the whole file.
    pub bytes: u64,
    /// Content of the file.
    #[serde(flatten)]
    pub body: Body,
}

/// Content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Body {
    /// Lines of text.
    Text {
        /// The lines, unmodified.
        text: String,
        /// Number of the first line, from 1.
        first_line: u64,
        /// Set if the last line is incomplete, because it alone exceeds the limit of a read.
        cut: bool,
        /// Offset of the next read, if there is more.
        next: Option<u64>,
        /// Number of bytes after the text.
        left: u64,
        /// Number of lines in the file, if its end was reached.
        lines: Option<u64>,
    },
    /// Binary data, which is not shown.
    Binary {
        /// Guessed format.
        format: &'static str,
    },
}

impl Root {
    /// Reads at most `limit` lines from line `offset` (from 1), within the limits of the rules.
    ///
    /// # Errors
    /// If it is not a regular file inside the workspace, or cannot be read.
    pub fn read(&self, path: &str, offset: u64, limit: Option<u64>) -> Result<FileText, Error> {
        let (file, _) = self.at(path, Last::Target, |place| self.regular(place, OFlags::RDONLY))?;
        let first = offset.max(1);
        let scan = Scan {
            first,
            end: limit.map_or(u64::MAX, |limit| first.saturating_add(limit)),
            max: self.rules.max_read,
            text: Vec::new(),
            line: 1,
            behind: 0,
            open: false,
            state: State::Reading,
        };
        scan.run(file).map_err(|error| match error {
            Trouble::TooFar => Error::TooLarge {
                path: shown(path),
                what: "the lines before that one take",
                limit: MAX_SCAN,
            },
            Trouble::Io(error) => Error::of(path, "read", Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        })
    }
}

impl Root {
    /// Reads a whole file of at most `limit` bytes; `None` if it has more.
    ///
    /// # Errors
    /// If it is not a regular file inside the workspace, or cannot be read.
    pub fn read_whole(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let (file, _) = self.at(path, Last::Target, |place| self.regular(place, OFlags::RDONLY))?;
        let mut bytes = Vec::new();
        let read = file.take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|error| Error::of(path, "read", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok((bytes.len() as u64 <= limit).then_some(bytes))
    }
}

enum Trouble {
    TooFar,
    Io(io::Error),
}

#[derive(PartialEq)]
enum State {
    Reading,
    /// The next line does not fit, or was not requested.
    Enough,
    /// Not even the first line fits.
    Cut,
}

/// State of a scan through a file.
struct Scan {
    first: u64,
    /// The first line after the requested range.
    end: u64,
    max: usize,
    text: Vec<u8>,
    /// Number of the current line.
    line: u64,
    /// Number of bytes up to the end of the text.
    behind: u64,
    /// Set if the last piece has no newline at its end.
    open: bool,
    state: State,
}

impl Scan {
    fn run(mut self, mut file: File) -> Result<FileText, Trouble> {
        let mut chunk = vec![0; CHUNK];
        let mut head = Vec::new();
        let mut scanned = 0_u64;
        let mut ended = false;
        while self.state == State::Reading && !ended {
            let count = match file.read(&mut chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(Trouble::Io)?,
            };
            let found = &chunk[..count];
            if head.is_empty() {
                head.extend_from_slice(&found[..count.min(16)]);
            }
            if found.contains(&0) {
                return binary(&file, &head);
            }
            ended = count == 0;
            scanned += count as u64;
            if scanned > MAX_SCAN {
                return Err(Trouble::TooFar);
            }
            for piece in found.split_inclusive(|byte| *byte == b'\n') {
                self.take(piece);
            }
        }
        self.finish(&file, &head, ended)
    }

    /// Consumes a line, or the part of one in this chunk.
    fn take(&mut self, piece: &[u8]) {
        if self.state != State::Reading {
            return;
        }
        if self.line >= self.end {
            self.state = State::Enough;
            return;
        }
        if self.line >= self.first {
            let room = self.max - self.text.len();
            self.text.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                self.too_long(room);
                return;
            }
        }
        self.behind += piece.len() as u64;
        self.open = !piece.ends_with(b"\n");
        self.line += u64::from(!self.open);
    }

    /// Drops the line that does not fit, unless nothing would remain.
    fn too_long(&mut self, room: usize) {
        self.behind += room as u64;
        self.state = State::Cut;
        if let Some(end) = self.text.iter().rposition(|byte| *byte == b'\n') {
            self.behind -= (self.text.len() - end - 1) as u64;
            self.text.truncate(end + 1);
            self.state = State::Enough;
        }
    }

    fn finish(self, file: &File, head: &[u8], ended: bool) -> Result<FileText, Trouble> {
        let cut = self.state == State::Cut;
        let (mut text, mut behind) = (self.text, self.behind);
        if let Err(error) = std::str::from_utf8(&text) {
            // A character may have been cut in two; anything else is not text.
            if !(cut && error.error_len().is_none()) {
                return binary(file, head);
            }
            behind -= (text.len() - error.valid_up_to()) as u64;
            text.truncate(error.valid_up_to());
        }
        let Ok(text) = String::from_utf8(text) else {
            return binary(file, head);
        };
        let bytes = size(file)?;
        Ok(FileText {
            bytes,
            body: Body::Text {
                text,
                first_line: self.first,
                cut,
                next: (!ended).then_some(self.line + u64::from(cut)),
                left: bytes.saturating_sub(behind),
                lines: ended.then_some(self.line - 1 + u64::from(self.open)),
            },
        })
    }
}

fn size(file: &File) -> Result<u64, Trouble> {
    file.metadata().map(|found| found.len()).map_err(Trouble::Io)
}

fn binary(file: &File, head: &[u8]) -> Result<FileText, Trouble> {
    const FORMATS: &[(&[u8], &str)] = &[
        (b"\x89PNG", "PNG image"),
        (b"\xff\xd8\xff", "JPEG image"),
        (b"GIF8", "GIF image"),
        (b"%PDF", "PDF document"),
        (b"PK\x03\x04", "ZIP archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"\x7fELF", "ELF program"),
        (b"SQLite format 3", "SQLite database"),
        (b"\xff\xfe", "UTF-16 text"),
        (b"\xfe\xff", "UTF-16 text"),
    ];
    let known = FORMATS.iter().find(|(start, _)| head.starts_with(start));
    Ok(FileText {
        bytes: size(file)?,
        body: Body::Binary {
            format: known.map_or("binary data", |(_, format)| format),
        },
    })
}

/// Shows the text, followed by a notice of the omitted part.
impl fmt::Display for FileText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes;
        let (text, first_line, cut, next, left, lines) = match &self.body {
            Body::Binary { format } => {
                return write!(f, "[{format}, {bytes} bytes; not shown, read it with code]");
            }
            Body::Text {
                text,
                first_line,
                cut,
                next,
                left,
                lines,
            } => (text, first_line, cut, next, left, lines),
        };
        f.write_str(text)?;
        if *cut {
            write!(
                f,
                "\n[the rest of this line is left out: it is too long, read it with code]"
            )?;
        }
        match (next, lines) {
            (Some(next), _) if *left > 0 => {
                let newline = if text.ends_with('\n') || text.is_empty() {
                    ""
                } else {
                    "\n"
                };
                write!(
                    f,
                    "{newline}[{left} of {bytes} bytes left out; go on with offset {next}]"
                )
            }
            (_, Some(lines)) if text.is_empty() && lines < first_line && *first_line > 1 => {
                write!(f, "[the file ends with line {lines}]")
            }
            _ => Ok(()),
        }
    }
}
