//! Normalizes text to compare encodings: lower case, without prefixes and separators of digits.

/// Prefixes of an encoded byte.
const PREFIXES: &[&[u8]] = &[
    b"\\x",
    b"\\X",
    b"0x",
    b"0X",
    b"\\u00",
    b"\\U000000",
    b"&#x",
    b"&#X",
    b"%",
];

/// Separators between encoded bytes.
const SEPARATORS: &[u8] = b" \t\r\n:;,-_.'\"()[]{}<>|\\";

/// A text without prefixes and separators.
#[derive(Debug, Default)]
pub(super) struct Folded {
    pub(super) bytes: Vec<u8>,
    /// Offset in the text of each byte.
    places: Vec<usize>,
}

impl Folded {
    pub(super) fn new(text: &[u8]) -> Self {
        let mut folded = Self::default();
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            let rest = &text[at..];
            if let Some(prefix) = PREFIXES.iter().find(|prefix| rest.starts_with(prefix)) {
                at += prefix.len();
                continue;
            }
            if !SEPARATORS.contains(&byte) {
                folded.bytes.push(byte.to_ascii_lowercase());
                folded.places.push(at);
            }
            at += 1;
        }
        folded
    }

    /// Returns the offset in the text of a byte.
    pub(super) fn place(&self, at: usize) -> usize {
        self.places[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_together() {
        let check = |text: &str, expected: &str| {
            let folded = Folded::new(text.as_bytes());
            assert_eq!(folded.bytes, expected.as_bytes(), "{text}");
            for (at, byte) in folded.bytes.iter().enumerate() {
                assert_eq!(text.as_bytes()[folded.place(at)].to_ascii_lowercase(), *byte);
            }
        };
        check("5A:71", "5a71");
        check("b'\\x5a\\x71'", "b5a71");
        check("%5A%71", "5a71");
        check("[0x5a, 0X71]", "5a71");
        check("\\u005a\\u0071 5a 71", "5a715a71");
        check("", "");
    }
}
