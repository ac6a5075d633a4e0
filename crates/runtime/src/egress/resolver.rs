//! How names become addresses.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use ringfence_policy::HostName;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// How many names are looked up at once. Each look-up holds a thread until the system gives up on it, however soon its
/// caller does; whoever answers for a name can make that long. Files and measuring need threads too, where there are eight.
const MAX_LOOKUPS: usize = 4;

/// Looks names up. Clones share the bound on look-ups.
#[derive(Clone)]
pub struct Resolver(Way);

type Answer = dyn Fn(&HostName) -> Vec<IpAddr> + Send + Sync;

#[derive(Clone)]
enum Way {
    System(Arc<Semaphore>),
    Fixed(Arc<Answer>),
}

impl Resolver {
    /// As the system does it, with its hosts file and its search domains.
    pub fn system() -> Self {
        Self(Way::System(Arc::new(Semaphore::new(MAX_LOOKUPS))))
    }

    /// By a function that has the answer at hand.
    pub fn fixed(answer: impl Fn(&HostName) -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        Self(Way::Fixed(Arc::new(answer)))
    }

    /// All addresses of the name; none if it has none or the look-up fails.
    pub(crate) async fn resolve(&self, name: &HostName) -> Vec<IpAddr> {
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
