//! A tag: a name of one build of a template.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use ringfence_policy::timestamp::rfc3339;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Most tags of one build.
const MAX: usize = 32;
const MAX_LENGTH: usize = 63;

/// A tag of a build: 1 to 63 lower-case letters, digits, `-`, `_` and `.`, and no UUID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[a-z0-9._-]{1,63}$"))]
pub struct Tag(String);

impl Tag {
    /// Name of the tag that a template without one means.
    pub const DEFAULT: &str = "default";

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_default(&self) -> bool {
        self.0 == Self::DEFAULT
    }
}

impl Default for Tag {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

/// A text is not a tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a tag: 1 to 63 lower-case letters, digits, `-`, `_` and `.`, and not the form of a build's id"
)]
pub struct ParseTagError(String);

impl FromStr for Tag {
    type Err = ParseTagError;

    /// Parses a tag, with capital letters and blanks around it, as E2B does.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let tag = text.trim_ascii().to_ascii_lowercase();
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        match (1..=MAX_LENGTH).contains(&tag.len()) && tag.bytes().all(is_allowed) && !is_uuid(&tag) {
            true => Ok(Self(tag)),
            false => Err(ParseTagError(text.chars().take(80).collect())),
        }
    }
}

/// Returns `true` for the form of a build's id.
fn is_uuid(text: &str) -> bool {
    let digits: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = digits.iter().map(|part| part.len()).collect();
    let is_hexadecimal = || text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    (lengths == [8, 4, 4, 4, 12] || lengths == [32]) && is_hexadecimal()
}

impl TryFrom<String> for Tag {
    type Error = ParseTagError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Tag> for String {
    fn from(tag: Tag) -> Self {
        tag.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks the number of a build's tags.
///
/// # Errors
/// If there are too many.
pub(super) fn check_number(number: usize) -> Result<(), Error> {
    match number > MAX {
        true => Err(Error::TooManyTags(MAX)),
        false => Ok(()),
    }
}

/// Returns the tags of a new build, from now on.
///
/// # Errors
/// If there are too many.
pub fn new_tags(tags: BTreeSet<Tag>) -> Result<BTreeMap<Tag, String>, Error> {
    check_number(tags.len())?;
    let now = rfc3339(SystemTime::now());
    Ok(tags.into_iter().map(|tag| (tag, now.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_plain() {
        for (text, expected) in [("v1", "v1"), (" V1.0-a_b ", "v1.0-a_b"), ("abcd-ef", "abcd-ef")] {
            assert_eq!(text.parse::<Tag>().unwrap().as_str(), expected);
        }
        let uuid = "00000000-0000-4000-8000-000000000000";
        for bad in [
            "",
            ":",
            "a:b",
            "a b",
            "a/b",
            "ä",
            &"x".repeat(64),
            uuid,
            &"0".repeat(32),
        ] {
            assert!(bad.parse::<Tag>().is_err(), "{bad}");
        }
    }
}
