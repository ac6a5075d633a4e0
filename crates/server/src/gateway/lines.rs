//! Lines from a stream, none of them longer than a limit.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// The longest line that an engine reads, its end not included. A question's text of 10,000 characters, each escaped, fits.
pub const MAX_LINE: usize = 256 * 1024;

/// Reads lines. Dropping a call and calling again loses nothing.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    max: usize,
}

/// What comes next from a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A line, without its end.
    Line(Vec<u8>),
    /// One that is longer than allowed; nothing behind it can be understood.
    TooLong,
    /// No more.
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads from `reader` lines of up to `max` bytes.
    pub fn new(reader: R, max: usize) -> Self {
        Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            max,
        }
    }

    /// The next line. What stands behind the last line's end is none.
    ///
    /// # Errors
    /// If the stream breaks.
    pub async fn next(&mut self) -> io::Result<Next> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                return Ok(Next::End);
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let piece = &available[..newline.unwrap_or(available.len())];
            if self.line.len() + piece.len() > self.max {
                return Ok(Next::TooLong);
            }
            self.line.extend_from_slice(piece);
            let taken = piece.len() + usize::from(newline.is_some());
            self.reader.consume(taken);
            if newline.is_some() {
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
        check("abcdef\na\n", &[Next::TooLong, Next::TooLong]).await;
        check("ab\ncd", &[line("ab"), Next::End]).await;
    }
}
