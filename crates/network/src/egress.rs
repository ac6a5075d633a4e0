//! Enforces the egress policy: the allowed hosts and their addresses.
//!
//! The guard returns connected streams, and knows no protocol: page fetches and guests' tunnels share it.

mod attempts;
mod connection;
pub mod outlet;
mod own;
pub mod proxy;
mod resolver;
mod rules;

#[cfg(test)]
mod tests;

pub use attempts::{Attempt, AttemptLog, Verdict};
pub use connection::Connection;
pub use outlet::{NetworkSettings, Outlet};
pub use resolver::Resolver;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use ringfence_policy::{EgressPolicy, Host, Refusal};
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use rules::{Destination, Rules, check_address};

/// Limit of addresses per host that are tried. All of them are checked.
const MAX_TRIED: usize = 4;

/// A connector for hosts and addresses that a policy allows.
#[derive(Debug)]
pub struct Guard {
    rules: Rules,
    resolver: Resolver,
}

/// An error of making a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The policy denies it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The name resolves to no address.
    #[error("{0} does not resolve to an address")]
    NotFound(Host),
    /// No address accepted the connection.
    #[error("{0} cannot be reached at port {1}")]
    Unreachable(Host, u16),
    /// The deadline was reached.
    #[error("{0} did not answer in time")]
    TimedOut(Host),
}

impl ConnectError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.hint(),
            Self::NotFound(_) => "check the spelling of the host, and that this machine can look up names",
            Self::Unreachable(..) => "check the port, and that the host is up",
            Self::TimedOut(_) => "try again later, or allow more time",
        }
    }

    fn verdict(&self) -> Verdict {
        match self {
            Self::Refused(refusal) => Verdict::Refused(refusal.clone()),
            Self::NotFound(_) => Verdict::NotFound,
            Self::Unreachable(..) => Verdict::Unreachable,
            Self::TimedOut(_) => Verdict::TimedOut,
        }
    }
}

impl Guard {
    /// Creates a guard for `policy`.
    pub fn new(policy: EgressPolicy, resolver: Resolver) -> Self {
        Self {
            rules: Rules::new(policy),
            resolver,
        }
    }

    /// Replaces the policy. Connections that the new one denies are closed before this returns; those that are being made are
    /// judged by it, too.
    pub fn replace(&self, policy: EgressPolicy) {
        self.rules.replace(policy);
    }

    /// Connects to `host` at `port`, and records every attempt in the log, which counts the bytes of the connection, too.
    ///
    /// The name is resolved once, and only checked addresses are connected to: a second resolution could give
    /// another answer (DNS rebinding).
    ///
    /// # Errors
    /// If the policy denies the host or one of its addresses, or if no address can be reached by the
    /// deadline.
    pub async fn connect(
        &self,
        host: &Host,
        port: u16,
        deadline: Instant,
        log: &AttemptLog,
    ) -> Result<Connection, ConnectError> {
        let policy = self.rules.policy();
        let addresses = match self.look_up(&policy, host, port, deadline).await {
            Ok(addresses) => addresses,
            Err(error) => {
                log.record(host, port, None, error.verdict());
                return Err(error);
            }
        };
        check(&policy, host, port, &addresses, log)?;
        let target = Target { host, port, deadline };
        self.dial(&policy, target, &addresses, log).await
    }

    async fn look_up(
        &self,
        policy: &EgressPolicy,
        host: &Host,
        port: u16,
        deadline: Instant,
    ) -> Result<Vec<IpAddr>, ConnectError> {
        policy.check_host(host, port)?;
        let name = match host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        let found = timeout_at(deadline.into(), self.resolver.resolve(name)).await;
        let found = found.map_err(|_| ConnectError::TimedOut(host.clone()))?;
        if found.is_empty() {
            return Err(ConnectError::NotFound(host.clone()));
        }
        Ok(found)
    }

    /// Tries the addresses in turn; each gets an equal share of the remaining time.
    async fn dial(
        &self,
        policy: &Arc<EgressPolicy>,
        target: Target<'_>,
        addresses: &[IpAddr],
        log: &AttemptLog,
    ) -> Result<Connection, ConnectError> {
        let Target { host, port, deadline } = target;
        let mut waiting = addresses.len().min(MAX_TRIED);
        for address in addresses.iter().take(MAX_TRIED) {
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(waiting).unwrap_or(u32::MAX);
            waiting = waiting.saturating_sub(1).max(1);
            let connection = timeout(share, TcpStream::connect(SocketAddr::new(*address, port))).await;
            let verdict = match connection {
                Ok(Ok(stream)) => {
                    let connection = log.counted(stream);
                    let admitted = self.admit(policy, target, *address, &connection);
                    let verdict = admitted
                        .as_ref()
                        .map_or_else(ConnectError::verdict, |()| Verdict::Connected);
                    log.record(host, port, Some(*address), verdict);
                    return admitted.map(|()| connection);
                }
                Ok(Err(_)) => Verdict::Unreachable,
                Err(_) => Verdict::TimedOut,
            };
            log.record(host, port, Some(*address), verdict);
        }
        if Instant::now() >= deadline {
            return Err(ConnectError::TimedOut(host.clone()));
        }
        Err(ConnectError::Unreachable(host.clone(), port))
    }

    /// Adds a connection that was made under `policy`, unless other rules that deny it hold by now.
    fn admit(
        &self,
        policy: &Arc<EgressPolicy>,
        target: Target<'_>,
        address: IpAddr,
        connection: &Connection,
    ) -> Result<(), ConnectError> {
        let to = Destination {
            host: target.host.clone(),
            port: target.port,
            address,
        };
        Ok(self.rules.admit(policy, to, connection.wire())?)
    }
}

/// A host to connect to.
#[derive(Debug, Clone, Copy)]
struct Target<'a> {
    host: &'a Host,
    port: u16,
    deadline: Instant,
}

/// Denies the host for a single denied address: an honest response does not mix public and private
/// addresses, and a hostile one relies on us trying them in turn.
fn check(
    policy: &EgressPolicy,
    host: &Host,
    port: u16,
    addresses: &[IpAddr],
    log: &AttemptLog,
) -> Result<(), ConnectError> {
    for address in addresses {
        if let Err(refusal) = check_address(policy, host, *address) {
            log.record(host, port, Some(*address), Verdict::Refused(refusal.clone()));
            return Err(ConnectError::Refused(refusal));
        }
    }
    Ok(())
}
