//! A Discord on this machine: its REST interface and its gateway, as far as a bot with buttons sees them.

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

/// A Discord that runs until it is dropped.
pub(super) struct Fake {
    state: Arc<Mutex<World>>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
}

/// What is there, and how the service behaves.
#[derive(Default)]
pub(super) struct World {
    pub(super) address: String,
    pub(super) messages: Vec<Message>,
    /// Answers to presses, as they came.
    pub(super) answers: Vec<(u64, Value)>,
    /// What the bot said on the gateway: identify, resume.
    pub(super) hellos: Vec<Value>,
    pub(super) heartbeats: usize,
    /// Posts, changes and answers, with those that failed.
    calls: Vec<(Method, String)>,
    /// What becomes of the next posts and changes.
    pub(super) faults: VecDeque<Fault>,
    /// Until when posts and changes are too many, and how many came all the same.
    closed: Option<Instant>,
    pub(super) too_early: usize,
    /// The channels that exist, for this bot.
    pub(super) channels: Vec<u64>,
    pub(super) files_allowed: bool,
    pub(super) heartbeat_interval: u64,
    /// Whether heartbeats are answered.
    pub(super) mute: bool,
    /// The code that every greeting is answered with.
    pub(super) close_with: Option<u16>,
    /// Whether the REST interface refuses everything, with what it was sent in its words.
    pub(super) echoes: bool,
    /// Whether the REST interface is out of order, and how often it was asked then.
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
    /// As it was posted, and last changed.
    pub(super) body: Value,
    pub(super) file: Option<String>,
    pub(super) edits: usize,
}

/// How one call fails.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// 429 for this many milliseconds; whether for everything.
    Limited(u64, bool),
    /// It is done, and was the last for so many milliseconds.
    Spent(u64),
    /// A page of something in between.
    Page(u16),
    /// It is done, but nobody hears.
    Unheard,
}

/// What the gateway is to do next.
#[derive(Debug, Clone)]
enum Order {
    Send(Value),
    Close(u16),
    /// The connection just ends.
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

    /// What the configuration says of it.
    pub(super) fn config(&self) -> String {
        format!(
            "base_url = 'http://{0}/api'\ngateway_url = 'ws://{0}/gateway'\n",
            self.address
        )
    }

    /// The message at this place, once there are so many.
    #[track_caller]
    pub(super) fn message(&self, index: usize) -> Message {
        eventually("a message", || self.state().messages.len() > index);
        self.state().messages[index].clone()
    }

    /// The message at this place, once its buttons are gone.
    #[track_caller]
    pub(super) fn settled(&self, index: usize) -> Message {
        eventually("a settled message", || {
            let message = self.message(index);
            message.edits > 0 && message.buttons().is_empty()
        });
        self.message(index)
    }

    /// Presses a button as a user; what the one who pressed is told, and for whose eyes, once it is answered.
    #[track_caller]
    pub(super) fn press(&self, message: &Message, button: &str, user: u64) -> Value {
        self.press_in(message.channel, message, button, user)
    }

    /// The same, until it is no longer one that came with the question.
    #[track_caller]
    pub(super) fn press_after_a_look(&self, message: &Message, label: &str, user: u64) -> Value {
        let mut answer = Value::Null;
        eventually("a press that is not too soon", || {
            answer = self.press(message, &message.button(label), user);
            let told = answer["data"]["content"].as_str().unwrap_or_default();
            !told.contains("look at it first")
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

    /// Waits until a bot listens, for the so-manieth time.
    #[track_caller]
    pub(super) fn greeted(&self, times: usize) {
        eventually("a bot on the gateway", || self.state().hellos.len() >= times);
    }

    /// Calls so far, with those that failed, whose path ends so.
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

    /// The labels of its buttons and what they carry.
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

    /// Gives the session an event, now or when it resumes.
    fn dispatch(&mut self, kind: &str, data: Value) {
        let event = json!({"op": 0, "t": kind, "s": self.events.len() + 1, "d": data});
        self.events.push(event.clone());
        if let Some(live) = &self.live {
            // A connection that has ended gets its events when it resumes.
            drop(live.send(Order::Send(event)));
        }
    }

    /// Somebody presses a button: the id of the press.
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
