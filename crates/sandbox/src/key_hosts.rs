//! Hosts that sandboxes of API keys may reach.

use ringfence_policy::{EgressPolicy, HostPattern};

/// Hosts that the operator opens to sandboxes of API keys. A sandbox reaches those that it asks for.
#[derive(Debug, Clone, Default)]
pub struct KeyHosts {
    open: EgressPolicy,
}

/// An error of a sandbox that asks for a host that is not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the operator has not opened the host `{0}` to sandboxes of keys")]
pub struct ClosedHost(pub HostPattern);

impl KeyHosts {
    /// Opens the hosts of a policy, at addresses that it allows.
    pub const fn new(open: EgressPolicy) -> Self {
        Self { open }
    }

    /// Returns the policy of a sandbox that asks for all hosts that are open; `None` if there are none.
    pub fn all(&self) -> Option<EgressPolicy> {
        (!self.open.allowed.is_empty()).then(|| self.open.clone())
    }

    /// Returns the policy of a sandbox that asks for these hosts.
    ///
    /// # Errors
    /// If one of them is not open.
    pub fn only(&self, hosts: Vec<HostPattern>) -> Result<EgressPolicy, ClosedHost> {
        let is_open = |host: &HostPattern| self.open.allowed.iter().any(|open| open.covers(host));
        if let Some(closed) = hosts.iter().find(|host| !is_open(host)) {
            return Err(ClosedHost(closed.clone()));
        }
        Ok(EgressPolicy {
            allowed: hosts,
            ..self.open.clone()
        })
    }
}
