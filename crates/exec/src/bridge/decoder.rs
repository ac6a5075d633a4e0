//! Decodes an untrusted byte stream into messages.

use super::message::{MAX_LINE, Malformed, Message};
use crate::lines::LineSplitter;

/// A decoder of received bytes. It holds at most one line and the last chunk, if [`MessageDecoder::take`] is called
/// until it returns no message before the next push.
#[derive(Debug)]
pub struct MessageDecoder(LineSplitter);

impl Default for MessageDecoder {
    fn default() -> Self {
        Self(LineSplitter::new(MAX_LINE))
    }
}

impl MessageDecoder {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// Returns the next message; `None` if it is incomplete.
    ///
    /// # Errors
    /// If the line is invalid, or already too long. The stream is unusable then.
    pub fn take(&mut self) -> Result<Option<Message>, Malformed> {
        let Some(line) = self.0.next_line() else {
            return Ok(None);
        };
        Message::parse(line.whole().ok_or(Malformed::TooLong)?).map(Some)
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
            let mut decoder = MessageDecoder::default();
            let mut heard = Vec::new();
            for piece in bytes.chunks(size) {
                decoder.push(piece);
                while let Some(message) = decoder.take().unwrap() {
                    heard.push(message);
                }
            }
            assert_eq!(heard, messages, "{size}");
            assert_eq!(decoder.take(), Ok(None));
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let mut decoder = MessageDecoder::default();
        decoder.push(&vec![b' '; MAX_LINE - 1]);
        assert_eq!(decoder.take(), Ok(None));
        decoder.push(b" ");
        assert_eq!(decoder.take(), Err(Malformed::TooLong));
        let mut decoder = MessageDecoder::default();
        decoder.push(&[&vec![b' '; MAX_LINE][..], b"\n"].concat());
        assert_eq!(decoder.take(), Err(Malformed::TooLong));
    }
}
