//! One guest's way out, wherever that guest is.

use std::fmt;
use std::sync::Arc;

use ringfence_policy::{EgressFacts, EgressPolicy, EnvName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use super::proxy::{Injection, Proxy};
use super::{AttemptLog, Guard, Resolver};
use crate::fetch::Trust;

/// What programs look up to learn of a proxy; some know only one of the two spellings. The last one is ours alone: a
/// caller may set all others to something else.
const ADDRESS_VARIABLES: &[&str] = &[
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "RINGFENCE_PROXY",
];

/// Node looks at these variables only where it is told to.
const NODE: (&str, &str) = ("NODE_USE_ENV_PROXY", "1");

/// What the ways out of all guests have in common.
#[derive(Clone)]
pub struct NetworkSettings {
    /// How names become addresses.
    pub resolver: Resolver,
    /// Whose certificates are believed where a credential is added.
    pub trust: Arc<Trust>,
    /// Credentials that guests use and never see.
    pub injections: Vec<Injection>,
}

/// The same for the same settings, in any process and at any time.
impl fmt::Debug for NetworkSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resolver: _,
            trust,
            injections,
        } = self;
        f.debug_struct("NetworkSettings")
            .field("authorities", &trust.own())
            .field("injections", injections)
            .finish_non_exhaustive()
    }
}

/// One guest's way out: a proxy, and what was tried on it.
#[derive(Debug, Clone)]
pub struct Outlet {
    proxy: Arc<Proxy>,
    log: Arc<AttemptLog>,
}

impl Outlet {
    /// One that leads to what `policy` allows.
    pub fn new(policy: &EgressPolicy, settings: &NetworkSettings) -> Self {
        let guard = Guard::new(policy.clone(), settings.resolver.clone());
        let proxy = Proxy::new(guard, Arc::clone(&settings.trust), settings.injections.clone());
        Self {
            proxy: Arc::new(proxy),
            log: Arc::default(),
        }
    }

    /// Serves whoever connects, until it is dropped.
    pub async fn listen(self, listener: TcpListener) {
        self.proxy.listen(listener, self.log).await;
    }

    /// Serves one connection of the guest to its end.
    pub async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.proxy.serve(stream, &self.log).await;
    }

    /// What was tried.
    pub fn facts(&self) -> EgressFacts {
        self.log.facts()
    }
}

/// The variables that tell a program where the proxy is, but for those that its caller has set.
pub(crate) fn address_variables(is_set: impl Fn(&str) -> bool) -> Vec<EnvName> {
    let (last, usual) = ADDRESS_VARIABLES.split_last().unwrap_or((&"", &[]));
    let free = usual.iter().filter(|name| !is_set(name)).chain([last]);
    free.filter_map(|name| name.parse().ok()).collect()
}

/// A variable that is set beside these, unless the caller has set it.
pub(crate) fn node_variable(is_set: impl Fn(&str) -> bool) -> Option<(EnvName, String)> {
    let (name, value) = NODE;
    let name = name.parse().ok().filter(|_| !is_set(name))?;
    Some((name, value.to_owned()))
}
