//! Shared parts of Telegram clients: introduction, retry delays, names of users.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use super::Error;
use super::api::{Api, CallError, From, Timeouts, Written};
use ringfence_gateway_protocol::{Secret, visible};
use ringfence_network::address::Address;

/// Initial and maximum retry delay.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(60)];
/// Delay after a poll without updates.
pub(super) const BREATH: Duration = Duration::from_millis(100);
/// Logs the ids of users who write to the bot, and of their chats.
///
/// # Errors
/// If the URL or the token is invalid, or another program receives the updates.
pub(crate) async fn tell_ids(base: &Address, token: Secret, log: impl Fn(&str)) -> Result<Infallible, Error> {
    let api = Api::open(base.as_str(), token, Timeouts::default()).await?;
    introduce(&api, &log).await?;
    let (mut next, mut pace) = (0, Pace::new());
    loop {
        let pause = match api.get_updates::<Written>(next).await {
            Ok((written, from)) => {
                next = from;
                pace.went_well();
                for Written { from, chat } in written {
                    log(&format!("{} writes in chat {}", name_of(&from), chat.id));
                }
                BREATH
            }
            Err(CallError::Token) => return Err(Error::Token),
            Err(CallError::Conflict(words)) => return Err(Error::Conflict(words)),
            Err(fault) => {
                log(&format!("{fault}; trying again"));
                pace.after(&fault)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Verifies the token, with retries until Telegram can be reached.
pub(super) async fn introduce(api: &Api, log: &impl Fn(&str)) -> Result<(), Error> {
    let mut pace = Pace::new();
    loop {
        match api.get_me().await {
            Ok(me) => {
                let name = visible(&me.username.unwrap_or_default());
                log(&format!("telegram knows this bot as @{name}"));
                return Ok(());
            }
            Err(CallError::Token) => return Err(Error::Token),
            Err(fault) => {
                log(&format!("{fault}; trying again"));
                tokio::time::sleep(pace.after(&fault)).await;
            }
        }
    }
}

/// Retry delays of a call.
#[derive(Debug)]
pub(super) struct Pace {
    pause: Duration,
    /// Time of the next attempt.
    pub(super) due: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            pause: PAUSES[0],
            due: Instant::now(),
        }
    }

    /// Returns the delay after this failure.
    pub(super) fn after(&mut self, fault: &CallError) -> Duration {
        let pause = match fault {
            CallError::Busy(wait) => *wait,
            _ => {
                let longer = (self.pause * 2).min(PAUSES[1]);
                std::mem::replace(&mut self.pause, longer)
            }
        };
        self.due = Instant::now() + pause;
        pause
    }

    pub(super) fn went_well(&mut self) {
        self.pause = PAUSES[0];
    }
}

/// Renders a user for others. The id cannot be chosen, and the user name is reduced to ASCII.
pub(super) fn name_of(person: &From) -> String {
    let name = person.username.as_deref().unwrap_or_default();
    let name: String = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .take(32)
        .collect();
    let name = if name.is_empty() {
        name
    } else {
        format!(" (@{name})")
    };
    format!("user {}{name}", person.id)
}
