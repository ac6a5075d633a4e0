//! A gateway's link to the engine, made again whenever it ends.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use super::{Client, FromEngine, FromGateway, VERSION};

/// The first pause before the engine is tried again, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// A gateway's link to the engine, and to the next one after its end.
#[derive(Debug)]
pub struct Link {
    socket: PathBuf,
    hello: FromGateway,
    client: Option<Client>,
    pause: Duration,
    /// When the engine is tried next.
    due: Instant,
    /// Whether it has been told that no engine answers.
    told: bool,
}

/// What there is to know about the engine.
#[derive(Debug)]
pub enum News {
    /// It answers; what waits will be sent again.
    Connected,
    /// It says something.
    Said(Box<FromEngine>),
    /// It has gone. What waits is kept.
    Gone,
    /// It does not answer; told once until it does.
    Unreachable(io::Error),
}

impl Link {
    /// A link to the engine whose socket this is, for the gateway `name` of these chats; all if there are none.
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

    /// Waits until there is something to know. Dropping a call and calling again loses nothing.
    pub async fn next(&mut self) -> News {
        if let Some(client) = &mut self.client {
            return match client.next().await {
                Ok(Some(message)) => News::Said(Box::new(message)),
                Ok(None) | Err(_) => self.lost(),
            };
        }
        loop {
            tokio::time::sleep_until(self.due).await;
            match self.connect().await {
                Ok(client) => {
                    self.client = Some(client);
                    (self.pause, self.told) = (PAUSES[0], false);
                    return News::Connected;
                }
                Err(error) => {
                    self.due = Instant::now() + self.pause;
                    self.pause = (self.pause * 2).min(PAUSES[1]);
                    if !std::mem::replace(&mut self.told, true) {
                        return News::Unreachable(error);
                    }
                }
            }
        }
    }

    /// Says something; whether there was an engine to say it to.
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

    fn lost(&mut self) -> News {
        self.client = None;
        self.due = Instant::now() + self.pause;
        News::Gone
    }
}
