//! One connection to Discord's gateway: greeting, heartbeats and events, until it ends.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use ringfence_gateway_protocol::Secret;
use ringfence_network::address::Address;
use ringfence_network::fetch::{Scheme, Trust, Url, secure};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::press::Press;
use crate::http::connect;

/// Timeout of the connection and its greeting.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum size of an event.
const MAX_EVENT: usize = 4 << 20;

/// Opcodes of the gateway's protocol.
mod op {
    pub(super) const DISPATCH: u8 = 0;
    pub(super) const HEARTBEAT: u8 = 1;
    pub(super) const IDENTIFY: u8 = 2;
    pub(super) const RESUME: u8 = 6;
    pub(super) const RECONNECT: u8 = 7;
    pub(super) const INVALID_SESSION: u8 = 9;
    pub(super) const HELLO: u8 = 10;
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A session that a further connection can resume.
#[derive(Debug)]
struct Session {
    id: String,
    /// Number of the last event.
    sequence: u64,
}

/// A bot's session with Discord's gateway, over one connection after another.
#[derive(Debug)]
pub(super) struct Sessions {
    token: Secret,
    gateway: Address,
    trust: Trust,
    session: Option<Session>,
    /// Address at which Discord wants the session resumed.
    resume_at: Option<Address>,
    /// Set if the last connection delivered events.
    was_ready: bool,
}

/// The end of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Discord sent a close frame with this code.
    Closed(Option<u16>),
    /// Any other end.
    Lost(String),
}

/// An event of the gateway.
#[derive(Debug)]
pub(super) enum Event {
    /// Connected: presses arrive.
    Ready,
    Press(Press),
    /// An outage; reported once until it is over.
    Trouble(String),
}

impl Event {
    /// Converts an event; `None` if it does not matter here.
    fn of(kind: &str, data: Value) -> Option<Self> {
        // Without the content: an event contains the token for its response.
        let odd = || Self::Trouble("Discord's gateway sends a malformed message".to_owned());
        match kind {
            "READY" | "RESUMED" => Some(Self::Ready),
            "INTERACTION_CREATE" => Some(Press::of(data).map_or_else(odd, Self::Press)),
            _ => None,
        }
    }
}

/// A message of the gateway.
#[derive(Deserialize)]
struct Payload {
    op: u8,
    #[serde(rename = "s")]
    sequence: Option<u64>,
    #[serde(rename = "t")]
    kind: Option<String>,
    #[serde(default, rename = "d")]
    data: Value,
}

#[derive(Deserialize)]
struct Hello {
    heartbeat_interval: u64,
}

#[derive(Deserialize)]
struct Ready {
    session_id: String,
    resume_gateway_url: String,
}

type Socket = WebSocketStream<Box<dyn Stream>>;

impl Sessions {
    pub(super) fn new(token: Secret, gateway: Address, trust: Trust) -> Self {
        Self {
            token,
            gateway,
            trust,
            session: None,
            resume_at: None,
            was_ready: false,
        }
    }

    /// Returns `true` if the last connection was one on which presses arrive.
    pub(super) fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Connects, and sends events to `out` until the connection ends; resumes the session if there is one.
    pub(super) async fn converse(&mut self, out: &mpsc::Sender<Result<Event, super::Error>>) -> End {
        self.was_ready = false;
        let (mut socket, hello) = match timeout(TIMEOUT, self.greeted()).await {
            Ok(Ok(greeted)) => greeted,
            Ok(Err(end)) => {
                self.resume_at = None;
                return end;
            }
            Err(_) => {
                self.resume_at = None;
                return lost("it does not answer in time");
            }
        };
        if let Err(error) = socket.send(self.introduction()).await {
            return lost(error);
        }
        let period = Duration::from_millis(hello.heartbeat_interval.max(1));
        // The first one comes early, so that not all clients beat at once.
        let mut beat = interval_at(Instant::now() + period.mul_f64(fraction()), period);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_answered = true;
        loop {
            let text = tokio::select! {
                _ = beat.tick() => {
                    if !std::mem::replace(&mut is_answered, false) {
                        return lost("it does not answer a heartbeat");
                    }
                    if let Err(error) = socket.send(self.heartbeat()).await {
                        return lost(error);
                    }
                    continue;
                }
                message = text(&mut socket) => match message {
                    Ok(text) => text,
                    Err(end) => return end,
                },
            };
            is_answered = true;
            match self.read(&text) {
                // Nobody reads once the bot has ended.
                Read::Event(said) => drop(out.send(Ok(said)).await),
                Read::HeartbeatWanted => {
                    if let Err(error) = socket.send(self.heartbeat()).await {
                        return lost(error);
                    }
                }
                Read::Nothing => {}
                Read::End(end) => return end,
            }
        }
    }

    /// Opens a connection, and waits for the gateway's greeting.
    async fn greeted(&self) -> Result<(Socket, Hello), End> {
        let mut socket = self.open().await?;
        let first: Result<Payload, _> = serde_json::from_str(&text(&mut socket).await?);
        match first {
            Ok(Payload {
                op: op::HELLO, data, ..
            }) => {
                let hello = Hello::deserialize(data).map_err(lost)?;
                Ok((socket, hello))
            }
            _ => Err(lost("it does not greet")),
        }
    }

    async fn open(&self) -> Result<Socket, End> {
        let address = self.resume_at.as_ref().unwrap_or(&self.gateway).as_str();
        // TLS and TCP are the same for both schemes.
        let url: Url = address.replacen("ws", "http", 1).parse().map_err(lost)?;
        let stream = connect(&url, None).await.map_err(lost)?;
        let stream: Box<dyn Stream> = match url.scheme {
            Scheme::Http => Box::new(stream),
            Scheme::Https => Box::new(secure(stream, &url, &self.trust).await.map_err(lost)?),
        };
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_EVENT))
            .max_frame_size(Some(MAX_EVENT));
        let request = format!("{address}/?v=10&encoding=json");
        let opened = client_async_with_config(request, stream, Some(config)).await;
        opened.map(|(socket, _)| socket).map_err(lost)
    }

    /// Returns the first message: a new session, or the one that is resumed.
    fn introduction(&self) -> Message {
        let token = self.token.expose();
        message(&match &self.session {
            Some(Session { id, sequence }) => json!({
                "op": op::RESUME,
                "d": {"token": token, "session_id": id, "seq": sequence},
            }),
            // Interactions need no intent, and no other events are wanted.
            None => json!({
                "op": op::IDENTIFY,
                "d": {
                    "token": token,
                    "intents": 0,
                    "properties": {"os": "linux", "browser": "ringfence", "device": "ringfence"},
                },
            }),
        })
    }

    fn heartbeat(&self) -> Message {
        let sequence = self.session.as_ref().map(|session| session.sequence);
        message(&json!({"op": op::HEARTBEAT, "d": sequence}))
    }

    /// Reads a message, and stores the values that a resume needs.
    fn read(&mut self, text: &str) -> Read {
        let Ok(payload) = serde_json::from_str::<Payload>(text) else {
            return Read::Nothing;
        };
        match payload.op {
            op::DISPATCH => {
                let Some(kind) = payload.kind else {
                    return Read::Nothing;
                };
                if kind == "READY" {
                    self.begin(&payload.data);
                }
                if let (Some(session), Some(sequence)) = (&mut self.session, payload.sequence) {
                    session.sequence = sequence;
                }
                let said = Event::of(&kind, payload.data);
                self.was_ready |= matches!(said, Some(Event::Ready));
                said.map_or(Read::Nothing, Read::Event)
            }
            op::HEARTBEAT => Read::HeartbeatWanted,
            op::RECONNECT => Read::End(lost("it wants a new connection")),
            op::INVALID_SESSION => {
                if payload.data != Value::Bool(true) {
                    self.session = None;
                    self.resume_at = None;
                }
                Read::End(lost("it ended the session"))
            }
            _ => Read::Nothing,
        }
    }

    fn begin(&mut self, ready: &Value) {
        let Ok(ready) = Ready::deserialize(ready) else {
            return;
        };
        self.session = Some(Session {
            id: ready.session_id,
            sequence: 0,
        });
        // The token is sent to no address that is neither encrypted nor on this machine.
        self.resume_at = Address::websocket(&ready.resume_gateway_url).ok();
    }
}

/// The meaning of a message.
enum Read {
    Event(Event),
    HeartbeatWanted,
    Nothing,
    End(End),
}

/// Receives the next text.
async fn text(socket: &mut Socket) -> Result<String, End> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
            Some(Ok(Message::Close(frame))) => {
                return Err(End::Closed(frame.map(|frame| frame.code.into())));
            }
            // Pings are answered by the library.
            Some(Ok(_)) => {}
            Some(Err(Error::ConnectionClosed)) | None => return Err(End::Closed(None)),
            Some(Err(error)) => return Err(lost(error)),
        }
    }
}

fn message(value: &Value) -> Message {
    Message::text(value.to_string())
}

fn lost(why: impl ToString) -> End {
    End::Lost(why.to_string())
}

/// Returns a random number from 0 to 1.
fn fraction() -> f64 {
    let mut byte = [u8::MAX];
    // Without random bytes the first heartbeat comes after a whole period.
    let _ = getrandom(&mut byte, GetRandomFlags::empty());
    f64::from(byte[0]) / f64::from(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> Sessions {
        let gateway = Address::websocket("ws://127.0.0.1:1/gateway").unwrap();
        Sessions::new(Secret::new("a.b.c").unwrap(), gateway, Trust::default())
    }

    fn ready(sessions: &mut Sessions, url: &str) {
        let ready =
            json!({"op": 0, "t": "READY", "s": 4, "d": {"session_id": "x", "resume_gateway_url": url}});
        assert!(matches!(
            sessions.read(&ready.to_string()),
            Read::Event(Event::Ready)
        ));
    }

    fn introduced(sessions: &Sessions) -> Value {
        serde_json::from_str(sessions.introduction().to_text().unwrap()).unwrap()
    }

    #[test]
    fn a_session_is_resumed_behind_its_last_event_until_it_is_void() {
        let mut sessions = sessions();
        assert_eq!(introduced(&sessions)["op"], op::IDENTIFY);
        ready(&mut sessions, "wss://other.test");
        sessions.read(&json!({"op": 0, "t": "X", "s": 7}).to_string());
        assert_eq!(
            introduced(&sessions),
            json!({"op": op::RESUME, "d": {"token": "a.b.c", "session_id": "x", "seq": 7}})
        );
        assert!(matches!(sessions.read(r#"{"op": 9, "d": true}"#), Read::End(_)));
        assert_eq!(introduced(&sessions)["op"], op::RESUME);
        assert!(matches!(sessions.read(r#"{"op": 9, "d": false}"#), Read::End(_)));
        assert_eq!(introduced(&sessions)["op"], op::IDENTIFY);
    }

    #[test]
    fn the_token_is_sent_to_no_address_in_the_open() {
        for (url, kept) in [
            ("wss://other.test", true),
            ("ws://127.0.0.1:2", true),
            ("ws://other.test", false),
            ("https://other.test", false),
        ] {
            let mut sessions = sessions();
            ready(&mut sessions, url);
            assert_eq!(sessions.resume_at.is_some(), kept, "{url}");
        }
    }

    #[test]
    fn what_is_not_understood_ends_nothing() {
        let mut sessions = sessions();
        for text in ["", "{}", "[]", r#"{"op": 0}"#, r#"{"op": 99}"#, r#"{"op": 11}"#] {
            assert!(matches!(sessions.read(text), Read::Nothing), "{text}");
        }
        assert!(matches!(sessions.read(r#"{"op": 1}"#), Read::HeartbeatWanted));
    }
}
