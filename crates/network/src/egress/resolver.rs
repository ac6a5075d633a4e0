//! Resolves host names.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use ringfence_policy::HostName;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Limit of concurrent look-ups. Each blocks a thread until the system's timeout, even if its caller has
/// timed out earlier, and a hostile name server can cause that. Files and disk monitoring need some of the
/// eight threads, too.
const MAX_LOOKUPS: usize = 4;

/// A resolver of host names. Clones share the limit of look-ups.
#[derive(Clone)]
pub struct Resolver(Way);

type Answer = dyn Fn(&HostName) -> Vec<IpAddr> + Send + Sync;

#[derive(Clone)]
enum Way {
    System(Arc<Semaphore>),
    Fixed(Arc<Answer>),
}

impl Resolver {
    /// Uses the system's resolver, with its hosts file and search domains.
    pub fn system() -> Self {
        Self(Way::System(Arc::new(Semaphore::new(MAX_LOOKUPS))))
    }

    /// Uses a function.
    pub fn fixed(answer: impl Fn(&HostName) -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        Self(Way::Fixed(Arc::new(answer)))
    }

    /// Returns all addresses of the name; none if it does not exist or the look-up fails.
    pub async fn resolve(&self, name: &HostName) -> Vec<IpAddr> {
        let lookups = match &self.0 {
            Way::System(lookups) => Arc::clone(lookups),
            Way::Fixed(answer) => return answer(name),
        };
        let Ok(turn) = lookups.acquire_owned().await else {
            return Vec::new();
        };
        let name = name.clone();
        let found = spawn_blocking(move || {
            let _turn = turn;
            (name.as_str(), 0).to_socket_addrs()
        });
        match found.await {
            Ok(Ok(addresses)) => addresses.map(|address| address.ip()).collect(),
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Way::System(_) => "Resolver::system",
            Way::Fixed(_) => "Resolver::fixed",
        })
    }
}
