//! Information about a session for its owner.

use ringfence_policy::SessionId;
use serde::{Deserialize, Serialize};

/// Information about a session for its owner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionInfo {
    pub id: SessionId,
    /// Seconds since its creation.
    pub age_seconds: f64,
    /// Seconds since its last evaluation; `None` during one.
    pub idle_seconds: Option<f64>,
    /// Number of evaluations, including those of the session it was forked from.
    pub evaluations: u64,
    /// Memory in use; `None` if nothing measures it.
    pub memory_bytes: Option<u64>,
    pub forked_from: Option<SessionId>,
}
