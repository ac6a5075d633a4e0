//! Connection to Discord's gateway, on which presses arrive; reconnects whenever it ends.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::rustls::RootCertStore;
use twilight_gateway::error::{ReceiveMessageError, ReceiveMessageErrorType};
use twilight_gateway::{ConfigBuilder, Intents, Message, Shard, ShardId, ShardState, StreamExt};
use twilight_model::gateway::CloseCode;

use super::Error;
use super::press::Press;
use crate::tls;
use ringfence_network::address::Address;
use ringfence_server::gateway::Secret;

/// Number of consecutive failures after which the retry delay is capped.
const MAX_FAILURES: u8 = 5;
/// Capped retry delay.
const PAUSE: Duration = Duration::from_secs(30);

/// A bot's connection to Discord's gateway.
#[derive(Debug)]
pub(super) struct Socket {
    shard: Shard,
    /// Earliest time of the next attempt.
    due: Option<Instant>,
    /// Set once the outage was reported.
    told: bool,
    token: Secret,
}

/// An event of the gateway.
#[derive(Debug)]
pub(super) enum Said {
    /// Connected: presses arrive.
    Ready,
    Press(Press),
    /// An outage; reported once until it is over.
    Trouble(String),
}

impl Socket {
    /// Creates a connection that is not open yet.
    pub(super) fn new(token: &Secret, gateway: &Address) -> Result<Self, Error> {
        usable_roots()?;
        tls::use_ring();
        // Interactions need no intent, and no other events are wanted.
        let config = ConfigBuilder::new(token.expose().to_owned(), Intents::empty())
            .proxy_url(gateway.as_str().to_owned())
            .build();
        Ok(Self {
            shard: Shard::with_config(ShardId::ONE, config),
            due: None,
            told: false,
            token: token.clone(),
        })
    }

    /// Waits for the next event. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Said, Error> {
        loop {
            if let Some(due) = self.due {
                sleep_until(due).await;
                self.due = None;
            }
            let said = match next(&mut self.shard).await {
                Some(Ok(Message::Text(event))) => self.take(&event),
                Some(Ok(Message::Close(frame))) => self.closed(frame.map(|frame| frame.code))?,
                Some(Err(error)) => self.failed(&error),
                None => return Err(closed(None)),
            };
            self.restrain();
            if let Some(said) = said {
                return Ok(said);
            }
        }
    }

    fn take(&mut self, event: &str) -> Option<Said> {
        let event: Event = serde_json::from_str(event).ok()?;
        match event.kind.as_deref() {
            Some("READY" | "RESUMED") => {
                self.told = false;
                Some(Said::Ready)
            }
            Some("INTERACTION_CREATE") => {
                Some(Press::of(event.data).map_or_else(not_understood, Said::Press))
            }
            _ => None,
        }
    }

    fn closed(&mut self, code: Option<u16>) -> Result<Option<Said>, Error> {
        if self.shard.state() == ShardState::FatallyClosed {
            return Err(closed(code));
        }
        let code = code.map(|code| format!(" (code {code})")).unwrap_or_default();
        Ok(self.trouble(&format!("it ended the connection{code}")))
    }

    fn failed(&mut self, error: &ReceiveMessageError) -> Option<Said> {
        match error.kind() {
            ReceiveMessageErrorType::Reconnect => {
                let source = std::error::Error::source(error).map(ToString::to_string);
                self.trouble(source.as_deref().unwrap_or("it cannot be reached"))
            }
            _ => Some(not_understood()),
        }
    }

    fn trouble(&mut self, what: &str) -> Option<Said> {
        let first = !std::mem::replace(&mut self.told, true);
        first.then(|| {
            let what = self.token.scrub(what);
            Said::Trouble(format!(
                "no connection to Discord's gateway: {what}; connecting again"
            ))
        })
    }

    /// Caps the retry delay, and discards a resume URL to which the token must not be sent.
    fn restrain(&mut self) {
        let ShardState::Disconnected { reconnect_attempts } = self.shard.state() else {
            return;
        };
        let stray = self
            .shard
            .resume_url()
            .is_some_and(|url| Address::websocket(url).is_err());
        if reconnect_attempts < MAX_FAILURES && !stray {
            return;
        }
        let mut config = ConfigBuilder::from(self.shard.config().clone());
        if let Some(session) = self.shard.session() {
            config = config.session(session.clone());
        }
        self.shard = Shard::with_config(ShardId::ONE, config.build());
        self.due = Some(Instant::now() + PAUSE);
    }
}

/// An event as sent by the gateway.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "t")]
    kind: Option<String>,
    #[serde(default, rename = "d")]
    data: Value,
}

/// Returns the next message. (`StreamExt` would be another dependency.)
async fn next<S: StreamExt + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

/// Without the content: an event contains the token for its response.
fn not_understood() -> Said {
    Said::Trouble("Discord's gateway sends a malformed message".to_owned())
}

/// Checks the machine's root certificates, which the library would otherwise panic about.
fn usable_roots() -> Result<(), Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    if found.certs.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        return Err(Error::Roots(why.unwrap_or_else(|| "there are none".to_owned())));
    }
    for certificate in found.certs {
        roots
            .add(certificate)
            .map_err(|error| Error::Roots(error.to_string()))?;
    }
    Ok(())
}

fn closed(code: Option<u16>) -> Error {
    let known = code.and_then(|code| CloseCode::try_from(code).ok());
    match known {
        Some(CloseCode::AuthenticationFailed) => Error::Token,
        _ => Error::Closed {
            reason: known.map_or_else(
                || "no reason".to_owned(),
                |known| known.to_string().to_lowercase(),
            ),
            code: code.unwrap_or_default(),
        },
    }
}
