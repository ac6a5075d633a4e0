//! Text of output that arrives in pieces.

/// A decoder of UTF-8 that arrives in pieces. Invalid bytes become U+FFFD.
#[derive(Debug, Default)]
pub struct TextDecoder {
    /// The beginning of a character.
    begun: Vec<u8>,
}

impl TextDecoder {
    /// Adds bytes, and returns the text up to a character that is not complete. Nothing else waits for more bytes.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.begun.extend_from_slice(bytes);
        let end = self.begun.len() - unfinished(&self.begun);
        let rest = self.begun.split_off(end);
        let whole = std::mem::replace(&mut self.begun, rest);
        String::from_utf8_lossy(&whole).into_owned()
    }

    /// Returns the text of the remaining bytes.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned()
    }
}

/// Returns the length of the character at the end of `bytes` that has begun but is not complete.
fn unfinished(bytes: &[u8]) -> usize {
    for (back, byte) in bytes.iter().rev().take(3).enumerate() {
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if length > back + 1 { back + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_survive_any_cut_and_nothing_waits_for_ever() {
        let text = "aé€𝄞\n".repeat(3);
        for size in 1..9 {
            let mut decoder = TextDecoder::default();
            let mut got = String::new();
            for piece in text.as_bytes().chunks(size) {
                got += &decoder.push(piece);
                assert!(decoder.begun.len() <= 3);
            }
            assert_eq!(got + &decoder.finish(), text, "{size}");
        }
        let mut decoder = TextDecoder::default();
        assert_eq!(decoder.push(b"\xff\x80x\xe2\x82"), "\u{fffd}\u{fffd}x");
        assert_eq!(decoder.finish(), "\u{fffd}");
        // Latin-1, at the end of which no character has begun.
        assert_eq!(decoder.push(b"\xffa"), "\u{fffd}a");
        assert_eq!(decoder.push(b"\xe2\x82"), "");
        assert_eq!(decoder.push(b"\xac"), "€");
    }
}
