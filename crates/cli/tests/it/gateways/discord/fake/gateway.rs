//! The gateway of the fake: a socket on which a bot identifies itself and receives presses.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message as Frame, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{BOT, Order, Shared, TOKEN, World};

/// Serves one gateway connection.
pub(super) async fn gateway(State(state): Shared, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(move |socket| converse(socket, state))
}

async fn converse(mut socket: WebSocket, state: Arc<Mutex<World>>) {
    let (orders, mut todo) = mpsc::unbounded_channel();
    let interval = state.lock().unwrap().heartbeat_interval;
    let mut waiting = vec![json!({"op": 10, "d": {"heartbeat_interval": interval}})];
    loop {
        for event in waiting.drain(..) {
            if socket.send(Frame::Text(event.to_string().into())).await.is_err() {
                return;
            }
        }
        tokio::select! {
            frame = socket.recv() => {
                let Some(Ok(Frame::Text(text))) = frame else { return };
                let said: Value = serde_json::from_str(&text).unwrap();
                match state.lock().unwrap().hear(said, &orders) {
                    Ok(events) => waiting = events,
                    Err(code) => drop(orders.send(Order::Close(code))),
                }
            }
            order = todo.recv() => match order.unwrap() {
                Order::Send(event) => waiting.push(event),
                Order::Cut => return,
                Order::Close(code) => {
                    let frame = CloseFrame { code, reason: "".into() };
                    drop(socket.send(Frame::Close(Some(frame))).await);
                }
            }
        }
    }
}

impl World {
    /// Returns the gateway's responses, or the close code.
    fn hear(&mut self, said: Value, orders: &mpsc::UnboundedSender<Order>) -> Result<Vec<Value>, u16> {
        match said["op"].as_u64().unwrap() {
            1 => {
                self.heartbeats += 1;
                return Ok(if self.mute {
                    vec![]
                } else {
                    vec![json!({"op": 11})]
                });
            }
            2 | 6 => {}
            _ => return Err(4001),
        }
        self.hellos.push(said.clone());
        let token = said["d"]["token"].as_str().unwrap();
        if token.trim_start_matches("Bot ") != TOKEN {
            return Err(4004);
        }
        if let Some(code) = self.close_with {
            return Err(code);
        }
        self.live = Some(orders.clone());
        if said["op"] == 2 {
            assert_eq!(said["d"]["intents"], 0, "it asks for more than it needs");
            return Ok(vec![self.begin()]);
        }
        let session = self.session.to_string();
        let seen = said["d"]["seq"].as_u64().unwrap();
        if said["d"]["session_id"] != session.as_str() || seen > self.events.len() as u64 {
            self.live = None;
            return Ok(vec![json!({"op": 9, "d": false})]);
        }
        let mut events: Vec<Value> = self.events[seen as usize..].to_vec();
        let resumed = json!({"op": 0, "t": "RESUMED", "s": self.events.len() + 1, "d": {}});
        self.events.push(resumed.clone());
        events.push(resumed);
        Ok(events)
    }

    fn begin(&mut self) -> Value {
        self.session = self.id();
        let ready = json!({"op": 0, "t": "READY", "s": 1, "d": {
            "v": 10, "guilds": [{"id": "77", "unavailable": true}], "session_id": self.session.to_string(),
            "resume_gateway_url": format!("ws://{}/resume", self.address), "shard": [0, 1],
            "application": {"id": BOT.to_string(), "flags": 0},
            "user": {
                "id": BOT.to_string(), "username": "ringfence", "discriminator": "0", "avatar": null, "bot": true,
                "mfa_enabled": false, "verified": true, "email": null, "flags": 0,
            },
        }});
        self.events = vec![ready.clone()];
        ready
    }

    /// Forgets the session, as after an outage.
    pub(in super::super) fn forget_session(&mut self) {
        self.session = 0;
    }
}
