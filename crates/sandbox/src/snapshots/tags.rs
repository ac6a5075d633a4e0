//! Tags: names of the builds of one template. Builds are snapshots with one name, each with tags of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use ringfence_policy::Scope;
use ringfence_policy::timestamp::rfc3339;

use super::tag::{Tag, check_number};
use super::{Index, SnapshotInfo, SnapshotStore, failed};
use crate::error::Error;
use crate::id::{SandboxId, SandboxName};
use crate::lock::lock;

impl SnapshotInfo {
    /// Returns the snapshot's tags, with the times of their assignment (RFC 3339). A snapshot without tags
    /// has the default one.
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
    /// Returns the builds of the template with this name, or with the name of the build with this id. Sorted
    /// by age, oldest first.
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
