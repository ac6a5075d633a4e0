//! Lists of sandboxes in pages.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use ringfence_policy::Scope;

use super::Sandboxes;
use crate::error::Error;
use crate::id::SandboxId;
use crate::sandbox::Sandbox;
use crate::spec::SandboxInfo;

/// The place of a sandbox in lists, which have the oldest first. It is a place also when the sandbox is gone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPosition {
    /// Time of its creation, in nanoseconds since 1970.
    created: u128,
    id: String,
}

/// A page of a list.
#[derive(Debug)]
pub struct SandboxPage {
    /// Sandboxes with their owners.
    pub sandboxes: Vec<(Scope, SandboxInfo)>,
    /// The place behind which the next page begins; `None` at the end.
    pub next: Option<ListPosition>,
}

impl ListPosition {
    pub(super) fn of(sandbox: &Sandbox) -> Self {
        Self::new(sandbox.created(), sandbox.id())
    }

    fn new(created: SystemTime, id: &SandboxId) -> Self {
        let created = created.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            created: created.as_nanos(),
            id: id.as_str().to_owned(),
        }
    }
}

impl fmt::Display for ListPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.created, self.id)
    }
}

impl FromStr for ListPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = text.split_once('-').and_then(|(created, id)| {
            let created = u128::from_str_radix(created, 16).ok()?;
            let is_id = id.len() == 20 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
            is_id.then(|| Self {
                created,
                id: id.to_owned(),
            })
        });
        parsed.ok_or_else(|| Error::Invalid("`after` must be `next` of the page before".to_owned()))
    }
}

impl Sandboxes {
    /// Returns at most so many sandboxes with this metadata behind a place: of a scope, or of all without one.
    pub fn page(
        &self,
        scope: Option<&Scope>,
        metadata: &BTreeMap<String, String>,
        after: Option<&ListPosition>,
        limit: usize,
    ) -> SandboxPage {
        let found = self.select(scope, metadata).into_iter();
        let mut found =
            found.filter(|(_, sandbox)| after.is_none_or(|after| ListPosition::of(sandbox) > *after));
        let page: Vec<_> = found.by_ref().take(limit).collect();
        let next = found.next().and(page.last());
        SandboxPage {
            next: next.map(|(_, sandbox)| ListPosition::of(sandbox)),
            sandboxes: page
                .into_iter()
                .map(|(scope, sandbox)| (scope, sandbox.info()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_place_survives_its_text() {
        let place = |nanos| {
            let created = UNIX_EPOCH + Duration::from_nanos(nanos);
            ListPosition::new(created, &SandboxId::random().unwrap())
        };
        let (older, newer) = (place(1_793_000_000_123_456_789), place(1_793_000_000_123_456_790));
        assert!(older < newer);
        for known in [older, newer] {
            assert_eq!(known.to_string().parse::<ListPosition>().unwrap(), known);
        }
        for wrong in ["", "-", "1-", "x-aaaaaaaaaaaaaaaaaaaa", "1-short", "1"] {
            assert!(wrong.parse::<ListPosition>().is_err(), "{wrong}");
        }
    }
}
