//! Removes a container and its volumes; a failed step does not prevent the others.

use std::time::Duration;

use super::runtime::Id;
use super::spec::{Name, Spec};
use super::{ContainerRuntime, Error};

/// A container to remove, with its volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remains {
    pub(super) container: Name,
    pub(super) volumes: Vec<Name>,
}

impl Remains {
    pub(super) fn of(spec: &Spec) -> Self {
        Self {
            container: spec.name.clone(),
            volumes: spec.volumes.iter().map(|volume| volume.name.clone()).collect(),
        }
    }
}

/// Stops the container with a grace period, then removes it and its volumes. Continues past failures, and
/// returns them. Idempotent.
pub(super) async fn clean(engine: &ContainerRuntime, remains: &Remains, grace: Duration) -> Vec<Error> {
    let id = Id::from(&remains.container);
    let mut problems = Vec::new();
    // Removal kills, so stopping first is only useful with a grace period.
    if !grace.is_zero() {
        problems.extend(engine.stop(&id, grace).await.err().filter(is_problem));
    }
    problems.extend(engine.remove(&id).await.err());
    for volume in &remains.volumes {
        problems.extend(engine.remove_volume(volume).await.err());
    }
    problems
}

/// Returns `false` if the container does not exist, and so need not be stopped.
fn is_problem(error: &Error) -> bool {
    !matches!(error, Error::NotFound { .. })
}
