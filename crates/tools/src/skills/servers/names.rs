//! Sanitizes texts and names from servers.

use super::super::function::is_name;

/// Python keywords, which cannot be identifiers.
const PYTHON: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield", "aio",
];

/// Maximum length of a name.
const MAX_NAME: usize = 64;

/// Removes invisible characters, and returns whether there were any: a model may obey text that a person does
/// not see.
pub(super) fn plain(text: &str, max: usize) -> (String, bool) {
    let seen = |c: &char| *c == '\n' || *c == '\t' || !(c.is_control() || is_invisible(*c));
    let kept: String = text.chars().take(max).filter(seen).collect();
    let hidden = text.chars().take(max).any(|c| !seen(&c) && c != '\r');
    (kept, hidden)
}

/// Returns `true` for characters that change the writing direction, have no width, or look like nothing.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Converts a name to a Python identifier: `get-weather` to `get_weather`, `class` to `class_`. `None` if
/// nothing is left.
pub(super) fn identifier(name: &str) -> Option<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut made: String = name.chars().take(MAX_NAME).map(plain).collect();
    made = made.trim_start_matches('_').to_owned();
    if made.starts_with(|c: char| c.is_ascii_digit()) {
        made.insert_str(0, "n_");
    }
    if PYTHON.contains(&made.as_str()) {
        made.push('_');
    }
    made.truncate(MAX_NAME);
    is_name(&made).then_some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_taken_out() {
        let check = |text: &str, expected: &str, hidden: bool| {
            assert_eq!(plain(text, 100), (expected.to_owned(), hidden), "{text:?}");
        };
        check("Adds.\n\tTwo é.", "Adds.\n\tTwo é.", false);
        check("a\u{1b}[31mb", "a[31mb", true);
        check("a\u{202e}b\u{e0041}", "ab", true);
        check("a\r\nb", "a\nb", false);
        assert_eq!(plain("abc", 2).0, "ab");
    }

    #[test]
    fn names_become_identifiers() {
        for (name, expected) in [
            ("add", Some("add")),
            ("get-weather", Some("get_weather")),
            ("a.b/c", Some("a_b_c")),
            ("_private", Some("private")),
            ("3d", Some("n_3d")),
            ("class", Some("class_")),
            ("é", None),
            ("", None),
        ] {
            assert_eq!(identifier(name).as_deref(), expected, "{name}");
        }
        assert_eq!(identifier(&"x".repeat(200)).unwrap().len(), MAX_NAME);
    }
}
