//! The snapshots of a server's owners.

use std::collections::BTreeSet;

use ringfence_policy::Scope;

use super::Sandboxes;
use crate::error::Error;
use crate::snapshots::{SnapshotInfo, Tag};

impl Sandboxes {
    /// Returns the snapshots of a scope, the oldest first.
    pub fn snapshots(&self, scope: &Scope) -> Vec<SnapshotInfo> {
        self.store.list(scope)
    }

    /// Returns a snapshot by its id, or by its name. The name of a template may have a tag, as in `tools:v1`.
    ///
    /// # Errors
    /// If the scope has no such snapshot.
    pub fn find_snapshot(&self, scope: &Scope, name: &str) -> Result<SnapshotInfo, Error> {
        self.store.get(scope, name)
    }

    /// Returns the builds of the template with this name, or with the name of the build with this id. Sorted
    /// by age, oldest first.
    ///
    /// # Errors
    /// If the scope has no such build.
    pub fn builds(&self, scope: &Scope, name: &str) -> Result<Vec<SnapshotInfo>, Error> {
        self.store.builds(scope, name)
    }

    /// Assigns tags to the build of a template that [`Sandboxes::find_snapshot`] finds; its other builds lose them. One that has none
    /// left is removed.
    ///
    /// # Errors
    /// If the scope has none such, it has too many tags, or a file cannot be written.
    pub fn assign_tags(
        &self,
        scope: &Scope,
        target: &str,
        tags: &BTreeSet<Tag>,
    ) -> Result<SnapshotInfo, Error> {
        self.store.assign_tags(scope, target, tags)
    }

    /// Removes tags from the builds that [`Sandboxes::builds`] finds. One that has none left is removed.
    ///
    /// # Errors
    /// If the scope has none such, or a file cannot be written.
    pub fn remove_tags(&self, scope: &Scope, name: &str, tags: &BTreeSet<Tag>) -> Result<(), Error> {
        self.store.remove_tags(scope, name, tags)
    }

    /// Creates an unnamed file on the disk, for bytes that a client sends before their sandbox exists.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn scratch_file(&self) -> Result<std::fs::File, Error> {
        self.store.scratch_file()
    }

    /// Removes a snapshot. Sandboxes that were made of it stay.
    ///
    /// # Errors
    /// If the scope has none such, or its files cannot be removed.
    pub fn remove_snapshot(&self, scope: &Scope, name: &str) -> Result<(), Error> {
        self.store.remove(scope, name)
    }
}
