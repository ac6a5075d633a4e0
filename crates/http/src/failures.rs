//! Counts requests with wrong credentials, in all and by peer.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::refusal::RETRY_AFTER;

/// Number of failures of all peers in [`RETRY_AFTER`] seconds after which answers ask to wait.
const MAX: u32 = 30;

/// Number of failures in [`WINDOW_OF_PEER`] after which a peer's guesses are not answered with the result.
const MAX_OF_PEER: u32 = 10;
const WINDOW_OF_PEER: Duration = Duration::from_secs(60);

/// Maximum number of peers that are counted apart. Further ones are counted as one.
const MAX_PEERS: usize = 1024;
const FURTHER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The address of a connection's other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// Failures since a point in time.
#[derive(Debug)]
pub struct Failures(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    all: Window,
    peers: HashMap<IpAddr, Window>,
    /// Lockouts of peers that were reported.
    reports: Window,
}

/// Lockouts of peers that are reported a minute: an attacker with many addresses fills no log.
const MAX_REPORTS: u32 = 10;

/// The effect of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Set if there were too many failures of all peers: a guesser must wait.
    pub is_one_too_many: bool,
    pub lockout: Option<Lockout>,
}

/// The begin of a time in which failures have consequences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lockout {
    /// The peer does not learn whether a guess at a weak key is right.
    OfPeer(IpAddr),
    /// Answers to wrong keys ask to wait.
    OfAll,
}

impl fmt::Display for Lockout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfPeer(peer) => write!(
                f,
                "{MAX_OF_PEER} requests within {} s came from {peer} without a right key: a key that can be guessed does not open \
                 anything to it until then",
                WINDOW_OF_PEER.as_secs()
            ),
            Self::OfAll => write!(
                f,
                "more than {MAX} requests within {RETRY_AFTER} s came without a right key: until then the answers to such ask to wait"
            ),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    count: u32,
}

impl Window {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            count: 0,
        }
    }

    fn add(&mut self, length: Duration) -> u32 {
        if self.since.elapsed() >= length {
            *self = Self::new();
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

impl Default for Failures {
    fn default() -> Self {
        Self(Mutex::new(Counts {
            all: Window::new(),
            peers: HashMap::new(),
            reports: Window::new(),
        }))
    }
}

impl Failures {
    /// Counts a failure. Valid credentials are never counted, so that no client is refused because of others.
    pub fn add(&self, peer: Option<PeerAddress>) -> Failed {
        let mut counts = self.lock();
        let mut lockout = None;
        if let Some(PeerAddress(address)) = peer {
            let network = network(address);
            if counts.of(network).add(WINDOW_OF_PEER) == MAX_OF_PEER
                && counts.reports.add(WINDOW_OF_PEER) <= MAX_REPORTS
            {
                lockout = Some(Lockout::OfPeer(network));
            }
        }
        let all = counts.all.add(Duration::from_secs(RETRY_AFTER));
        Failed {
            is_one_too_many: all > MAX,
            lockout: match all == MAX + 1 {
                true => Some(Lockout::OfAll),
                false => lockout,
            },
        }
    }

    /// Returns `true` if a peer has failed so often that it may be guessing.
    pub fn guesses(&self, peer: Option<PeerAddress>) -> bool {
        let Some(PeerAddress(address)) = peer else {
            return false;
        };
        let counts = self.lock();
        let own = counts.peers.get(&network(address));
        let window = own.or_else(|| counts.peers.get(&FURTHER));
        window.is_some_and(|window| window.count >= MAX_OF_PEER && window.since.elapsed() < WINDOW_OF_PEER)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn of(&mut self, peer: IpAddr) -> &mut Window {
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&peer) {
            self.peers
                .retain(|_, window| window.since.elapsed() < WINDOW_OF_PEER);
        }
        let is_counted_apart = self.peers.len() < MAX_PEERS || self.peers.contains_key(&peer);
        let peer = if is_counted_apart { peer } else { FURTHER };
        self.peers.entry(peer).or_insert_with(Window::new)
    }
}

/// Returns the address by which peers are counted: an IPv4 address, or the network of a site (/48) of an IPv6
/// one, since one peer hardly has several. This machine's loopback addresses, of which there are 16 million,
/// count as one.
fn network(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    if address.is_loopback() {
        return Ipv4Addr::LOCALHOST.into();
    }
    match address {
        IpAddr::V6(address) => {
            let site = u128::from(address) >> 80 << 80;
            Ipv6Addr::from(site).into()
        }
        IpAddr::V4(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Option<PeerAddress> {
        Some(PeerAddress(address.parse().unwrap()))
    }

    #[test]
    fn a_guesser_is_known_and_no_other_peer_is_taken_for_it() {
        let failures = Failures::default();
        for _ in 0..MAX_OF_PEER {
            assert!(!failures.guesses(peer("192.0.2.1")));
            failures.add(peer("::ffff:192.0.2.1"));
            failures.add(peer("2001:db8::1"));
        }
        assert!(failures.guesses(peer("192.0.2.1")) && failures.guesses(peer("2001:db8::2")));
        assert!(!failures.guesses(peer("192.0.2.2")) && !failures.guesses(peer("2001:db8:1::1")));
        assert!(!failures.guesses(None));
        for address in 1..=MAX_OF_PEER {
            failures.add(peer(&format!("127.0.0.{address}")));
        }
        assert!(failures.guesses(peer("127.1.2.3")) && failures.guesses(peer("::1")));
        for window in failures.lock().peers.values_mut() {
            window.since -= WINDOW_OF_PEER;
        }
        assert!(!failures.guesses(peer("192.0.2.1")));
    }

    #[test]
    fn many_peers_take_no_more_room_and_are_counted() {
        let failures = Failures::default();
        for number in 1..=2 * MAX_PEERS as u32 {
            failures.add(Some(PeerAddress(Ipv4Addr::from(number).into())));
        }
        assert_eq!(failures.lock().peers.len(), MAX_PEERS + 1);
        // Those that found no room count together.
        assert!(failures.guesses(peer("192.0.2.1")) && !failures.guesses(peer("0.0.0.1")));
    }

    #[test]
    fn a_lockout_is_reported_once_and_few_are_in_a_minute() {
        let failures = Failures::default();
        let mut reported = Vec::new();
        for number in 0..2 * MAX_REPORTS {
            for _ in 0..2 * MAX_OF_PEER {
                let failed = failures.add(peer(&format!("192.0.2.{number}")));
                reported.extend(failed.lockout);
            }
        }
        let of_all = reported.iter().filter(|lockout| **lockout == Lockout::OfAll);
        assert_eq!((of_all.count(), reported.len()), (1, MAX_REPORTS as usize + 1));
        assert!(
            reported[0]
                .to_string()
                .starts_with("10 requests within 60 s came from 192.0.2.0")
        );
    }

    #[test]
    fn too_many_failures_are_told() {
        let failures = Failures::default();
        let told = (0..=MAX).filter(|_| failures.add(None).is_one_too_many).count();
        assert_eq!(told, 1);
    }
}
