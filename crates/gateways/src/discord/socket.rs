//! Connection to Discord's gateway, on which presses arrive; reconnects whenever it ends.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Error;
use super::session::{End, Event, Sessions};
use ringfence_gateway_protocol::Secret;
use ringfence_network::address::Address;
use ringfence_network::fetch::Trust;

/// Longest pause between attempts to connect.
const LONGEST: Duration = Duration::from_secs(30);
/// Number of unread events.
const WAITING: usize = 32;

/// A bot's connection to Discord's gateway.
#[derive(Debug)]
pub(super) struct Socket {
    events: mpsc::Receiver<Result<Event, Error>>,
    /// Connects again and again. Aborted on drop.
    _task: JoinSet<()>,
}

impl Socket {
    /// Starts to connect. Must be called within a runtime.
    ///
    /// # Errors
    /// If this machine has no certificate authorities.
    pub(super) async fn open(token: &Secret, gateway: &Address) -> Result<Self, Error> {
        let trust = Trust::default();
        let known = trust.config().await;
        known.map_err(|error| Error::Roots(error.to_string()))?;
        let (events, receiver) = mpsc::channel(WAITING);
        let connecting = Connecting {
            sessions: Sessions::new(token.clone(), gateway.clone(), trust),
            token: token.clone(),
            events,
        };
        let mut task = JoinSet::new();
        task.spawn(connecting.work());
        Ok(Self {
            events: receiver,
            _task: task,
        })
    }

    /// Waits for the next event. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Event, Error> {
        self.events.recv().await.unwrap_or_else(|| Err(closed(None)))
    }
}

/// The task that connects again and again.
struct Connecting {
    sessions: Sessions,
    token: Secret,
    events: mpsc::Sender<Result<Event, Error>>,
}

impl Connecting {
    async fn work(mut self) {
        let mut failures = 0;
        let mut told = false;
        while !self.events.is_closed() {
            let end = self.sessions.converse(&self.events).await;
            if self.sessions.was_ready() {
                (failures, told) = (0, false);
            }
            let what = match end {
                End::Closed(Some(code)) if is_fatal(code) => {
                    let _ = self.events.send(Err(closed(Some(code)))).await;
                    return;
                }
                End::Closed(Some(code)) => format!("it ended the connection (code {code})"),
                End::Closed(None) => "it ended the connection".to_owned(),
                End::Lost(why) => why,
            };
            if !std::mem::replace(&mut told, true) {
                let what = self.token.scrub(&what);
                let trouble = format!("no connection to Discord's gateway: {what}; connecting again");
                let _ = self.events.send(Ok(Event::Trouble(trouble))).await;
            }
            tokio::time::sleep(pause(failures)).await;
            failures += 1;
        }
    }
}

/// Returns the pause after a number of failures since the last connection.
fn pause(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        _ => Duration::from_secs(1 << (failures - 1).min(5)).min(LONGEST),
    }
}

/// Returns the reason of a close code after which no connection is accepted, by Discord's list.
const fn fatal(code: u16) -> Option<&'static str> {
    match code {
        4004 => Some("authentication failed"),
        4010 => Some("invalid shard"),
        4011 => Some("sharding required"),
        4012 => Some("invalid api version"),
        4013 => Some("invalid intents"),
        4014 => Some("disallowed intents"),
        _ => None,
    }
}

const fn is_fatal(code: u16) -> bool {
    fatal(code).is_some()
}

fn closed(code: Option<u16>) -> Error {
    match code {
        Some(4004) => Error::Token,
        code => Error::Closed {
            reason: code.and_then(fatal).unwrap_or("no reason").to_owned(),
            code: code.unwrap_or_default(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let pauses: Vec<u64> = (0..8).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(pause(u32::MAX), LONGEST);
    }
}
