//! What goes between us and a server, however it is carried.

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::bridge::check_shape;

/// The longest message. A result must fit into a line of a bridge, a page of a list need not.
pub(super) const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// Messages that wait to be carried. A server that lets more pile up does not listen.
const MAX_UNSENT: usize = 64;

/// Messages that wait to be understood.
const MAX_UNHEARD: usize = 4;

/// To a server.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A request with its id; its answer is waited for.
    Request(u64, Vec<u8>),
    /// Anything else.
    Notice(Vec<u8>),
    /// Nobody waits any more for the answer to this request.
    Forget(u64),
}

/// From a server, or from what carries its messages.
#[derive(Debug)]
pub(super) enum Incoming {
    /// It said this.
    Said(Value),
    /// The request with this id gets no answer.
    Lost(u64, String),
    /// It says nothing more.
    Ended(String),
}

/// Our end.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) out: mpsc::Sender<Outgoing>,
    pub(super) back: mpsc::Receiver<Incoming>,
}

/// The carrier's end.
#[derive(Debug)]
pub(super) struct Carried {
    pub(super) out: mpsc::Receiver<Outgoing>,
    pub(super) back: mpsc::Sender<Incoming>,
}

/// Both ends.
pub(super) fn wire() -> (Wire, Carried) {
    let (out, unsent) = mpsc::channel(MAX_UNSENT);
    let (heard, back) = mpsc::channel(MAX_UNHEARD);
    let carried = Carried {
        out: unsent,
        back: heard,
    };
    (Wire { out, back }, carried)
}

/// What a server's message says; `None` for what is no JSON at all, as programs print it by mistake.
///
/// # Errors
/// If it is too much to be read.
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

/// A request, or without an id a notice.
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

/// The answer to a request of the server's: to `ping`, and that we do nothing else for it.
pub(super) fn answer(id: &Value, method: &str) -> Vec<u8> {
    bytes(&match method {
        "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        _ => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "not offered"}}),
    })
}

fn bytes(message: &Value) -> Vec<u8> {
    // Of texts, numbers and lists of them alone: that can always be written.
    serde_json::to_vec(message).unwrap_or_default()
}
