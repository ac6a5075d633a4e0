//! Removes orphans: containers and volumes of dead processes.

use std::collections::HashMap;
use std::time::Duration;

use ringfence_exec::owner::Owner;

use super::cleanup::{Remains, clean};
use super::runtime::Listed;
use super::spec::Name;
use super::spec::lower::OWNER_LABEL;
use super::{ContainerRuntime, Error};

/// Result of an orphan removal.
#[derive(Debug, Default)]
pub struct Swept {
    /// Names of the removed containers and volumes.
    pub removed: Vec<String>,
    /// Names of those that could not be removed, with the error.
    pub failed: Vec<(String, Error)>,
}

/// Removes orphaned containers and volumes that carry our owner label. Others are not removed.
pub(super) async fn sweep(
    engine: &ContainerRuntime,
    is_orphan: &(dyn Fn(&str, &Owner) -> bool + Sync),
) -> Result<Swept, Error> {
    let mut swept = Swept::default();
    for name in orphans(engine.list().await?, is_orphan) {
        let removed = clean(engine, &Remains::of_container(&name), Duration::ZERO).await;
        let removed = removed.into_iter().next().map_or(Ok(()), Err);
        swept.note(name, removed);
    }
    // After the containers that use them.
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
