//! Defines the messages between a client and a transport.

use ringfence_exec::bridge::check_shape;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Maximum size of a message. A result must fit into a bridge message, a page of a list need not.
pub(super) const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// Capacity of the channel to the server. It is full only if the server does not read.
const MAX_UNSENT: usize = 64;

/// Capacity of the channel from the server.
const MAX_UNHEARD: usize = 4;

/// A message to the transport.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A request with its id; expects a response.
    Request(u64, Vec<u8>),
    /// Anything else.
    Notice(Vec<u8>),
    /// The response to this request is no longer needed.
    Forget(u64),
}

/// A message from the transport.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A message of the server.
    Said(Value),
    /// The request with this id gets no response.
    Lost(u64, String),
    /// The connection has ended, with the reason.
    Ended(String),
}

/// The client's end.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) out: mpsc::Sender<Outgoing>,
    pub(super) back: mpsc::Receiver<Incoming>,
}

#[derive(Debug)]
pub(super) struct TransportEnd {
    pub(super) out: mpsc::Receiver<Outgoing>,
    pub(super) back: mpsc::Sender<Incoming>,
}

/// Creates both ends.
pub(super) fn wire() -> (Wire, TransportEnd) {
    let (out, unsent) = mpsc::channel(MAX_UNSENT);
    let (heard, back) = mpsc::channel(MAX_UNHEARD);
    let carried = TransportEnd {
        out: unsent,
        back: heard,
    };
    (Wire { out, back }, carried)
}

/// Parses a server's message. `None` if it is not JSON, as programs print by mistake.
///
/// # Errors
/// If it is too large or too deeply nested.
pub fn read(message: &[u8]) -> Result<Option<Value>, String> {
    if message.len() > MAX_MESSAGE {
        return Err(too_long());
    }
    check_shape(message).map_err(|error| format!("it sent what cannot be read: {error}"))?;
    Ok(serde_json::from_slice(message).ok())
}

pub(super) fn too_long() -> String {
    format!("it sent a message of more than {MAX_MESSAGE} bytes")
}

/// Serializes a request, or a notification if it has no id.
pub(super) fn written(id: Option<u64>, method: &str, params: &Value) -> Vec<u8> {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if let Some(id) = id {
        message["id"] = json!(id);
    }
    if !params.is_null() {
        message["params"] = params.clone();
    }
    bytes(&message)
}

/// Serializes the response to a request of the server: a result for `ping`, an error for anything else.
pub(super) fn answer(id: &Value, method: &str) -> Vec<u8> {
    bytes(&match method {
        "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        _ => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "not offered"}}),
    })
}

fn bytes(message: &Value) -> Vec<u8> {
    // Serialization cannot fail: the value consists of strings, numbers, lists and objects.
    serde_json::to_vec(message).unwrap_or_default()
}
