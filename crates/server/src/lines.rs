//! Lines from a stream, none of them longer than a limit.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Reads lines. Dropping a call and calling again loses nothing.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    max: usize,
    /// The rest of a line that was too long is on its way.
    skipping: bool,
}

/// What comes next from a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line, without its end.
    Line(Vec<u8>),
    /// One that is longer than allowed, and passed over.
    TooLong,
    /// No more.
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads from `reader` lines of up to `max` bytes.
    pub(crate) fn new(reader: R, max: usize) -> Self {
        Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            max,
            skipping: false,
        }
    }

    /// The next line. What stands behind the last line's end is none.
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
