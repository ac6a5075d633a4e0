//! The way out of a guest that may reach some hosts.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringfence_policy::{EgressFacts, EgressPolicy, Network, Request};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::layout::{Places, proxy_variables};
use super::{Error, Fence};
use crate::egress::proxy::{Injection, Proxy};
use crate::egress::{AttemptLog, Guard, Resolver};
use crate::fetch::Trust;

/// What the ways out of all guests have in common.
#[derive(Debug, Clone)]
pub struct NetworkSettings {
    /// How names become addresses.
    pub resolver: Resolver,
    /// Whose certificates are believed where a credential is added.
    pub trust: Arc<Trust>,
    /// Credentials that guests use and never see.
    pub injections: Vec<Injection>,
}

/// One guest's way out. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Outlet {
    log: Arc<AttemptLog>,
    proxy: JoinSet<()>,
}

impl Outlet {
    /// Serves what connects to the listener in a guest's cell.
    pub(super) fn open(
        policy: &EgressPolicy,
        listener: Option<OwnedFd>,
        settings: &NetworkSettings,
    ) -> Result<Self, Error> {
        let listener = std::net::TcpListener::from(listener.ok_or(Error::LauncherGone)?);
        listener.set_nonblocking(true).map_err(Error::Pipes)?;
        let listener = TcpListener::from_std(listener).map_err(Error::Pipes)?;
        let guard = Guard::new(policy.clone(), settings.resolver.clone());
        let proxy = Proxy::new(guard, Arc::clone(&settings.trust), settings.injections.clone());
        let log = Arc::new(AttemptLog::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::new(proxy).listen(listener, Arc::clone(&log)));
        Ok(Self { log, proxy: tasks })
    }

    /// Closes it, and says what was tried.
    pub(super) async fn close(mut self) -> EgressFacts {
        self.proxy.shutdown().await;
        self.log.facts()
    }
}

/// That a request with a network gets one that leads through the proxy alone, or is not run.
pub(super) fn check(request: &Request, fence: Fence) -> Result<(), Error> {
    match request.network {
        Network::None => Ok(()),
        Network::Allowlist(_) if request.session.is_some() => Err(Error::NetworkOfSession),
        Network::Allowlist(_) if fence.is_none() => Err(NEEDS_CELL),
        Network::Allowlist(_) => Ok(()),
    }
}

/// The request with the variables by which its program finds the proxy, where it may. What the caller set holds.
pub(super) fn equipped(request: &Request) -> Cow<'_, Request> {
    if request.network == Network::None {
        return Cow::Borrowed(request);
    }
    let mut equipped = request.clone();
    let known = |name: &str| request.env.iter().any(|(other, _)| other.as_str() == name);
    let variables = proxy_variables().into_iter();
    let added =
        variables.filter_map(|(name, value)| Some((name.parse().ok()?, value)).filter(|_| !known(&name)));
    equipped.env.extend(added);
    Cow::Owned(equipped)
}

/// That the guest of a request with a network has one of its own.
pub(super) fn check_places(request: &Request, places: &Places) -> Result<(), Error> {
    match (&request.network, places) {
        (Network::Allowlist(_), Places::Directory(_)) => Err(NEEDS_CELL),
        _ => Ok(()),
    }
}

const NEEDS_CELL: Error = Error::NeedsNamespaces {
    what: "a network that reaches the allowed hosts alone",
};
