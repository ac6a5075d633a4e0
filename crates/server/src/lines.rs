//! Reads lines of bounded length from a stream.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// A reader of lines. [`Lines::next`] is cancel safe.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    max: usize,
    /// Set while the rest of a line that is too long is skipped.
    skipping: bool,
}

/// Result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line without its newline.
    Line(Vec<u8>),
    /// A line beyond the limit, which is skipped.
    TooLong,
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Creates a reader of lines of up to `max` bytes.
    pub(crate) fn new(reader: R, max: usize) -> Self {
        Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            max,
            skipping: false,
        }
    }

    /// Reads the next line. Bytes after the last newline are dropped.
    ///
    /// # Errors
    /// If the stream breaks.
    pub(crate) async fn next(&mut self) -> io::Result<Next> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                return Ok(Next::End);
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let piece = &available[..newline.unwrap_or(available.len())];
            let taken = piece.len() + usize::from(newline.is_some());
            let too_long = !self.skipping && self.line.len() + piece.len() > self.max;
            let skipped = self.skipping || too_long;
            if skipped {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(piece);
            }
            self.reader.consume(taken);
            self.skipping = skipped && newline.is_none();
            if too_long {
                return Ok(Next::TooLong);
            }
            if newline.is_some() && !skipped {
                return Ok(Next::Line(std::mem::take(&mut self.line)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(input: &str, expected: &[Next]) {
        let mut lines = Lines::new(input.as_bytes(), 5);
        for next in expected {
            assert_eq!(lines.next().await.unwrap(), *next, "{input:?}");
        }
    }

    #[tokio::test]
    async fn lines_are_whole_and_bounded() {
        let line = |text: &str| Next::Line(text.as_bytes().to_vec());
        check("a\n\nbcdef\n", &[line("a"), line(""), line("bcdef"), Next::End]).await;
        check("abcdef\na\n", &[Next::TooLong, line("a"), Next::End]).await;
        check(
            &format!("{}\na\n", "x".repeat(100_000)),
            &[Next::TooLong, line("a")],
        )
        .await;
        check("ab\ncd", &[line("ab"), Next::End]).await;
    }
}
