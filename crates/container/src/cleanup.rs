//! Removes a container and its volumes; a failed step does not prevent the others.

use std::time::Duration;

use super::runtime::{Id, Status};
use super::spec::{Name, Spec};
use super::{ContainerRuntime, Error};

/// Pauses before further attempts of a removal.
const RETRY_AFTER: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// A container to remove, with its volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remains {
    pub(super) container: Name,
    pub(super) volumes: Vec<Name>,
}

impl Remains {
    /// Returns the remains of a container without volumes.
    pub(super) fn of_container(name: &Name) -> Self {
        Self {
            container: name.clone(),
            volumes: Vec::new(),
        }
    }

    pub(super) fn of(spec: &Spec) -> Self {
        Self {
            container: spec.name.clone(),
            volumes: spec.volumes.iter().map(|volume| volume.name.clone()).collect(),
        }
    }
}

/// Like [`clean`], repeated after these pauses while something remains: a container engine that is busy, or that has a container
/// in a state between two others, succeeds seconds later. The next sweep would be minutes later.
pub(super) async fn clean_with_retries(
    engine: &ContainerRuntime,
    remains: &Remains,
    grace: Duration,
) -> Vec<Error> {
    let mut problems = clean(engine, remains, grace).await;
    for pause in RETRY_AFTER {
        // An engine that does not answer is asked again once it does.
        if problems.is_empty() || engine.ping().await.is_err() {
            break;
        }
        tokio::time::sleep(pause).await;
        problems = clean(engine, remains, Duration::ZERO).await;
    }
    problems
}

/// Stops the container with a grace period, then removes it and its volumes. Continues past failures, and
/// returns them. Idempotent.
pub(super) async fn clean(engine: &ContainerRuntime, remains: &Remains, grace: Duration) -> Vec<Error> {
    let id = Id::from(&remains.container);
    let mut problems = Vec::new();
    // Podman neither stops nor removes a paused container, and an attempt to do so leaves it in a state that it cannot leave.
    let found = engine.inspect(&id).await;
    if found.is_ok_and(|found| found.status == Status::Paused) {
        problems.extend(engine.resume(&id).await.err());
    }
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
