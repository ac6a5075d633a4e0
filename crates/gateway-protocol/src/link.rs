//! A gateway's connection to the server; reconnects whenever it ends.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::{Client, FromGateway, FromServer, VERSION};

/// Initial and maximum retry delay.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// A gateway's connection to the server, across restarts of the server.
#[derive(Debug)]
pub struct Link {
    socket: PathBuf,
    hello: FromGateway,
    client: Option<Client>,
    pause: Duration,
    /// Time of the next attempt.
    due: Instant,
    /// Set once the outage was reported.
    told: bool,
}

#[derive(Debug)]
pub enum LinkEvent {
    /// Connected; pending requests will be sent again.
    Connected,
    /// A message of the server.
    Said(Box<FromServer>),
    /// Disconnected. Pending requests remain in the store.
    Gone,
    /// An outage; reported once until it is over.
    Unreachable(io::Error),
}

impl Link {
    /// Creates a link to the server's socket, for the gateway `name` of these chats; empty means all.
    pub fn new(socket: PathBuf, chats: &BTreeSet<String>, name: &str) -> Self {
        Self {
            socket,
            hello: FromGateway::Hello {
                version: VERSION,
                chats: (!chats.is_empty()).then(|| chats.clone()),
                name: Some(name.to_owned()),
            },
            client: None,
            pause: PAUSES[0],
            due: Instant::now(),
            told: false,
        }
    }

    /// Waits for the next event. Cancel safe.
    pub async fn next(&mut self) -> LinkEvent {
        if let Some(client) = &mut self.client {
            return match client.next().await {
                Ok(Some(message)) => LinkEvent::Said(Box::new(message)),
                Ok(None) | Err(_) => self.lost(),
            };
        }
        loop {
            tokio::time::sleep_until(self.due).await;
            match self.connect().await {
                Ok(client) => {
                    self.client = Some(client);
                    (self.pause, self.told) = (PAUSES[0], false);
                    return LinkEvent::Connected;
                }
                Err(error) => {
                    self.due = Instant::now() + self.pause;
                    self.pause = (self.pause * 2).min(PAUSES[1]);
                    if !std::mem::replace(&mut self.told, true) {
                        return LinkEvent::Unreachable(error);
                    }
                }
            }
        }
    }

    /// Sends a message. Returns `false` if no server is connected.
    pub async fn say(&mut self, message: &FromGateway) -> bool {
        match &mut self.client {
            Some(client) => client.say(message).await.is_ok(),
            None => false,
        }
    }

    async fn connect(&self) -> io::Result<Client> {
        let mut client = Client::connect(&self.socket).await?;
        client.say(&self.hello).await?;
        Ok(client)
    }

    fn lost(&mut self) -> LinkEvent {
        self.client = None;
        self.due = Instant::now() + self.pause;
        LinkEvent::Gone
    }
}
