//! Removing what is left of a sandbox, each part whatever became of the others.

use std::time::Duration;

use super::runtime::Id;
use super::spec::{Name, Spec};
use super::{ContainerRuntime, Error};

/// What may be left of a sandbox.
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

/// Ends the container, politely for as long as `grace`, and removes it with its volumes. What cannot be done is told and
/// keeps nothing else from being done; to do it again does no harm.
pub(super) async fn clean(engine: &ContainerRuntime, remains: &Remains, grace: Duration) -> Vec<Error> {
    let id = Id::from(&remains.container);
    let mut problems = Vec::new();
    // Removing kills, so it is only worth a word where there is time for one.
    if !grace.is_zero() {
        problems.extend(engine.stop(&id, grace).await.err().filter(is_problem));
    }
    problems.extend(engine.remove(&id).await.err());
    for volume in &remains.volumes {
        problems.extend(engine.remove_volume(volume).await.err());
    }
    problems
}

/// What does not exist need not be stopped.
fn is_problem(error: &Error) -> bool {
    !matches!(error, Error::NotFound { .. })
}
