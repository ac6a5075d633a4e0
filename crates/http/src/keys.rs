//! Credentials of the HTTP interface: they exist only in the memory of one server process.
//!
//! A ticket is part of the console's address; a browser exchanges it once for a session key.

use std::collections::VecDeque;
use std::fmt;
use std::hint::black_box;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::rand::{GetRandomFlags, getrandom};

/// 256 random bits in hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

const BYTES: usize = 32;

const TICKET_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Maximum number of unused tickets; a new one evicts the oldest.
const MAX_TICKETS: usize = 16;

impl Secret {
    pub(crate) fn random() -> Result<Self, NoRandom> {
        random_hex(2 * BYTES).map(Self).map_err(NoRandom)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, given: &str) -> bool {
        if given.len() != self.0.len() {
            return false;
        }
        let pairs = self.0.bytes().zip(given.bytes());
        let difference = pairs.fold(0, |difference, (ours, theirs)| {
            black_box(difference | (ours ^ theirs))
        });
        black_box(difference) == 0
    }
}

/// Returns random hexadecimal digits, at most 64.
pub fn random_hex(digits: usize) -> io::Result<String> {
    let mut bytes = [0; BYTES];
    if getrandom(&mut bytes, GetRandomFlags::empty())? != BYTES {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.truncate(digits);
    Ok(hex)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The kernel returned no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("cannot get random bytes for the console")]
pub struct NoRandom(#[source] io::Error);

/// Credentials of one server process: the token of programs, and the tickets of links.
///
/// Neither is written to a file: copies in a browser's history, a terminal or a log are useless for a later
/// server.
#[derive(Debug, Clone)]
pub struct Keys(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    token: Secret,
    /// Oldest first.
    tickets: Mutex<VecDeque<Ticket>>,
}

#[derive(Debug)]
struct Ticket {
    secret: Secret,
    since: Instant,
}

impl Keys {
    /// Creates new credentials.
    ///
    /// # Errors
    /// If the kernel returns no random bytes.
    pub fn new() -> Result<Self, NoRandom> {
        Ok(Self(Arc::new(Inner {
            token: Secret::random()?,
            tickets: Mutex::default(),
        })))
    }

    /// Returns the token, which programs send with each request.
    pub fn token(&self) -> &str {
        self.0.token.as_str()
    }

    /// Issues a ticket for one link: a browser can exchange it for a session, once, within ten minutes.
    ///
    /// # Errors
    /// If the kernel returns no random bytes.
    pub fn ticket(&self) -> Result<String, NoRandom> {
        let secret = Secret::random()?;
        let text = secret.as_str().to_owned();
        let mut tickets = self.0.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        if tickets.len() == MAX_TICKETS {
            tickets.pop_front();
        }
        tickets.push_back(Ticket {
            secret,
            since: Instant::now(),
        });
        Ok(text)
    }

    pub(crate) fn is_token(&self, given: &str) -> bool {
        self.0.token.is(given)
    }

    /// Redeems a ticket, if it exists; a ticket can be redeemed once.
    pub(crate) fn take(&self, given: &str, now: Instant) -> bool {
        let mut tickets = self.0.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.retain(|ticket| now.saturating_duration_since(ticket.since) < TICKET_LIFETIME);
        let found = tickets.iter().position(|ticket| ticket.secret.is(given));
        found.and_then(|at| tickets.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_not_for_long() {
        let keys = Keys::new().unwrap();
        let now = Instant::now();
        let ticket = keys.ticket().unwrap();
        assert!(!keys.take(keys.token(), now));
        assert!(!keys.take("", now));
        assert!(keys.take(&ticket, now));
        assert!(!keys.take(&ticket, now));
        let late = keys.ticket().unwrap();
        assert!(!keys.take(&late, Instant::now() + TICKET_LIFETIME));
        assert!(!keys.is_token(&late));
        assert_ne!(Keys::new().unwrap().token(), keys.token());
    }

    #[test]
    fn there_are_only_so_many_tickets() {
        let keys = Keys::new().unwrap();
        let tickets: Vec<String> = (0..=MAX_TICKETS).map(|_| keys.ticket().unwrap()).collect();
        let good = |ticket: &&String| keys.take(ticket, Instant::now());
        assert_eq!(tickets.iter().filter(good).count(), MAX_TICKETS);
        assert!(format!("{keys:?}").contains("token: Secret"));
    }

    #[test]
    fn only_the_whole_secret_is_the_secret() {
        let secret = Secret::random().unwrap();
        let text = secret.as_str();
        assert!(secret.is(text));
        assert_eq!(text.len(), 64);
        assert_ne!(Secret::random().unwrap(), secret);
        for other in [
            "",
            &text[..63],
            &format!("{text}0"),
            &text.replace(&text[63..], "g"),
            &"0".repeat(64),
        ] {
            assert!(!secret.is(other), "{other}");
        }
    }
}
