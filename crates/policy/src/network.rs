//! What a run may reach over a network.

/// The network of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// Nothing: a network namespace whose loopback is down, and no internet sockets.
    #[default]
    None,
    /// Only the named hosts, through the egress guard.
    Allowlist(Vec<String>),
}
