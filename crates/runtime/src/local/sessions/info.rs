//! What a session's owner is told of it.

use ringfence_policy::SessionId;
use serde::{Deserialize, Serialize};

/// What a session's owner is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionInfo {
    /// Its name.
    pub id: SessionId,
    /// Seconds since it was made.
    pub age_seconds: f64,
    /// Seconds since its last evaluation; `None` while it evaluates.
    pub idle_seconds: Option<f64>,
    /// How many evaluations it has seen, those of the session that it was forked from included.
    pub evaluations: u64,
    /// Memory in use; `None` where nothing measures it.
    pub memory_bytes: Option<u64>,
    /// The session that it was forked from.
    pub forked_from: Option<SessionId>,
}
