//! Enforces the egress policy: the allowed hosts and their addresses.
//!
//! The guard returns connected streams, and knows no protocol: page fetches and guests' tunnels share it.

mod attempts;
mod connection;
pub mod outlet;
mod own;
pub mod proxy;
mod resolver;

#[cfg(test)]
mod tests;

pub use attempts::{Attempt, AttemptLog, Verdict};
pub use connection::Connection;
pub use outlet::{NetworkSettings, Outlet};
pub use resolver::Resolver;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use ringfence_policy::{EgressPolicy, Host, Refusal};
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

/// Limit of addresses per host that are tried. All of them are checked.
const MAX_TRIED: usize = 4;

/// A connector for hosts and addresses that a policy allows.
#[derive(Debug)]
pub struct Guard {
    policy: EgressPolicy,
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
        Self { policy, resolver }
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
        let addresses = match self.look_up(host, port, deadline).await {
            Ok(addresses) => addresses,
            Err(error) => {
                log.record(host, port, None, error.verdict());
                return Err(error);
            }
        };
        self.check(host, port, &addresses, log)?;
        dial(host, port, &addresses, deadline, log).await
    }

    async fn look_up(&self, host: &Host, port: u16, deadline: Instant) -> Result<Vec<IpAddr>, ConnectError> {
        self.policy.check_host(host, port)?;
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

    /// Denies the host for a single denied address: an honest response does not mix public and private
    /// addresses, and a hostile one relies on us trying them in turn.
    fn check(
        &self,
        host: &Host,
        port: u16,
        addresses: &[IpAddr],
        log: &AttemptLog,
    ) -> Result<(), ConnectError> {
        for address in addresses {
            if let Err(refusal) = self.check_one(host, *address) {
                log.record(host, port, Some(*address), Verdict::Refused(refusal.clone()));
                return Err(ConnectError::Refused(refusal));
            }
        }
        Ok(())
    }

    fn check_one(&self, host: &Host, address: IpAddr) -> Result<(), Refusal> {
        self.policy.check_address(host, address)?;
        if own::is_own(address) {
            self.policy.check_own_address(host, address)?;
        }
        Ok(())
    }
}

/// Tries the addresses in turn; each gets an equal share of the remaining time.
async fn dial(
    host: &Host,
    port: u16,
    addresses: &[IpAddr],
    deadline: Instant,
    log: &AttemptLog,
) -> Result<Connection, ConnectError> {
    let mut waiting = addresses.len().min(MAX_TRIED);
    for address in addresses.iter().take(MAX_TRIED) {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(waiting).unwrap_or(u32::MAX);
        waiting = waiting.saturating_sub(1).max(1);
        let connection = timeout(share, TcpStream::connect(SocketAddr::new(*address, port))).await;
        let verdict = match connection {
            Ok(Ok(stream)) => {
                log.record(host, port, Some(*address), Verdict::Connected);
                return Ok(log.counted(stream));
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
