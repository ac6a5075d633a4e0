//! Encodes a known value in every form that is searched for.

use std::collections::BTreeSet;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const BASE32_HEX: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// Returns `value` in plain form and in case-sensitive encodings.
pub(super) fn of(value: &str) -> BTreeSet<Vec<u8>> {
    let bytes = value.as_bytes();
    let mut forms = BTreeSet::from([bytes.to_vec(), json(value)]);
    for digits in [LOWER, UPPER] {
        // Python's `quote` leaves `/` unescaped; HTML forms encode a space as `+`.
        for kept in [&b"-_.~"[..], b"-_.~/", b"-_.*+"] {
            forms.insert(percent(bytes, digits, kept));
        }
    }
    for alphabet in [STANDARD, URL_SAFE] {
        for before in 0..3 {
            forms.insert(base64_within(bytes, before, alphabet));
        }
    }
    forms
}

/// Returns `value` in encodings that occur in either case and with separators: in lower case, without
/// separators.
pub(super) fn folded(value: &str) -> BTreeSet<Vec<u8>> {
    let bytes = value.as_bytes();
    let hexadecimal = bytes.iter().flat_map(|byte| hex(*byte, LOWER)).collect();
    let alphabets = [BASE32, BASE32_HEX];
    let within = |alphabet| (0..5).map(move |before| base32_within(bytes, before, alphabet));
    alphabets
        .into_iter()
        .flat_map(within)
        .chain([hexadecimal])
        .collect()
}

fn hex(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]
}

/// Percent-encodes all but letters, digits and `kept`. A space becomes `+` if `kept` has one.
fn percent(bytes: &[u8], digits: &[u8; 16], kept: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b' ' if kept.contains(&b'+') => text.push(b'+'),
            b'+' => text.extend([b'%', b'2', digits[11]]),
            _ if byte.is_ascii_alphanumeric() || kept.contains(&byte) => text.push(byte),
            _ => {
                text.push(b'%');
                text.extend(hex(byte, digits));
            }
        }
    }
    text
}

/// Returns the base64 letters that depend on `bytes` alone if `before` other bytes (modulo 3) precede them.
fn base64_within(bytes: &[u8], before: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let padded: Vec<u8> = std::iter::repeat_n(0, before)
        .chain(bytes.iter().copied())
        .collect();
    let letters = padded.chunks(3).flat_map(|chunk| {
        let group = chunk
            .iter()
            .enumerate()
            .fold(0u32, |sum, (at, byte)| sum | u32::from(*byte) << (16 - 8 * at));
        [18, 12, 6, 0].map(|shift| alphabet[(group >> shift) as usize & 63])
    });
    let first = (before * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    letters.take(last).skip(first).collect()
}

/// Returns the base32 letters that depend on `bytes` alone if `before` other bytes (modulo 5) precede them.
fn base32_within(bytes: &[u8], before: usize, alphabet: &[u8; 32]) -> Vec<u8> {
    let padded: Vec<u8> = std::iter::repeat_n(0, before)
        .chain(bytes.iter().copied())
        .collect();
    let letter = |at: usize| {
        let byte = |index| u16::from(padded.get(index).copied().unwrap_or(0));
        let pair = byte(at / 8) << 8 | byte(at / 8 + 1);
        alphabet[usize::from(pair >> (11 - at % 8)) & 31]
    };
    let first = (before * 8).div_ceil(5);
    let last = padded.len() * 8 / 5;
    (first..last).map(|index| letter(index * 5)).collect()
}

/// Escapes `value` as in a JSON string, without the quotes.
fn json(value: &str) -> Vec<u8> {
    let quoted = serde_json::Value::from(value).to_string();
    quoted.as_bytes()[1..quoted.len() - 1].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(value: &str, form: &str) -> bool {
        of(value).contains(form.as_bytes())
    }

    #[test]
    fn each_form_is_there() {
        assert!(contains("p@ss /word", "p@ss /word"));
        assert!(folded("p@ss /word").contains(&b"70407373202f776f7264"[..]));
        assert!(contains("p@ss /word", "p%40ss%20%2Fword"));
        assert!(contains("p@ss /word", "p%40ss%20%2fword"));
        assert!(contains("p@ss /word", "p%40ss%20/word"));
        assert!(contains("p@ss /word", "p%40ss+%2Fword"));
        assert!(contains("a\"b\\c\nd", r#"a\"b\\c\nd"#));
    }

    #[test]
    fn base32_is_cut_to_what_only_the_value_decides() {
        // base32 of "secret", "Xsecret" and "XYZUsecret".
        assert_eq!(base32_within(b"secret", 0, BASE32), b"onswg4tfoq"[..9].to_vec());
        assert_eq!(
            base32_within(b"secret", 1, BASE32),
            b"lbzwky3smv2a"[2..11].to_vec()
        );
        assert_eq!(
            base32_within(b"secret", 4, BASE32),
            b"lbmvuvltmvrxezlu"[7..16].to_vec()
        );
        assert_eq!(
            base32_within(b"secret", 0, BASE32_HEX),
            b"edim6sj5eg"[..9].to_vec()
        );
    }

    #[test]
    fn base64_is_cut_to_what_only_the_value_decides() {
        // base64 of "secret", "Xsecret" and "XYsecret".
        assert_eq!(base64_within(b"secret", 0, STANDARD), b"c2VjcmV0");
        assert_eq!(base64_within(b"secret", 1, STANDARD), b"NlY3JldA"[..7].to_vec());
        assert_eq!(base64_within(b"secret", 2, STANDARD), b"zZWNyZX"[..7].to_vec());
        assert_eq!(base64_within(&[0xff; 6], 0, URL_SAFE), b"________");
    }
}
