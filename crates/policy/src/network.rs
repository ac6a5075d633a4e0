//! What a run may reach over a network.

use crate::EgressPolicy;

/// The network of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// Nothing: a network namespace whose loopback is down, and no internet sockets.
    #[default]
    None,
    /// Only what this policy names, through the egress proxy.
    Allowlist(EgressPolicy),
}
