//! Ids and names of sandboxes.

use std::fmt;
use std::io;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Characters of an id.
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Length of an id.
const LENGTH: usize = 20;

/// The id of a sandbox: 20 random lower-case letters and digits, which are about 103 bits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("pattern" = "^[a-z0-9]{20}$"))]
pub struct SandboxId(String);

impl SandboxId {
    /// Generates an id.
    ///
    /// # Errors
    /// If the kernel returns no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut id = String::new();
        while id.len() < LENGTH {
            let mut bytes = [0; 32];
            let flags = rustix::rand::GetRandomFlags::empty();
            let filled = rustix::rand::getrandom(&mut bytes, flags)?;
            // Bytes from 252 on would make some characters more likely than others.
            let even = bytes[..filled].iter().filter(|byte| **byte < 252);
            id.extend(even.map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])));
        }
        id.truncate(LENGTH);
        Ok(Self(id))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a sandbox: 1 to 63 letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"))]
pub struct SandboxName(String);

impl SandboxName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text is not the name of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot name a sandbox: 1 to 63 letters, digits, `-`, `_` and `.`, beginning with a letter or digit"
)]
pub struct ParseNameError(String);

impl FromStr for SandboxName {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if begins && text.len() <= 63 && text.chars().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseNameError(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for SandboxName {
    type Error = ParseNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<SandboxName> for String {
    fn from(name: SandboxName) -> Self {
        name.0
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_twenty_letters_and_digits_and_differ() {
        let ids: Vec<_> = (0..100).map(|_| SandboxId::random().unwrap()).collect();
        for id in &ids {
            assert_eq!(id.as_str().len(), 20);
            assert!(id.as_str().bytes().all(|byte| ALPHABET.contains(&byte)), "{id}");
        }
        let different: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(different.len(), ids.len());
    }

    #[test]
    fn names_are_plain() {
        for good in ["a", "build-1", "A.b_c", &"x".repeat(63)] {
            assert_eq!(good.parse::<SandboxName>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", ".a", "a b", "a/b", "ä", "a\n", &"x".repeat(64)] {
            assert!(bad.parse::<SandboxName>().is_err(), "{bad}");
        }
    }
}
