//! Provides a guest's egress outlet: a proxy and its log, independent of the runtime.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_policy::{EgressFacts, EgressPolicy, EnvName};
use serde::{Serialize, Serializer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use super::proxy::{Injection, Proxy};
use super::{AttemptLog, Guard, Resolver};
use crate::fetch::Trust;

/// Environment variables for the proxy's address. Some programs read only one of the two spellings. The last
/// one is Ringfence's own: a caller may override all others.
const ADDRESS_VARIABLES: &[&str] = &[
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "RINGFENCE_PROXY",
];

/// Node.js honours the proxy variables only if this one is set.
const NODE: (&str, &str) = ("NODE_USE_ENV_PROXY", "1");

/// Egress settings shared by all guests.
#[derive(Clone)]
pub struct NetworkSettings {
    pub resolver: Resolver,
    /// Trusted certificate authorities for requests with injected credentials.
    pub trust: Arc<Trust>,
    /// Credentials that guests can use but never see.
    pub injections: Vec<Injection>,
}

/// Serialises the settings that determine how a guest reaches hosts, without credentials.
impl Serialize for NetworkSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.trust.own(), &self.injections).serialize(serializer)
    }
}

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

/// A guest's egress outlet: a proxy, and the log of its attempts.
#[derive(Debug, Clone)]
pub struct Outlet {
    proxy: Arc<Proxy>,
    log: Arc<AttemptLog>,
    has_led: Arc<AtomicBool>,
}

impl Outlet {
    /// Creates an outlet for `policy`.
    pub fn new(policy: &EgressPolicy, settings: &NetworkSettings) -> Self {
        let guard = Guard::new(policy.clone(), settings.resolver.clone());
        let proxy = Proxy::new(guard, Arc::clone(&settings.trust), settings.injections.clone());
        Self {
            proxy: Arc::new(proxy),
            log: Arc::default(),
            has_led: Arc::new(AtomicBool::new(!policy.allowed.is_empty())),
        }
    }

    /// Replaces the policy. Connections that the new one denies are closed before this returns.
    pub fn replace(&self, policy: &EgressPolicy) {
        self.has_led
            .fetch_or(!policy.allowed.is_empty(), Ordering::AcqRel);
        self.proxy.replace(policy.clone());
    }

    /// Returns `true` if it leads to a host, or did. Before, guests are told of no proxy: it would be in the way from program to
    /// program. After it, its refusals say more than a proxy that is not there.
    pub fn has_led(&self) -> bool {
        self.has_led.load(Ordering::Acquire)
    }

    /// Accepts and serves connections until dropped.
    pub async fn listen(self, listener: TcpListener) {
        self.proxy.listen(listener, self.log).await;
    }

    /// Serves one connection of the guest until it ends.
    pub async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.proxy.serve(stream, &self.log).await;
    }

    /// Returns the number of bytes that were sent to hosts and received from them so far.
    pub fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Returns the recorded attempts.
    pub fn facts(&self) -> EgressFacts {
        self.log.facts()
    }
}

/// Returns the names of the proxy variables to set: all that the caller has not set.
pub fn address_variables(is_set: impl Fn(&str) -> bool) -> Vec<EnvName> {
    let (last, usual) = ADDRESS_VARIABLES.split_last().unwrap_or((&"", &[]));
    let free = usual.iter().filter(|name| !is_set(name)).chain([last]);
    free.filter_map(|name| name.parse().ok()).collect()
}

/// Returns the variable that enables them in Node.js, unless the caller has set it.
pub fn node_variable(is_set: impl Fn(&str) -> bool) -> Option<(EnvName, String)> {
    let (name, value) = NODE;
    let name = name.parse().ok().filter(|_| !is_set(name))?;
    Some((name, value.to_owned()))
}
