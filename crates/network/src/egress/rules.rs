//! The rules of a guard, which can be replaced, with the connections that are open under them.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ringfence_policy::{EgressPolicy, Host, Refusal};

use super::connection::Wire;
use super::own;

/// A policy with the connections that it has allowed.
#[derive(Debug)]
pub(super) struct Rules(Mutex<State>);

#[derive(Debug)]
struct State {
    policy: Arc<EgressPolicy>,
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    to: Destination,
    wire: Weak<Wire>,
}

/// The other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Destination {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) address: IpAddr,
}

impl Rules {
    pub(super) fn new(policy: EgressPolicy) -> Self {
        Self(Mutex::new(State {
            policy: Arc::new(policy),
            open: Vec::new(),
        }))
    }

    /// Returns the policy that holds now.
    pub(super) fn policy(&self) -> Arc<EgressPolicy> {
        Arc::clone(&self.state().policy)
    }

    /// Replaces the policy, and closes the connections that the new one denies.
    pub(super) fn replace(&self, policy: EgressPolicy) {
        let mut state = self.state();
        let state = &mut *state;
        state.policy = Arc::new(policy);
        state.open.retain(|open| {
            let Some(wire) = open.wire.upgrade() else {
                return false;
            };
            let is_allowed = check(&state.policy, &open.to).is_ok();
            if !is_allowed {
                wire.cut();
            }
            is_allowed
        });
    }

    /// Adds a connection that the policy `under` allowed. It may have been replaced while the connection was made: then the new
    /// one decides.
    pub(super) fn admit(
        &self,
        under: &Arc<EgressPolicy>,
        to: Destination,
        wire: &Arc<Wire>,
    ) -> Result<(), Refusal> {
        let mut state = self.state();
        if !Arc::ptr_eq(under, &state.policy) {
            check(&state.policy, &to)?;
        }
        state.open.retain(|open| open.wire.strong_count() > 0);
        state.open.push(Open {
            to,
            wire: Arc::downgrade(wire),
        });
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(policy: &EgressPolicy, to: &Destination) -> Result<(), Refusal> {
    policy.check_host(&to.host, to.port)?;
    check_address(policy, &to.host, to.address)
}

/// Checks an address of an allowed host.
pub(super) fn check_address(policy: &EgressPolicy, host: &Host, address: IpAddr) -> Result<(), Refusal> {
    policy.check_address(host, address)?;
    if own::is_own(address) {
        policy.check_own_address(host, address)?;
    }
    Ok(())
}
