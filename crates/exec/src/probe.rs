//! Detects the available isolation layers by trying them, and suggests fixes for the missing ones.

mod fixes;
mod groups;
mod kernel;
mod layer;
mod machine;
mod programs;
mod runs;

use serde::Serialize;

use crate::local::Settings;
pub use layer::{Layer, Situation, Status};
use machine::Machine;

/// The capabilities of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Strength of the isolation of a default run.
    pub situation: Situation,
    /// Summary for a default run, in one sentence.
    pub verdict: String,
    pub layers: Vec<Layer>,
}

/// Tries every layer that runs with these settings would use.
///
/// Confines only child processes, and cleans up completely.
pub async fn examine(settings: &Settings) -> Report {
    let machine = Machine::read();
    // First: cgroup v2 permits a process to delegate its group only while it is alone in it, so children
    // would interfere.
    let groups = groups::layer(&machine);
    let runs = runs::try_all(settings).await;
    let mut layers = kernel::layers(&machine);
    layers.push(groups);
    layers.push(runs.fence(&machine));
    layers.extend(programs::languages(settings, &runs));
    Report {
        situation: runs.situation(&machine),
        verdict: runs.verdict(&machine),
        layers,
    }
}
