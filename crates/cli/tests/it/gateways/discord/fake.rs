//! A fake Discord: its REST API and its gateway, as far as a bot with buttons uses them.

mod gateway;
mod rest;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::Method;
use axum::routing::{any, get};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::support::eventually;

pub(super) const TOKEN: &str = "MTk4NjIy.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs";
const BOT: u64 = 190_000_000_000_000_001;

/// A fake Discord that runs until it is dropped.
pub(super) struct Fake {
    state: Arc<Mutex<World>>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
}

/// State and behaviour of the service.
#[derive(Default)]
pub(super) struct World {
    pub(super) address: String,
    pub(super) messages: Vec<Message>,
    /// Responses to presses, in arrival order.
    pub(super) answers: Vec<(u64, Value)>,
    /// The bot's identify and resume messages.
    pub(super) hellos: Vec<Value>,
    pub(super) heartbeats: usize,
    /// Posts, edits and responses, including failed ones.
    calls: Vec<(Method, String)>,
    /// Faults of the next posts and edits.
    pub(super) faults: VecDeque<Fault>,
    /// End of the rate limit of posts and edits, and the number of calls before it.
    closed: Option<Instant>,
    pub(super) too_early: usize,
    /// The channels that the bot may use.
    pub(super) channels: Vec<u64>,
    pub(super) files_allowed: bool,
    pub(super) heartbeat_interval: u64,
    /// Set if heartbeats are not acknowledged.
    pub(super) mute: bool,
    /// The close code of every identify.
    pub(super) close_with: Option<u16>,
    /// Set if the REST API rejects every request and echoes it in the error.
    pub(super) echoes: bool,
    /// Set if the REST API is out of order; and the number of requests meanwhile.
    pub(super) away: bool,
    pub(super) visits: usize,
    session: u64,
    /// Events of the session; the first one is READY.
    events: Vec<Value>,
    live: Option<mpsc::UnboundedSender<Order>>,
    next_id: u64,
}

/// A message in a channel.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) id: u64,
    pub(super) channel: u64,
    /// The last posted or edited body.
    pub(super) body: Value,
    pub(super) file: Option<String>,
    pub(super) edits: usize,
}

/// The fault of one call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// Responds 429 with this many milliseconds; `true` for a global limit.
    Limited(u64, bool),
    /// Succeeds, and exhausts the rate limit for this many milliseconds.
    Spent(u64),
    /// Responds with an error page of a proxy.
    Page(u16),
    /// Succeeds, but drops the response.
    Unheard,
}

/// The next action of the gateway.
#[derive(Debug, Clone)]
enum Order {
    Send(Value),
    Close(u16),
    /// Drops the connection.
    Cut,
}

impl Fake {
    pub(super) fn new(channels: &[u64]) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(World {
            address: address.to_string(),
            channels: channels.to_vec(),
            files_allowed: true,
            heartbeat_interval: 41_250,
            next_id: 1_000_000_000_000_000_000,
            ..World::default()
        }));
        let (stop, stopped) = oneshot::channel();
        let router = Router::new()
            .route("/gateway/", get(gateway::gateway))
            .route("/resume/", get(gateway::gateway))
            .route("/api/v10/{*path}", any(rest::rest))
            .with_state(Arc::clone(&state));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    served = async { axum::serve(listener, router).await } => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Self {
            state,
            address,
            stop: Some(stop),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, World> {
        self.state.lock().unwrap()
    }

    /// Returns the configuration of the bot.
    pub(super) fn config(&self) -> String {
        format!(
            "base_url = 'http://{0}/api'\ngateway_url = 'ws://{0}/gateway'\n",
            self.address
        )
    }

    /// Waits for the message at this index.
    #[track_caller]
    pub(super) fn message(&self, index: usize) -> Message {
        eventually("a message", || self.state().messages.len() > index);
        self.state().messages[index].clone()
    }

    /// Waits until the message at this index has no buttons.
    #[track_caller]
    pub(super) fn settled(&self, index: usize) -> Message {
        eventually("a settled message", || {
            let message = self.message(index);
            message.edits > 0 && message.buttons().is_empty()
        });
        self.message(index)
    }

    /// Presses a button as a user; returns the response with its visibility.
    #[track_caller]
    pub(super) fn press(&self, message: &Message, button: &str, user: u64) -> Value {
        self.press_in(message.channel, message, button, user)
    }

    /// Presses a button until the question has been displayed long enough.
    #[track_caller]
    pub(super) fn press_after_a_look(&self, message: &Message, label: &str, user: u64) -> Value {
        let mut answer = Value::Null;
        eventually("a press that is not too soon", || {
            answer = self.press(message, &message.button(label), user);
            let told = answer["data"]["content"].as_str().unwrap_or_default();
            !told.contains("read the request first")
        });
        answer
    }

    #[track_caller]
    pub(super) fn press_in(&self, channel: u64, message: &Message, button: &str, user: u64) -> Value {
        let id = self.state().press(channel, message, button, user);
        eventually("an answer to a press", || {
            self.state().answers.iter().any(|(press, _)| *press == id)
        });
        let state = self.state();
        let (_, answer) = state.answers.iter().find(|(press, _)| *press == id).unwrap();
        answer.clone()
    }

    /// Waits until the bot has connected this many times.
    #[track_caller]
    pub(super) fn greeted(&self, times: usize) {
        eventually("a bot on the gateway", || self.state().hellos.len() >= times);
    }

    /// Returns the number of calls, including failed ones, whose path ends so.
    pub(super) fn count(&self, method: &str, end: &str) -> usize {
        let state = self.state();
        let fits = |(how, path): &&(Method, String)| how == method && path.ends_with(end);
        state.calls.iter().filter(fits).count()
    }

    pub(super) fn close(&self, code: u16) {
        self.order(Order::Close(code));
    }

    pub(super) fn cut(&self) {
        self.order(Order::Cut);
    }

    pub(super) fn say(&self, event: Value) {
        self.order(Order::Send(event));
    }

    fn order(&self, order: Order) {
        let state = self.state();
        state.live.as_ref().unwrap().send(order).unwrap();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }
}

impl Message {
    pub(super) fn content(&self) -> &str {
        self.body["content"].as_str().unwrap()
    }

    /// Returns the labels of its buttons and their custom ids.
    pub(super) fn buttons(&self) -> Vec<(String, String)> {
        let rows = self.body["components"].as_array().unwrap();
        let buttons = rows.iter().flat_map(|row| row["components"].as_array().unwrap());
        let text = |button: &Value, name: &str| button[name].as_str().unwrap().to_owned();
        buttons
            .map(|button| (text(button, "label"), text(button, "custom_id")))
            .collect()
    }

    #[track_caller]
    pub(super) fn button(&self, label: &str) -> String {
        let found = self.buttons().into_iter().find(|(name, _)| name == label);
        assert!(found.is_some(), "no {label}: {self:?}");
        found.unwrap_or_default().1
    }
}

impl World {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Dispatches an event to the session, now or when it resumes.
    fn dispatch(&mut self, kind: &str, data: Value) {
        let event = json!({"op": 0, "t": kind, "s": self.events.len() + 1, "d": data});
        self.events.push(event.clone());
        if let Some(live) = &self.live {
            // A closed connection gets its events when it resumes.
            drop(live.send(Order::Send(event)));
        }
    }

    /// Presses a button; returns the id of the press.
    pub(super) fn press(&mut self, channel: u64, message: &Message, button: &str, user: u64) -> u64 {
        let id = self.id();
        let press = json!({
            "application_id": BOT.to_string(),
            "app_permissions": "2147483647",
            "attachment_size_limit": 10_485_760,
            "authorizing_integration_owners": {"0": "77"},
            "channel": {"id": channel.to_string(), "type": 0},
            "channel_id": channel.to_string(),
            "context": 0,
            "data": {"component_type": 2, "custom_id": button, "id": 2},
            "entitlements": [],
            "guild_id": "77",
            "guild_locale": "en-US",
            "id": id.to_string(),
            "locale": "de",
            "member": {
                "deaf": false, "mute": false, "flags": 0, "roles": [], "joined_at": null, "nick": null,
                "communication_disabled_until": null, "user": account(user, &format!("user{user}")),
            },
            "message": message.whole(),
            "token": format!("aW50ZXJhY3Rpb24{id}"),
            "type": 3,
            "version": 1,
        });
        self.dispatch("INTERACTION_CREATE", press);
        id
    }
}

impl Message {
    fn whole(&self) -> Value {
        json!({
            "attachments": [], "author": account(BOT, "ringfence"), "channel_id": self.channel.to_string(),
            "components": self.body["components"], "content": self.body["content"], "edited_timestamp": null,
            "embeds": [], "flags": 4, "id": self.id.to_string(), "mention_everyone": false, "mention_roles": [],
            "mentions": [], "pinned": false, "timestamp": "2026-01-01T00:00:00.000000+00:00", "tts": false, "type": 0,
        })
    }
}

fn account(id: u64, name: &str) -> Value {
    json!({
        "id": id.to_string(), "username": name, "discriminator": "0", "avatar": null, "bot": id == BOT,
        "global_name": null, "public_flags": 0,
    })
}

type Shared = State<Arc<Mutex<World>>>;
