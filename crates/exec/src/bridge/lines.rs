//! Splits an untrusted byte stream into messages.

use super::{MAX_LINE, Malformed, Message};

/// A buffer of received bytes. The caller bounds it: after a push that completes a line, or makes it too
/// long, [`Lines::take`] must be called first.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Offset of the next line.
    start: usize,
    /// Offset up to which no line end was found.
    searched: usize,
}

impl Lines {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.buffer.extend(bytes);
    }

    /// Returns the next message; `None` if it is incomplete.
    ///
    /// # Errors
    /// If the line is invalid, or already too long.
    pub fn take(&mut self) -> Result<Option<Message>, Malformed> {
        let rest = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(length) = rest.iter().position(|&byte| byte == b'\n') else {
            self.searched = self.buffer.len();
            return match self.searched - self.start < MAX_LINE {
                true => Ok(None),
                false => Err(Malformed::TooLong),
            };
        };
        let end = self.searched + length;
        let line = self.buffer.get(self.start..end).unwrap_or_default();
        if line.len() >= MAX_LINE {
            return Err(Malformed::TooLong);
        }
        let message = Message::parse(line)?;
        (self.start, self.searched) = (end + 1, end + 1);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Id;
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_come_out_however_the_bytes_were_cut() {
        let messages: Vec<Message> = (0..5)
            .map(|number| Message::Result(Id::of(number), json!("é\n")))
            .collect();
        let bytes: Vec<u8> = messages.iter().flat_map(Message::line).collect();
        for size in [1, 2, 7, 50, bytes.len()] {
            let mut lines = Lines::default();
            let mut heard = Vec::new();
            for piece in bytes.chunks(size) {
                lines.push(piece);
                while let Some(message) = lines.take().unwrap() {
                    heard.push(message);
                }
            }
            assert_eq!(heard, messages, "{size}");
            assert_eq!(lines.take(), Ok(None));
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let mut lines = Lines::default();
        lines.push(&vec![b' '; MAX_LINE - 1]);
        assert_eq!(lines.take(), Ok(None));
        lines.push(b" ");
        assert_eq!(lines.take(), Err(Malformed::TooLong));
        let mut lines = Lines::default();
        lines.push(&[&vec![b' '; MAX_LINE][..], b"\n"].concat());
        assert_eq!(lines.take(), Err(Malformed::TooLong));
    }
}
