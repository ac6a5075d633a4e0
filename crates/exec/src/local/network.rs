//! The network of a guest that may reach some hosts.

use std::borrow::Cow;
use std::os::fd::OwnedFd;

use ringfence_policy::{EgressFacts, EgressPolicy, EnvName, Network, Request};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::error::Error;
use super::layout::{PROXY_PORT, RETRIES, WritableDirs};
use super::settings::Fence;
use ringfence_network::egress::outlet::{NetworkSettings, Outlet, address_variables, node_variable};

/// The proxy listener of one cell. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Exit {
    outlet: Outlet,
    serving: JoinSet<()>,
}

impl Exit {
    /// Serves connections to the listener in a guest's cell.
    pub(super) fn new(
        policy: &EgressPolicy,
        listener: Option<OwnedFd>,
        settings: &NetworkSettings,
    ) -> Result<Self, Error> {
        let listener = std::net::TcpListener::from(listener.ok_or(Error::LauncherGone)?);
        listener.set_nonblocking(true).map_err(Error::Pipes)?;
        let listener = TcpListener::from_std(listener).map_err(Error::Pipes)?;
        let outlet = Outlet::new(policy, settings);
        let mut serving = JoinSet::new();
        serving.spawn(outlet.clone().listen(listener));
        Ok(Self { outlet, serving })
    }

    /// Returns the number of bytes that were sent to hosts and received from them so far.
    pub(super) fn bytes(&self) -> u64 {
        self.outlet.bytes()
    }

    /// Replaces the policy. Connections that the new one denies are closed before this returns.
    pub(super) fn replace(&self, policy: &EgressPolicy) {
        self.outlet.replace(policy);
    }

    /// Closes the proxy, and returns the recorded connection attempts.
    pub(super) async fn close(mut self) -> EgressFacts {
        self.serving.shutdown().await;
        self.outlet.facts()
    }
}

/// Rejects a request with a network that could not be confined to the proxy.
pub(super) fn check(request: &Request, fence: Fence) -> Result<(), Error> {
    match request.network {
        Network::None => Ok(()),
        Network::Allowlist(_) if request.session.is_some() => Err(Error::NetworkOfSession),
        Network::Allowlist(_) if fence.is_none() => Err(NEEDS_CELL),
        Network::Allowlist(_) => Ok(()),
    }
}

/// Adds the variables by which a program with a network finds the proxy and tries again. Variables set by the caller take
/// precedence.
pub(super) fn equipped(request: &Request) -> Cow<'_, Request> {
    if request.network == Network::None {
        return Cow::Borrowed(request);
    }
    let mut equipped = request.clone();
    equipped.env.extend(variables(request));
    Cow::Owned(equipped)
}

/// Returns the variables of [`equipped`], without those that the caller has set.
pub(super) fn variables(request: &Request) -> Vec<(EnvName, String)> {
    let known = |name: &str| request.env.iter().any(|(other, _)| other.as_str() == name);
    let address = format!("http://127.0.0.1:{PROXY_PORT}");
    let addresses = address_variables(known).into_iter();
    let added = addresses.map(|name| (name, address.clone()));
    let retries = RETRIES.iter().filter(|retries| !known(retries.name));
    let retries =
        retries.filter_map(|retries| Some((retries.name.parse().ok()?, retries.with_network.to_owned())));
    added
        .chain(node_variable(known))
        .chain(retries)
        .chain(pip_variable(known))
        .collect()
}

/// Returns the variable that lets pip install for the Python of a distribution (PEP 668): a guest changes its own files alone.
fn pip_variable(known: impl Fn(&str) -> bool) -> Option<(EnvName, String)> {
    const NAME: &str = "PIP_BREAK_SYSTEM_PACKAGES";
    let name = NAME.parse().ok().filter(|_| !known(NAME))?;
    Some((name, "1".to_owned()))
}

/// Checks that the guest of a request with a network has a cell, and thus a network of its own.
pub(super) fn check_dirs(request: &Request, dirs: &WritableDirs) -> Result<(), Error> {
    match (&request.network, dirs) {
        (Network::Allowlist(_), WritableDirs::Directory(_)) => Err(NEEDS_CELL),
        (Network::None, _) | (Network::Allowlist(_), WritableDirs::Cell) => Ok(()),
    }
}

const NEEDS_CELL: Error = Error::NeedsNamespaces {
    what: "a network limited to allowed hosts",
};

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::Language;

    #[test]
    fn a_network_has_variables_that_the_caller_may_replace() {
        let mut request = Request::new(Language::Bash, "");
        assert_eq!(equipped(&request).env, []);
        request.network = Network::loopback();
        request.env = vec![("PIP_RETRIES".parse().unwrap(), "9".to_owned())];
        let equipped = equipped(&request);
        let of = |wanted: &str| {
            let found = equipped.env.iter().filter(|(name, _)| name.as_str() == wanted);
            found.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of("PIP_RETRIES"), ["9"]);
        assert_eq!(of("npm_config_fetch_retries"), ["2"]);
        assert_eq!(of("PIP_BREAK_SYSTEM_PACKAGES"), ["1"]);
        assert_eq!(of("HTTPS_PROXY"), [format!("http://127.0.0.1:{PROXY_PORT}")]);
    }
}
