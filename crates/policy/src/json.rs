//! The size of JSON documents in memory, known before they are parsed.

/// Maximum size of a text that is parsed at once, in bytes: it takes about a millisecond.
pub const SMALL: usize = 64 * 1024;

/// Maximum number of values and member names in a larger text, where a route takes no other.
pub const MAX_VALUES: usize = 1 << 17;

/// Returns an upper bound of the values and member names in a JSON text: each takes many times its bytes once it is parsed.
pub fn most_values(text: &[u8]) -> usize {
    let (mut values, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' | b':' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_missed_and_none_is_seen_in_a_text() {
        for (text, most) in [
            ("", 1),
            ("1", 1),
            ("[]", 2),
            ("[1,2,3]", 4),
            (r#"{"a":[{},{}]}"#, 7),
            (r#"["a,[:{\",\"", "\\", 1]"#, 4),
            (r#""[,,,""#, 1),
        ] {
            assert_eq!(most_values(text.as_bytes()), most, "{text}");
        }
    }
}
