//! Sends requests to an MCP server, and dispatches its responses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::super::CallError;
use super::wire::{Incoming, Outgoing, Wire, answer, written};

/// Maximum number of requests in progress.
const AT_ONCE: usize = 16;

/// Maximum number of queued requests.
const MAX_WAITING: usize = 64;

/// Polling interval for requests whose callers are gone.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Maximum number of unsolicited messages between two responses.
const MAX_UNASKED: usize = 10_000;

/// Maximum length of the id of a server's request, as JSON.
const MAX_ID: usize = 256;

/// A handle for requests to a server.
#[derive(Debug)]
pub(super) struct Client {
    orders: mpsc::Sender<QueuedRequest>,
    state: Arc<State>,
}

/// State of a server, shared with its [`Client`].
#[derive(Debug, Default)]
pub(super) struct State {
    /// Reason for the end of the connection.
    ended: OnceLock<String>,
    /// Set if the server has announced a new list of tools.
    changed: AtomicBool,
}

#[derive(Debug)]
struct QueuedRequest {
    method: &'static str,
    params: Value,
    /// Closed when the caller is gone.
    reply: oneshot::Sender<Result<Value, CallError>>,
}

/// A connection to a server; [`Conversation::hold`] runs it.
#[derive(Debug)]
pub(super) struct Conversation {
    orders: mpsc::Receiver<QueuedRequest>,
    state: Arc<State>,
    wire: Wire,
    last: u64,
    open: BTreeMap<u64, oneshot::Sender<Result<Value, CallError>>>,
    unasked: usize,
}

/// Creates a connection over a transport, and its client.
pub(super) fn conversation(wire: Wire) -> (Client, Conversation) {
    let (sender, orders) = mpsc::channel(MAX_WAITING);
    let state = Arc::new(State::default());
    let client = Client {
        orders: sender,
        state: Arc::clone(&state),
    };
    let conversation = Conversation {
        orders,
        state,
        wire,
        last: 0,
        open: BTreeMap::new(),
        unasked: 0,
    };
    (client, conversation)
}

impl Client {
    pub(super) fn is_up(&self) -> bool {
        !self.orders.is_closed()
    }

    /// Returns `true` if the list of tools has changed since the previous call of this function.
    pub(super) fn has_changed(&self) -> bool {
        self.state.changed.swap(false, Ordering::Relaxed)
    }

    /// Sends a request and resolves to its response. Dropping the future cancels the request.
    pub(super) async fn request(&self, method: &'static str, params: Value) -> Result<Value, CallError> {
        let (reply, replied) = oneshot::channel();
        let order = QueuedRequest {
            method,
            params,
            reply,
        };
        self.orders.send(order).await.map_err(|_| self.ended())?;
        replied.await.map_err(|_| self.ended())?
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, method: &'static str) {
        let (reply, _) = oneshot::channel();
        let order = QueuedRequest {
            method,
            params: Value::Null,
            reply,
        };
        let _ = self.orders.send(order).await;
    }

    fn ended(&self) -> CallError {
        let why = self.state.ended.get().map_or("it was ended", String::as_str);
        CallError::new("unavailable", format!("the server cannot be asked: {why}"))
    }
}

impl Conversation {
    /// Dispatches messages until the client is dropped or the server violates the protocol.
    pub(super) async fn hold(mut self) {
        let why = self.talk().await.err();
        if let Some(why) = why {
            let _ = self.state.ended.set(why);
        }
        // Dropping the open replies wakes their callers.
    }

    async fn talk(&mut self) -> Result<(), String> {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                heard = self.wire.back.recv() => match heard {
                    Some(Incoming::Said(message)) => self.receive(message)?,
                    Some(Incoming::Lost(id, why)) => {
                        self.answered(id, Err(CallError::new("unavailable", why)));
                    }
                    Some(Incoming::Ended(why)) => return Err(why),
                    None => return Err("it has ended".to_owned()),
                },
                order = self.orders.recv(), if self.open.len() < AT_ONCE => match order {
                    Some(order) => self.begin(order)?,
                    None => return Ok(()),
                },
                _ = looks.tick(), if !self.open.is_empty() => self.take_back()?,
            }
        }
    }

    fn begin(&mut self, order: QueuedRequest) -> Result<(), String> {
        let QueuedRequest {
            method,
            params,
            reply,
        } = order;
        if method.starts_with("notifications/") {
            return self.say(Outgoing::Notice(written(None, method, &params)));
        }
        if reply.is_closed() {
            return Ok(());
        }
        self.last += 1;
        let id = self.last;
        self.open.insert(id, reply);
        self.say(Outgoing::Request(id, written(Some(id), method, &params)))
    }

    fn receive(&mut self, message: Value) -> Result<(), String> {
        self.unasked += 1;
        if self.unasked > MAX_UNASKED {
            return Err("it keeps sending messages that nobody asked for".to_owned());
        }
        let method = message.get("method").and_then(Value::as_str);
        let id = message.get("id").filter(|id| !id.is_null());
        match (method, id) {
            (Some(method), Some(id)) if id.to_string().len() <= MAX_ID => {
                return self.say(Outgoing::Notice(answer(id, method)));
            }
            (Some("notifications/tools/list_changed"), None) => {
                self.state.changed.store(true, Ordering::Relaxed);
            }
            (None, Some(id)) if id.is_u64() => {
                let outcome = outcome(&message);
                self.answered(id.as_u64().unwrap_or_default(), outcome);
            }
            // Malformed, or ignored.
            _ => {}
        }
        Ok(())
    }

    fn answered(&mut self, id: u64, answer: Result<Value, CallError>) {
        // A response with an unknown id is ignored.
        if let Some(reply) = self.open.remove(&id) {
            self.unasked = 0;
            let _ = reply.send(answer);
        }
    }

    /// Cancels requests whose callers are gone.
    fn take_back(&mut self) -> Result<(), String> {
        let forgotten: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, reply)| reply.is_closed())
            .map(|(id, _)| *id)
            .collect();
        for id in forgotten {
            self.open.remove(&id);
            let params = json!({"requestId": id, "reason": "nobody waits for it any more"});
            self.say(Outgoing::Forget(id))?;
            self.say(Outgoing::Notice(written(
                None,
                "notifications/cancelled",
                &params,
            )))?;
        }
        Ok(())
    }

    fn say(&self, message: Outgoing) -> Result<(), String> {
        let said = self.wire.out.try_send(message);
        said.map_err(|_| "it stopped reading".to_owned())
    }
}

/// Returns the result or the error of a response.
fn outcome(message: &Value) -> Result<Value, CallError> {
    let Some(error) = message.get("error") else {
        return Ok(message.get("result").cloned().unwrap_or_default());
    };
    let said = error.get("message").and_then(Value::as_str);
    let kind = match error.get("code").and_then(Value::as_i64) {
        Some(-32602) => "invalid_arguments",
        _ => "failed",
    };
    Err(CallError::new(
        kind,
        said.unwrap_or("it failed, and does not say why"),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::wire::{TransportEnd, wire};
    use super::*;

    fn begun() -> (Client, TransportEnd, tokio::task::JoinSet<()>) {
        let (wire, carried) = wire();
        let (client, conversation) = conversation(wire);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(conversation.hold());
        (client, carried, tasks)
    }

    async fn heard(carried: &mut TransportEnd) -> Value {
        match carried.out.recv().await.unwrap() {
            Outgoing::Request(_, bytes) | Outgoing::Notice(bytes) => serde_json::from_slice(&bytes).unwrap(),
            Outgoing::Forget(id) => json!({"forget": id}),
        }
    }

    async fn say(carried: &TransportEnd, message: Value) {
        carried.back.send(Incoming::Said(message)).await.unwrap();
    }

    #[tokio::test]
    async fn lies_about_ids_change_nothing() {
        let (client, mut carried, _tasks) = begun();
        let server = async {
            let asked = heard(&mut carried).await;
            assert_eq!(asked["method"], "tools/list");
            for id in [json!(99), json!("1"), json!(-1), json!([1]), Value::Null] {
                say(&carried, json!({"id": id, "result": "a lie"})).await;
            }
            say(&carried, json!({"id": asked["id"], "result": "true"})).await;
            say(&carried, json!({"id": asked["id"], "result": "twice"})).await;
        };
        let (answer, ()) = tokio::join!(client.request("tools/list", json!({})), server);
        assert_eq!(answer, Ok(json!("true")));
        assert!(client.is_up());
    }

    #[tokio::test]
    async fn a_server_may_ask_for_little() {
        let (client, mut carried, _tasks) = begun();
        say(&carried, json!({"id": "a", "method": "ping"})).await;
        assert_eq!(heard(&mut carried).await["result"], json!({}));
        say(&carried, json!({"id": 1, "method": "sampling/createMessage"})).await;
        assert_eq!(heard(&mut carried).await["error"]["code"], -32601);
        assert!(!client.has_changed());
        say(&carried, json!({"method": "notifications/tools/list_changed"})).await;
        say(&carried, json!({"id": 2, "method": "ping"})).await;
        heard(&mut carried).await;
        assert!(client.has_changed() && !client.has_changed());
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_is_cancelled() {
        let (client, mut carried, _tasks) = begun();
        {
            let asking = client.request("tools/call", json!({"name": "a"}));
            tokio::select! {
                _ = asking => panic!("nobody answered"),
                asked = heard(&mut carried) => assert_eq!(asked["id"], 1),
            }
        }
        assert_eq!(heard(&mut carried).await, json!({"forget": 1}));
        let told = heard(&mut carried).await;
        assert_eq!(told["method"], "notifications/cancelled");
        assert_eq!(told["params"]["requestId"], 1);
    }

    #[tokio::test]
    async fn the_end_is_told_to_who_waits() {
        let (client, mut carried, _tasks) = begun();
        let server = async {
            heard(&mut carried).await;
            let ended = Incoming::Ended("it exploded".to_owned());
            carried.back.send(ended).await.unwrap();
        };
        let (answer, ()) = tokio::join!(client.request("tools/list", json!({})), server);
        let fault = answer.unwrap_err();
        assert_eq!(fault.kind, "unavailable");
        assert!(fault.message.ends_with("it exploded"), "{fault:?}");
        assert!(!client.is_up());
    }

    #[tokio::test]
    async fn a_server_that_does_not_listen_is_given_up() {
        let (client, carried, mut tasks) = begun();
        for id in 0..100 {
            let ping = Incoming::Said(json!({"id": id, "method": "ping"}));
            if carried.back.send(ping).await.is_err() {
                break;
            }
        }
        tasks.join_next().await;
        let fault = client.request("tools/list", json!({})).await.unwrap_err();
        assert!(fault.message.contains("stopped reading"), "{fault:?}");
    }
}
