//! Text of output that arrives in pieces.

/// Bytes of a stream, of which the last may be the beginning of a character.
#[derive(Debug, Default)]
pub struct TextDecoder(Vec<u8>);

impl TextDecoder {
    /// Adds bytes, and returns all complete characters. Invalid UTF-8 becomes U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.0.extend_from_slice(bytes);
        let complete = match std::str::from_utf8(&self.0) {
            // No length: the end of the bytes may be the beginning of a character.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) => self.0.len(),
            Err(_) => self.complete(),
        };
        let taken: Vec<u8> = self.0.drain(..complete).collect();
        String::from_utf8_lossy(&taken).into_owned()
    }

    /// Returns the number of bytes before an incomplete character at the end.
    fn complete(&self) -> usize {
        let length = self.0.len();
        let last = (1..=3.min(length)).find(|back| self.0[length - back] & 0b1100_0000 == 0b1100_0000);
        last.map_or(length, |back| {
            let is_whole = std::str::from_utf8(&self.0[length - back..]).is_ok();
            if is_whole { length } else { length - back }
        })
    }

    /// Returns the remaining bytes at the end.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_torn() {
        let mut text = TextDecoder::default();
        let all = "aé€😀b".as_bytes();
        let pushed: String = all.iter().map(|byte| text.push(&[*byte])).collect();
        assert_eq!(pushed + &text.finish(), "aé€😀b");
        assert_eq!(text.push(b"\xffa\xe2\x82"), "\u{fffd}a");
        assert_eq!(text.push(b"\xac"), "€");
        assert_eq!(text.push(b"\xe2"), "");
        assert_eq!(text.finish(), "\u{fffd}");
    }
}
