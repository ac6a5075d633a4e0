//! How long each tool may take, and how much it may say.

use std::collections::BTreeMap;

use ringfence_policy::{Bytes, Timeout};

/// How long each tool may take, and how much it may say.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolLimits {
    /// For a tool without a limit of its own.
    pub default_timeout: Timeout,
    /// Limits of single tools, by name.
    pub timeouts: BTreeMap<String, Timeout>,
    /// How much of a tool's answer is kept.
    pub max_output: Bytes,
}

impl ToolLimits {
    /// The time that a tool may take.
    pub fn timeout(&self, tool: &str) -> Timeout {
        self.timeouts.get(tool).copied().unwrap_or(self.default_timeout)
    }
}
