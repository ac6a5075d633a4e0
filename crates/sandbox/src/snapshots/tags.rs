//! Tags: names of the builds of one template. Builds are snapshots with one name, each with tags of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use ringfence_exec::clock::rfc3339;
use ringfence_policy::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Index, SnapshotInfo, SnapshotStore, failed};
use crate::error::Error;
use crate::id::{SandboxId, SandboxName};
use crate::lock;

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
    "`{0}` is no tag: 1 to 63 lower-case letters, digits, `-`, `_` and `.`, and not the form of a build's id"
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

impl SnapshotInfo {
    /// Returns its tags, with the times of their assignment (RFC 3339). One that was given none has the default one.
    pub fn tags(&self) -> BTreeMap<Tag, String> {
        let own = self.template.as_ref().map(|template| &template.tags);
        match own.filter(|tags| !tags.is_empty()) {
            Some(tags) => tags.clone(),
            None => [(Tag::default(), self.created_at.clone())].into(),
        }
    }

    /// Returns the time since which `name`, an id or a name with or without a tag, is its own. Times compare as text.
    pub(super) fn named_since(&self, name: &str) -> Option<String> {
        if self.id.as_str() == name {
            return Some(self.created_at.clone());
        }
        let (plain, tag) = name.split_once(':').unwrap_or((name, Tag::DEFAULT));
        let tag: Tag = tag.parse().ok().filter(|_| self.is_named(plain))?;
        self.tags().remove(&tag)
    }

    /// Returns `true` if this is its id or its name.
    fn is_named(&self, name: &str) -> bool {
        self.id.as_str() == name || self.name.as_ref().is_some_and(|own| own.as_str() == name)
    }

    fn is_build_of(&self, name: &SandboxName) -> bool {
        self.name.as_ref() == Some(name)
    }
}

impl SnapshotStore {
    /// Returns the builds of the template with this name, or with the name of the build with this id. The oldest comes first.
    pub(crate) fn builds(&self, scope: &Scope, name: &str) -> Result<Vec<SnapshotInfo>, Error> {
        let all = self.list(scope);
        let templates = || all.iter().filter(|info| info.template.is_some());
        let found = templates().find(|info| info.is_named(name));
        let name = found
            .and_then(|info| info.name.clone())
            .ok_or_else(|| Error::NoSnapshot(name.chars().take(80).collect()))?;
        Ok(templates()
            .filter(|info| info.is_build_of(&name))
            .cloned()
            .collect())
    }

    /// Assigns tags to a build, which is named by its template's name with or without a tag, or by its id. Other builds lose them.
    pub(crate) fn assign_tags(
        &self,
        scope: &Scope,
        target: &str,
        tags: &BTreeSet<Tag>,
    ) -> Result<SnapshotInfo, Error> {
        let mut index = lock(&self.index);
        let no_build = || Error::NoSnapshot(target.chars().take(80).collect());
        let mut build = index.find(scope, target).ok_or_else(no_build)?;
        let mut all = build.tags();
        let now = rfc3339(SystemTime::now());
        all.extend(tags.iter().map(|tag| (tag.clone(), now.clone())));
        check_number(all.len())?;
        build.template.as_mut().ok_or_else(no_build)?.tags = all;
        self.rewrite(&mut index, scope, &build)?;
        self.take_tags(&mut index, scope, &build, tags)?;
        Ok(build)
    }

    /// Removes tags from the builds of a template, and the builds that have no tag left.
    pub(crate) fn remove_tags(&self, scope: &Scope, name: &str, tags: &BTreeSet<Tag>) -> Result<(), Error> {
        let builds = self.builds(scope, name)?;
        let mut index = lock(&self.index);
        builds
            .iter()
            .try_for_each(|build| self.untag(&mut index, scope, &build.id, tags))?;
        self.remove_directory(&index);
        Ok(())
    }

    /// Takes tags from the other builds with the name of a build.
    pub(super) fn take_tags(
        &self,
        index: &mut Index,
        scope: &Scope,
        build: &SnapshotInfo,
        tags: &BTreeSet<Tag>,
    ) -> Result<(), Error> {
        let Some(name) = &build.name else { return Ok(()) };
        let of_scope = index.kept.values().filter(|(owner, _)| owner == scope);
        let others: Vec<SandboxId> = of_scope
            .filter(|(_, info)| info.is_build_of(name) && info.id != build.id)
            .map(|(_, info)| info.id.clone())
            .collect();
        others
            .iter()
            .try_for_each(|id| self.untag(index, scope, id, tags))
    }

    fn untag(
        &self,
        index: &mut Index,
        scope: &Scope,
        id: &SandboxId,
        tags: &BTreeSet<Tag>,
    ) -> Result<(), Error> {
        // It may be gone by now.
        let Some((_, mut info)) = index.kept.get(id).cloned() else {
            return Ok(());
        };
        let before = info.tags();
        let mut left = before.clone();
        left.retain(|tag, _| !tags.contains(tag));
        if left.is_empty() {
            return self.discard(index, id);
        }
        match &mut info.template {
            Some(template) if left != before => {
                template.tags = left;
                self.rewrite(index, scope, &info)
            }
            _ => Ok(()),
        }
    }

    /// Writes the record of a snapshot that is kept again.
    fn rewrite(&self, index: &mut Index, scope: &Scope, info: &SnapshotInfo) -> Result<(), Error> {
        self.write_record(scope, info).map_err(failed("write"))?;
        let entry = (scope.clone(), info.clone());
        index.kept.insert(info.id.clone(), entry);
        Ok(())
    }
}

/// Checks the number of a build's tags.
///
/// # Errors
/// If there are too many.
fn check_number(number: usize) -> Result<(), Error> {
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
