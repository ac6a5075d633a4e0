//! Tokens of chat services.

use std::fmt;

/// Maximum length of a token, in characters.
const MAX: usize = 256;

/// A bot token. Never shown in messages or logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A text is not a valid token. Does not contain the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a token: one has up to {MAX} letters, digits and `:._-`")]
pub struct NotASecret;

impl Secret {
    /// Parses a token, ignoring surrounding white space, as in files and variables.
    ///
    /// # Errors
    /// If it has invalid characters: it becomes part of URLs and headers.
    pub fn new(text: &str) -> Result<Self, NotASecret> {
        let text = text.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '_' | '-');
        let fits = (1..=MAX).contains(&text.len()) && text.chars().all(plain);
        fits.then(|| Self(text.to_owned())).ok_or(NotASecret)
    }

    /// Returns the token itself, to send it to its service.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Removes this token from a text.
    pub fn scrub(&self, text: &str) -> String {
        text.replace(&self.0, "[token]")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_plain_and_is_not_shown() {
        let secret = Secret::new(" 12:Ab_c-d\n").unwrap();
        assert_eq!(secret.expose(), "12:Ab_c-d");
        assert_eq!(format!("{secret:?}"), "Secret");
        assert_eq!(secret.scrub("at /bot12:Ab_c-d/x"), "at /bot[token]/x");
        for text in [
            "",
            " ",
            "1/2",
            "a b",
            "a\u{0}",
            "é",
            "../x?",
            &"a".repeat(MAX + 1),
        ] {
            assert_eq!(Secret::new(text), Err(NotASecret), "{text}");
        }
    }
}
