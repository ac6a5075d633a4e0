//! The description of a sandbox.

use ringfence_policy::EngineKind;
use serde::{Deserialize, Serialize};

/// The description of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxInfo {
    pub name: String,
    pub engine: EngineKind,
    /// Name of the template that its limits come from.
    pub template: String,
    /// Name of the sandbox's state.
    pub state: String,
    /// Seconds since its creation.
    pub age_seconds: f64,
    /// Seconds until the sandbox's end.
    pub left_seconds: f64,
}
