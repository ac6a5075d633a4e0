//! Network access of a run.

use crate::EgressPolicy;

/// The network of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// None: a network namespace whose loopback is down, and no internet sockets.
    #[default]
    None,
    /// Hosts that the policy allows, through the egress proxy.
    Allowlist(EgressPolicy),
}

impl Network {
    /// Returns the network of programs that reach each other and no host: sockets, and an allowlist that is empty.
    pub fn loopback() -> Self {
        Self::Allowlist(EgressPolicy::default())
    }
}
