//! Reads lines of bounded length from a stream.

use std::io;

use ringfence_exec::lines::{LineEnd, LineSplitter};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Size of one read.
const READ_SIZE: usize = 8 * 1024;

/// A reader of lines. [`Lines::next`] is cancel safe.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    lines: LineSplitter,
    chunk: Vec<u8>,
    /// Set while the rest of a line that is too long is skipped.
    skipping: bool,
}

/// Result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineRead {
    /// A line without its newline.
    Line(Vec<u8>),
    /// A line beyond the limit, which is skipped.
    TooLong,
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Creates a reader of lines of up to `max` bytes, newline excluded.
    pub fn new(reader: R, max: usize) -> Self {
        Self {
            reader,
            lines: LineSplitter::new(max.saturating_add(1)),
            chunk: vec![0; READ_SIZE],
            skipping: false,
        }
    }

    /// Reads the next line. Bytes after the last newline are dropped.
    ///
    /// # Errors
    /// If the stream breaks.
    pub async fn next(&mut self) -> io::Result<LineRead> {
        loop {
            while let Some(line) = self.lines.next_line() {
                let skipped = std::mem::replace(&mut self.skipping, line.end == LineEnd::TooLong);
                match line.whole() {
                    _ if skipped => {}
                    Some(line) => return Ok(LineRead::Line(line.to_vec())),
                    None => return Ok(LineRead::TooLong),
                }
            }
            match self.reader.read(&mut self.chunk).await? {
                0 => return Ok(LineRead::End),
                length => self.lines.push(&self.chunk[..length]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(input: &str, expected: &[LineRead]) {
        let mut lines = Lines::new(input.as_bytes(), 5);
        for next in expected {
            assert_eq!(lines.next().await.unwrap(), *next, "{input:?}");
        }
    }

    #[tokio::test]
    async fn lines_are_whole_and_bounded() {
        let line = |text: &str| LineRead::Line(text.as_bytes().to_vec());
        check(
            "a\n\nbcdef\n",
            &[line("a"), line(""), line("bcdef"), LineRead::End],
        )
        .await;
        check("abcdef\na\n", &[LineRead::TooLong, line("a"), LineRead::End]).await;
        check(
            &format!("{}\na\n", "x".repeat(100_000)),
            &[LineRead::TooLong, line("a")],
        )
        .await;
        check("ab\ncd", &[line("ab"), LineRead::End]).await;
    }
}
