//! Secrets: the key of a server, which debug output does not show.

use std::fmt;
use std::io;

/// A secret that is redacted in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// An error of reading a key. Omits everything that was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The variable is not set.
    #[error("its key is missing: the variable `{0}` is not set")]
    Missing(String),
    /// The file cannot be read.
    #[error("the file of its key cannot be read: {0}")]
    Unreadable(io::ErrorKind),
    /// A program may have made a link on the way to the file.
    #[error("the file of its key is reached by a link that a program may have made")]
    Planted,
    /// Other users have permissions on the file.
    #[error("the file of its key is open to others (mode {0:03o})")]
    Open(u32),
    /// The content is not a valid key.
    #[error("its key is empty, too long, or contains invalid characters")]
    Malformed,
}

impl KeyError {
    /// Returns a hint for the user.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Missing(_) => {
                "set the variable, or name a file with the key in `hostExecution.preValidation.apiKeyFile`"
            }
            Self::Unreadable(_) => {
                "name a file that you can read in `hostExecution.preValidation.apiKeyFile`"
            }
            Self::Planted => "look at what the link leads to, and name that if you trust it",
            Self::Open(_) => {
                "take the others' rights away with `chmod 600`, and have the key replaced if they could read it"
            }
            Self::Malformed => {
                "the key is one word of letters, digits and signs, and the file holds nothing else"
            }
        }
    }
}

/// Length limit, far above any provider's keys.
pub const MAX_KEY: usize = 1024;

impl Secret {
    /// Creates a secret from a text, without surrounding white space.
    ///
    /// # Errors
    /// If the text is not a valid key.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        let key = text.trim();
        let fits = (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(key.to_owned())).ok_or(KeyError::Malformed)
    }

    pub fn into_text(self) -> String {
        self.0
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
    fn it_is_shown_nowhere() {
        let known = Secret::new("sk-ant-0123456789").unwrap();
        assert_eq!(format!("{known:?}"), "Secret");
        for wrong in ["", " \n", "two words", "a\nb", "k\u{e9}y", &"k".repeat(1025)] {
            assert_eq!(Secret::new(wrong), Err(KeyError::Malformed), "{wrong:?}");
        }
    }
}
