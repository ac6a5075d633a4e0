//! The requests of a kernel, answered in turn.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cell;
use crate::kernel::{Shared, Status};
use crate::message::Incoming;
use crate::peer::Request;
use crate::questions::{self, failure};

/// Requests that wait for a kernel.
const MAX_REQUESTS: usize = 1024;

/// A kernel's request queue, and the task that serves it. Dropping it ends the task.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    requests: mpsc::Sender<Request>,
    _task: JoinSet<()>,
}

impl RequestQueue {
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        let (requests, pending) = mpsc::channel(MAX_REQUESTS);
        let mut task = JoinSet::new();
        task.spawn(serve(shared, pending));
        Self {
            requests,
            _task: task,
        }
    }

    /// Adds a request; returns `false` if too many wait.
    pub(crate) fn add(&self, request: Request) -> bool {
        self.requests.try_send(request).is_ok()
    }
}

/// Answers requests until there are no more. A cell that fails takes those with it that wait behind it.
async fn serve(shared: Arc<Shared>, mut requests: mpsc::Receiver<Request>) {
    while let Some(request) = requests.recv().await {
        if !answer(&shared, &request).await {
            continue;
        }
        while let Ok(request) = requests.try_recv() {
            match request.message.header.msg_type == "execute_request" {
                true => abort(&shared, &request).await,
                false => drop(answer(&shared, &request).await),
            }
        }
    }
}

/// Answers a request. Returns `true` if it was a cell whose failure stops those behind it.
async fn answer(kernel: &Shared, request: &Request) -> bool {
    let header = &request.message.header;
    let kind = header.msg_type.as_str();
    if request.restarts != kernel.restarts() {
        abort(kernel, request).await;
        return false;
    }
    // An error is told with the first code.
    drop(kernel.extend());
    kernel.set_status(Status::Busy, header).await;
    let stops = match kind {
        "execute_request" => cell::execute(kernel, request).await,
        _ => {
            if let Some(content) = content(kernel, &request.message).await {
                let reply = kind.replace("_request", "_reply");
                kernel.reply(request, &reply, content).await;
            }
            false
        }
    };
    kernel.set_status(Status::Idle, header).await;
    stops
}

/// The content of requests about code.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Question {
    code: String,
    /// In characters. The end of the code by default.
    cursor_pos: Option<u64>,
    detail_level: u64,
}

/// The content of `comm_open`.
#[derive(Debug, Deserialize)]
struct CommOpen {
    comm_id: String,
}

/// Returns the content of the answer to a request that runs no cell; `None` if the message gets no answer.
async fn content(kernel: &Shared, message: &Incoming) -> Option<Value> {
    let forms = kernel.kind.forms;
    let Question {
        code,
        cursor_pos,
        detail_level,
    } = message.content().unwrap_or_default();
    let cursor = cursor_pos.unwrap_or_else(|| code.chars().count() as u64);
    Some(match message.header.msg_type.as_str() {
        "kernel_info_request" => kernel.info().await,
        "complete_request" => {
            let answer = kernel.ask("complete", &json!([code, cursor])).await;
            questions::completions(&answer, cursor, forms)
        }
        "inspect_request" => {
            let answer = kernel.ask("describe", &json!([code, cursor, detail_level])).await;
            questions::description(&answer, forms)
        }
        "is_complete_request" => questions::completeness(&kernel.ask("is_complete", &json!([code])).await),
        "history_request" => json!({"status": "ok", "history": []}),
        "comm_info_request" => json!({"status": "ok", "comms": {}}),
        "comm_open" => {
            // Nothing here has such a target.
            let CommOpen { comm_id } = message.content().ok()?;
            let content = json!({"comm_id": comm_id, "data": {}});
            kernel.broadcast("comm_close", &message.header, content).await;
            return None;
        }
        other if other.ends_with("_request") => {
            failure("NotSupported", "kernels of this server do not answer it", None)
        }
        _ => return None,
    })
}

/// Answers that a cell was not run.
async fn abort(kernel: &Shared, request: &Request) {
    let header = &request.message.header;
    kernel.set_status(Status::Busy, header).await;
    let reply = header.msg_type.replace("_request", "_reply");
    let content = json!({"status": "aborted"});
    kernel.reply(request, &reply, content).await;
    kernel.set_status(Status::Idle, header).await;
}
