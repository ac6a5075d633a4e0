//! A fake Telegram: the Bot API over a real socket, as strict as the real one about a bot's mistakes.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{Reply, Server};
use super::{ANN, GROUP};
use crate::support::eventually;

pub(super) const TOKEN: &str = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw_x-1";

/// A fake Telegram that runs until it is dropped.
pub(super) struct Fake {
    shared: Arc<Shared>,
    server: Option<Server>,
}

#[derive(Default)]
struct Shared {
    world: Mutex<World>,
    /// Notified of new updates.
    changed: Condvar,
}

/// State and behaviour of the service.
#[derive(Default)]
pub(super) struct World {
    pub(super) messages: Vec<Message>,
    /// Replies to presses, by the presses' ids.
    pub(super) replies: Vec<(String, String)>,
    /// The calls, including failed ones.
    pub(super) calls: Vec<String>,
    /// Faults of the next calls of a method.
    pub(super) faults: VecDeque<(&'static str, Fault)>,
    /// Delay of every response to a method.
    pub(super) slow: Option<(&'static str, Duration)>,
    /// Set if another program takes the updates.
    pub(super) contested: bool,
    /// The update types that the bot requested.
    pub(super) wanted: Value,
    updates: VecDeque<Value>,
    last_update: i64,
    polls: u64,
    pressed: usize,
    closed: bool,
}

/// The fault of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// Too many requests: retry after this many seconds.
    Busy(u32),
    /// An error page of a proxy.
    BadGateway,
    /// The connection ends before a response.
    Dropped,
    /// The bot lacks the permission.
    Forbidden,
}

/// A message in a chat.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) id: i64,
    pub(super) chat: i64,
    pub(super) text: String,
    entities: Vec<Value>,
    pub(super) buttons: Vec<(String, String)>,
    pub(super) edits: usize,
}

impl Message {
    /// Returns the text of the entities of a kind.
    pub(super) fn marked(&self, kind: &str) -> String {
        let text: Vec<u16> = self.text.encode_utf16().collect();
        let of_kind = self.entities.iter().filter(|entity| entity["type"] == kind);
        of_kind
            .map(|entity| {
                let [start, length] =
                    ["offset", "length"].map(|name| entity[name].as_u64().unwrap() as usize);
                String::from_utf16(&text[start..start + length]).unwrap()
            })
            .collect()
    }

    /// Returns the callback data of a button.
    #[track_caller]
    pub(super) fn button(&self, label: &str) -> String {
        let found = self.buttons.iter().find(|(text, _)| text == label);
        assert!(found.is_some(), "no `{label}`: {self:?}");
        found.unwrap().1.clone()
    }
}

impl Fake {
    pub(super) fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let server = Server::new(move |path, body| own.answer(path, body));
        Self {
            shared,
            server: Some(server),
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.server.as_ref().unwrap().address)
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock().unwrap()
    }

    /// Waits for the message at this index.
    #[track_caller]
    pub(super) fn message(&self, index: usize) -> Message {
        eventually("a message", || self.world().messages.len() > index);
        self.world().messages[index].clone()
    }

    /// Waits until a message has no buttons.
    #[track_caller]
    pub(super) fn settled(&self, index: usize) -> Message {
        eventually("the end of a question", || {
            let world = self.world();
            world.messages.get(index).is_some_and(|message| message.edits > 0)
        });
        self.message(index)
    }

    /// Waits until a method has been called this many times.
    #[track_caller]
    pub(super) fn called(&self, method: &str, times: usize) {
        eventually(method, || {
            self.world().calls.iter().filter(|call| *call == method).count() >= times
        });
    }

    /// Presses as any user in any chat; returns the press's id.
    pub(super) fn send_press(&self, user: i64, chat: i64, message: i64, data: &str) -> String {
        self.world().pressed += 1;
        let id = format!("press{}", self.world().pressed);
        let query = json!({
            "id": id,
            "from": {"id": user, "is_bot": false, "first_name": "<b>Any\u{202e}", "username": format!("user_{user}")},
            "message": {
                "message_id": message, "date": 1_700_000_000, "text": "as it was",
                "chat": {"id": chat, "type": "supergroup", "title": "Any"},
                "from": {"id": 110_201_543, "is_bot": true, "first_name": "Fence", "username": "fence_bot"},
            },
            "chat_instance": "1", "data": data,
        });
        self.send(json!({"callback_query": query}));
        id
    }

    /// Sends an update to the bot.
    pub(super) fn send(&self, update: Value) {
        self.world().update(update);
        self.shared.changed.notify_all();
    }

    /// Returns the reply to a press.
    #[track_caller]
    pub(super) fn told(&self, press: &str) -> String {
        let found = |world: &World| world.replies.iter().find(|(id, _)| id == press).cloned();
        eventually("a word about a press", || found(&self.world()).is_some());
        found(&self.world()).unwrap().1
    }

    /// Presses a button as Ann, until the question has been displayed long enough.
    #[track_caller]
    pub(super) fn press(&self, message: &Message, label: &str) -> String {
        self.press_with(message, &message.button(label))
    }

    /// Presses with any callback data.
    #[track_caller]
    pub(super) fn press_with(&self, message: &Message, data: &str) -> String {
        let mut words = String::new();
        eventually("a press that counts", || {
            words = self.told(&self.send_press(ANN, GROUP, message.id, data));
            !words.contains("read the request first")
        });
        words
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Ok(mut world) = self.shared.world.lock() {
            world.closed = true;
        }
        self.shared.changed.notify_all();
        self.server.take();
    }
}

impl World {
    fn update(&mut self, mut update: Value) {
        self.last_update += 1;
        update["update_id"] = self.last_update.into();
        self.updates.push_back(update);
    }
}

fn ok(result: Value) -> Reply {
    Reply::Whole(
        200,
        "application/json",
        json!({"ok": true, "result": result}).to_string(),
    )
}

fn refused(code: u16, description: &str) -> Reply {
    let body = json!({"ok": false, "error_code": code, "description": description});
    Reply::Whole(code, "application/json", body.to_string())
}

impl Shared {
    fn answer(&self, path: &str, body: &[u8]) -> Reply {
        let Some(method) = path.strip_prefix(&format!("/bot{TOKEN}/")) else {
            return refused(401, "Unauthorized");
        };
        let params: Value = serde_json::from_slice(body).unwrap();
        let mut world = self.world.lock().unwrap();
        world.calls.push(method.to_owned());
        let fails = world.faults.front().is_some_and(|(name, _)| *name == method);
        if let Some((_, fault)) = world.faults.pop_front_if(|_| fails) {
            return failing(fault);
        }
        if let Some((_, pause)) = world.slow.filter(|(name, _)| *name == method) {
            world = self
                .changed
                .wait_timeout_while(world, pause, |world| !world.closed)
                .unwrap()
                .0;
        }
        match method {
            "getMe" => {
                ok(json!({"id": 110_201_543, "is_bot": true, "first_name": "F", "username": "fence_bot"}))
            }
            "getUpdates" => self.get_updates(world, &params),
            "sendMessage" => world.send(&params),
            "editMessageText" => world.edit(&params),
            "answerCallbackQuery" => world.reply(&params),
            _ => refused(404, "Not Found"),
        }
    }

    /// Long-polls until there is an update, the timeout expires, or another request replaces this one.
    fn get_updates(&self, mut world: MutexGuard<'_, World>, params: &Value) -> Reply {
        if world.contested {
            return refused(
                409,
                "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
            );
        }
        world.wanted = params["allowed_updates"].clone();
        let offset = params["offset"].as_i64().unwrap();
        let confirmed = |update: &Value| update["update_id"].as_i64().unwrap() < offset;
        world.updates.retain(|update| !confirmed(update));
        world.polls += 1;
        let own = world.polls;
        self.changed.notify_all();
        let deadline = Instant::now() + Duration::from_secs(params["timeout"].as_u64().unwrap());
        while world.updates.is_empty() && world.polls == own && !world.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            world = self.changed.wait_timeout(world, left).unwrap().0;
        }
        if world.polls != own {
            return refused(409, "Conflict: terminated by other getUpdates request");
        }
        let limit = usize::try_from(params["limit"].as_u64().unwrap()).unwrap();
        ok(world.updates.iter().take(limit).cloned().collect())
    }
}

impl World {
    fn send(&mut self, params: &Value) -> Reply {
        let chat = params["chat_id"].as_i64().unwrap();
        if chat != GROUP {
            return refused(400, "Bad Request: chat not found");
        }
        let message = match written(params, self.messages.len() as i64 + 1, chat) {
            Ok(message) => message,
            Err(why) => return refused(400, why),
        };
        self.messages.push(message.clone());
        ok(
            json!({"message_id": message.id, "date": 1, "chat": {"id": chat, "type": "group"}, "text": message.text}),
        )
    }

    fn edit(&mut self, params: &Value) -> Reply {
        let (chat, id) = (
            params["chat_id"].as_i64().unwrap(),
            params["message_id"].as_i64().unwrap(),
        );
        let Some(message) = self
            .messages
            .iter_mut()
            .find(|message| (message.chat, message.id) == (chat, id))
        else {
            return refused(400, "Bad Request: message to edit not found");
        };
        match written(params, id, chat) {
            Err(why) => refused(400, why),
            Ok(same) if same.text == message.text => refused(400, "Bad Request: message is not modified"),
            Ok(changed) => {
                let edits = message.edits + 1;
                *message = Message { edits, ..changed };
                ok(json!({"message_id": id}))
            }
        }
    }

    fn reply(&mut self, params: &Value) -> Reply {
        let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
        if text("text").chars().count() > 200 {
            return refused(400, "Bad Request: MESSAGE_TOO_LONG");
        }
        self.replies.push((text("callback_query_id"), text("text")));
        ok(json!(true))
    }
}

/// Returns the message of these parameters, if the real service would accept them.
fn written(params: &Value, id: i64, chat: i64) -> Result<Message, &'static str> {
    let text = params["text"].as_str().unwrap().to_owned();
    let units = text.encode_utf16().count() as u64;
    if units == 0 || units > 4096 {
        return Err("Bad Request: message is empty or too long");
    }
    assert!(params.get("parse_mode").is_none(), "markup: {params}");
    assert_eq!(
        params["link_preview_options"]["is_disabled"], true,
        "a preview: {params}"
    );
    let entities = params["entities"].as_array().cloned().unwrap_or_default();
    for entity in &entities {
        let end = entity["offset"].as_u64().unwrap() + entity["length"].as_u64().unwrap();
        assert!(end <= units, "beyond the text: {entity}");
    }
    let rows = params["reply_markup"]["inline_keyboard"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut buttons = Vec::new();
    for button in rows.iter().flat_map(|row| row.as_array().unwrap()) {
        let [text, data] = ["text", "callback_data"].map(|name| button[name].as_str().unwrap().to_owned());
        if data.is_empty() || data.len() > 64 {
            return Err("Bad Request: BUTTON_DATA_INVALID");
        }
        buttons.push((text, data));
    }
    Ok(Message {
        id,
        chat,
        text,
        entities,
        buttons,
        edits: 0,
    })
}

fn failing(fault: Fault) -> Reply {
    match fault {
        Fault::Busy(seconds) => {
            let body = json!({"ok": false, "error_code": 429, "description": "Too Many Requests: retry later",
                              "parameters": {"retry_after": seconds}});
            Reply::Whole(429, "application/json", body.to_string())
        }
        Fault::BadGateway => Reply::Whole(502, "text/html", "<html>502 Bad Gateway</html>".to_owned()),
        Fault::Dropped => Reply::Dropped,
        Fault::Forbidden => refused(403, "Forbidden: bot was blocked by the user"),
    }
}
