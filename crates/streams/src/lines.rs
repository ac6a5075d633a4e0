//! Splits a byte stream into lines of bounded length.

use std::io::{self, Read};

/// Capacity that is kept after a long line.
const KEPT: usize = 64 * 1024;

/// Size of one read of a [`LineReader`].
const READ_SIZE: usize = 8 * 1024;

/// A splitter of received bytes. It holds at most one line and the last chunk, if [`LineSplitter::next_line`] is
/// called until it returns `None` before the next push.
#[derive(Debug)]
pub struct LineSplitter {
    max: usize,
    bytes: Vec<u8>,
    /// Offset of the next line.
    start: usize,
    /// Offset up to which its newline was not found.
    searched: usize,
}

/// A line, or a part of one that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitLine<'a> {
    /// The bytes without the newline.
    pub bytes: &'a [u8],
    pub end: LineEnd,
}

/// The end of a [`SplitLine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnd {
    Newline,
    /// The maximum length. The rest of the line comes next.
    TooLong,
    /// The end of the stream.
    EndOfStream,
}

impl LineSplitter {
    /// Creates a splitter into lines of at most `max` bytes, newline included.
    pub const fn new(max: usize) -> Self {
        Self {
            max,
            bytes: Vec::new(),
            start: 0,
            searched: 0,
        }
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        if self.bytes.is_empty() {
            self.bytes.shrink_to(KEPT);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next line; `None` if it is incomplete.
    pub fn next_line(&mut self) -> Option<SplitLine<'_>> {
        let (stop, end) = self.find()?;
        Some(self.split_at(stop, end))
    }

    /// Returns the incomplete line at the end of the stream, if there is one.
    pub fn rest(&mut self) -> Option<SplitLine<'_>> {
        let stop = self.bytes.len();
        (self.start < stop).then(|| self.split_at(stop, LineEnd::EndOfStream))
    }

    /// Returns the number of bytes after the last line that was returned.
    pub const fn pending(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns the offset at which the next line stops, and its end.
    fn find(&mut self) -> Option<(usize, LineEnd)> {
        let limit = self.start + self.max;
        let received = self.bytes.len().min(limit);
        let newline = self.bytes[self.searched..received]
            .iter()
            .position(|byte| *byte == b'\n');
        self.searched = newline.map_or(received, |at| self.searched + at);
        match newline {
            Some(_) => Some((self.searched, LineEnd::Newline)),
            None if received == limit => Some((limit, LineEnd::TooLong)),
            None => None,
        }
    }

    fn split_at(&mut self, stop: usize, end: LineEnd) -> SplitLine<'_> {
        let start = self.start;
        self.start = stop + usize::from(end == LineEnd::Newline);
        self.searched = self.start;
        SplitLine {
            bytes: &self.bytes[start..stop],
            end,
        }
    }
}

impl<'a> SplitLine<'a> {
    /// Returns the bytes; `None` if the line is too long.
    pub fn whole(self) -> Option<&'a [u8]> {
        (self.end != LineEnd::TooLong).then_some(self.bytes)
    }
}

/// A blocking reader of lines.
#[derive(Debug)]
pub struct LineReader<R> {
    reader: R,
    lines: LineSplitter,
    chunk: Vec<u8>,
}

impl<R: Read> LineReader<R> {
    /// Creates a reader of lines of at most `max` bytes, newline included.
    pub fn new(reader: R, max: usize) -> Self {
        Self {
            reader,
            lines: LineSplitter::new(max),
            chunk: vec![0; READ_SIZE],
        }
    }

    /// Reads the next line; `None` at the end.
    ///
    /// # Errors
    /// If the stream breaks.
    pub fn next_line(&mut self) -> io::Result<Option<SplitLine<'_>>> {
        while self.lines.find().is_none() {
            match self.reader.read(&mut self.chunk) {
                Ok(0) => return Ok(self.lines.rest()),
                Ok(length) => self.lines.push(&self.chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.lines.next_line())
    }
}

#[cfg(test)]
mod tests {
    use super::LineEnd::{EndOfStream, Newline, TooLong};
    use super::*;
    use proptest::prelude::*;

    type SplitLines = Vec<(String, LineEnd)>;

    fn found(line: SplitLine<'_>) -> (String, LineEnd) {
        (String::from_utf8_lossy(line.bytes).into_owned(), line.end)
    }

    /// Splits a stream that arrives in chunks of `size` bytes.
    fn split(input: &[u8], max: usize, size: usize) -> SplitLines {
        let mut lines = LineSplitter::new(max);
        let mut all = Vec::new();
        for chunk in input.chunks(size) {
            lines.push(chunk);
            while let Some(line) = lines.next_line() {
                all.push(found(line));
            }
            assert!(lines.pending() < max, "{input:?}");
        }
        all.extend(lines.rest().map(found));
        assert_eq!(lines.next_line(), None);
        assert_eq!(lines.rest(), None);
        all
    }

    fn check(input: &str, expected: &[(&str, LineEnd)]) {
        let expected: SplitLines = expected
            .iter()
            .map(|(text, end)| ((*text).to_owned(), *end))
            .collect();
        for size in [1, 2, 3, 7, 100] {
            assert_eq!(split(input.as_bytes(), 5, size), expected, "{input:?} {size}");
        }
    }

    #[test]
    fn a_line_comes_out_however_its_bytes_were_cut() {
        check("", &[]);
        check("a\n\nbcde\n", &[("a", Newline), ("", Newline), ("bcde", Newline)]);
        check("ab\ncd", &[("ab", Newline), ("cd", EndOfStream)]);
        check("abcd", &[("abcd", EndOfStream)]);
    }

    #[test]
    fn a_line_that_is_too_long_comes_in_parts() {
        check("abcde\nf\n", &[("abcde", TooLong), ("", Newline), ("f", Newline)]);
        check("abcdefg\n", &[("abcde", TooLong), ("fg", Newline)]);
        check(
            "abcdefghijk",
            &[("abcde", TooLong), ("fghij", TooLong), ("k", EndOfStream)],
        );
    }

    #[test]
    fn a_long_line_leaves_no_large_buffer() {
        let mut lines = LineSplitter::new(1 << 20);
        lines.push(&[&[b'x'; 1 << 19][..], b"\n"].concat());
        assert_eq!(lines.next_line().unwrap().bytes.len(), 1 << 19);
        lines.push(b"a\n");
        assert!(lines.bytes.capacity() <= KEPT);
        assert_eq!(lines.next_line().unwrap().whole(), Some(b"a".as_slice()));
    }

    /// A stream that is interrupted before every byte.
    struct Slow<'a> {
        bytes: &'a [u8],
        interrupted: bool,
    }

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.bytes.read(&mut buffer[..1])
        }
    }

    #[test]
    fn a_reader_returns_the_lines_of_a_splitter() {
        let input = b"ab\nabcdefg\n\nx";
        let slow = Slow {
            bytes: input,
            interrupted: false,
        };
        let mut lines = LineReader::new(slow, 5);
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            all.push(found(line));
        }
        assert_eq!(all, split(input, 5, 100));
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_and_chunks_make_no_difference(
            input in "[ab\n]{0,60}",
            max in 1_usize..9,
            size in 1_usize..70,
        ) {
            let all = split(input.as_bytes(), max, size);
            prop_assert_eq!(&all, &split(input.as_bytes(), max, 1));
            let joined: String = all
                .iter()
                .map(|(text, end)| text.clone() + if *end == Newline { "\n" } else { "" })
                .collect();
            prop_assert_eq!(joined, input);
            prop_assert!(all.iter().all(|(text, end)| text.len() + usize::from(*end == Newline) <= max));
        }
    }
}
