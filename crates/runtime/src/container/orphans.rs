//! What dead processes left in an engine.

use std::collections::HashMap;

use super::runtime::{Id, Listed};
use super::spec::{Name, OWNER_LABEL};
use super::{ContainerRuntime, Error};
use crate::owner::Owner;

/// What became of orphans.
#[derive(Debug, Default)]
pub struct Swept {
    /// The names of what was removed.
    pub removed: Vec<String>,
    /// What could not be removed, and why.
    pub failed: Vec<(String, Error)>,
}

/// Removes the containers and volumes that bear an owner's name and are orphans. What bears none is not ours.
pub(super) async fn sweep(
    engine: &ContainerRuntime,
    is_orphan: &(dyn Fn(&str, &Owner) -> bool + Sync),
) -> Result<Swept, Error> {
    let mut swept = Swept::default();
    for name in orphans(engine.list().await?, is_orphan) {
        let removed = engine.remove(&Id::from(&name)).await;
        swept.note(name, removed);
    }
    // A container that uses a volume goes first.
    for name in orphans(engine.list_volumes().await?, is_orphan) {
        let removed = engine.remove_volume(&name).await;
        swept.note(name, removed);
    }
    Ok(swept)
}

impl Swept {
    fn note(&mut self, name: Name, removed: Result<(), Error>) {
        let name = name.as_str().to_owned();
        match removed {
            Ok(()) => self.removed.push(name),
            Err(error) => self.failed.push((name, error)),
        }
    }
}

fn orphans(listed: Vec<Listed>, is_orphan: &(dyn Fn(&str, &Owner) -> bool + Sync)) -> Vec<Name> {
    let orphan = |found: &Listed| {
        let owner = owner(&found.labels)?;
        let name: Name = found.name.parse().ok()?;
        is_orphan(name.as_str(), &owner).then_some(name)
    };
    listed.iter().filter_map(orphan).collect()
}

fn owner(labels: &HashMap<String, String>) -> Option<Owner> {
    labels.get(OWNER_LABEL)?.parse().ok()
}
