//! Names containers and volumes, with a common prefix.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;

/// Name prefix of every container and volume that we create.
pub(crate) const PREFIX: &str = "fw-sandbox-";

/// The name of a container or volume: `fw-sandbox-` and 1 to 40 of `a-z 0-9 -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

/// An error returned when parsing a [`Name`] from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot name a container; use 1 to 40 of `a-z`, `0-9` and `-`, as in `build-1`")]
pub struct ParseNameError(String);

impl Name {
    /// Generates a unique name; the standard library's hash keys are random.
    pub fn unused() -> Self {
        Self(format!(
            "{PREFIX}{:016x}",
            RandomState::new().build_hasher().finish()
        ))
    }

    /// Returns the name of a part of this container or volume. Only for generated names, so that it cannot
    /// collide with a chosen one.
    pub(crate) fn part(&self, part: &str) -> Self {
        Self(format!("{}-{part}", self.0))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = ParseNameError;

    /// Accepts names with and without the common prefix.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix(PREFIX).unwrap_or(text);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if rest.is_empty() || rest.len() > 40 || rest.starts_with('-') || !rest.chars().all(plain) {
            return Err(ParseNameError(text.chars().take(80).collect()));
        }
        Ok(Self(format!("{PREFIX}{rest}")))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_beginning() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(
                text.parse::<Name>().ok().as_ref().map(Name::as_str),
                expected,
                "{text}"
            );
        };
        check("build-1", Some("fw-sandbox-build-1"));
        check("fw-sandbox-build-1", Some("fw-sandbox-build-1"));
        for bad in [
            "",
            "fw-sandbox-",
            "-x",
            "A",
            "a/b",
            "..",
            "a b",
            "a\n",
            &"a".repeat(41),
        ] {
            check(bad, None);
        }
        assert_ne!(Name::unused(), Name::unused());
    }
}
