//! Server-sent events of a running program: `stdout`, `stderr`, then `result` or `error`.

use std::time::Duration;

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use ringfence_exec::local::{Chunk, Stream};
use ringfence_sandbox::TextDecoder;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::content::Content;
use super::invocation::Invocation;
use super::{run, stream};

pub(super) const MEDIA: &str = "text/event-stream";

/// The content of an answer of events.
pub(super) const CONTENT: Content = Content::new(&[MEDIA], |_| {
    schemars::json_schema!({
        "type": "string",
        "description": "Events: `stdout` and `stderr` with `{\"text\"}` as the program prints, then `result` with the \
            result, or `error` with `{\"error\"}`. Comments keep the connection open.",
    })
});

/// Interval of comments while nothing happens: proxies close connections without traffic.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(10);

/// A comment, which clients ignore.
pub(super) const COMMENT: &str = ":\n\n";

/// A program whose output is sent.
struct Watched {
    invocation: Invocation,
    chunks: mpsc::Receiver<Chunk>,
    stdout: TextDecoder,
    stderr: TextDecoder,
    phase: Phase,
}

#[derive(Clone, Copy)]
enum Phase {
    Running,
    /// All output is sent; the result is not.
    Ended,
    Done,
}

/// Returns the events of a program. Dropping the response cancels the program.
pub(super) fn response(invocation: Invocation, chunks: mpsc::Receiver<Chunk>) -> Response {
    let watched = Watched {
        invocation,
        chunks,
        stdout: TextDecoder::default(),
        stderr: TextDecoder::default(),
        phase: Phase::Running,
    };
    let body = stream::body(watched, |watched| Box::pin(next(watched)));
    ([(header::CONTENT_TYPE, MEDIA)], body).into_response()
}

async fn next(mut watched: Watched) -> Option<(Bytes, Watched)> {
    let text = match watched.phase {
        Phase::Running => match tokio::time::timeout(HEARTBEAT, watched.chunks.recv()).await {
            Ok(Some(chunk)) => watched.output(&chunk),
            Ok(None) => {
                watched.phase = Phase::Ended;
                watched.rest()
            }
            Err(_) => COMMENT.to_owned(),
        },
        Phase::Ended => {
            watched.phase = Phase::Done;
            match watched.invocation.answer().await.map_err(run::of_body) {
                // The text is the result's JSON, on one line.
                Ok(answer) => format!("event: result\ndata: {}\n\n", answer.text),
                Err(error) => event("error", &error.to_json()),
            }
        }
        Phase::Done => return None,
    };
    Some((text.into(), watched))
}

impl Watched {
    fn output(&mut self, chunk: &Chunk) -> String {
        let (name, decoder) = match chunk.stream {
            Stream::Stdout => ("stdout", &mut self.stdout),
            Stream::Stderr => ("stderr", &mut self.stderr),
        };
        printed(name, &decoder.push(&chunk.bytes))
    }

    /// Returns the events of characters that were never completed.
    fn rest(&mut self) -> String {
        printed("stdout", &self.stdout.finish()) + &printed("stderr", &self.stderr.finish())
    }
}

fn printed(name: &str, text: &str) -> String {
    match text.is_empty() {
        true => String::new(),
        false => event(name, &json!({ "text": text })),
    }
}

/// Renders an event. JSON has no raw line breaks, so a program's output cannot begin another event.
pub(super) fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Returns the name and data of the event of a piece of output: as text, or in base64 what is none.
pub(super) fn output_event(chunk: &Chunk) -> (&'static str, Value) {
    let name = match chunk.stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    let data = match std::str::from_utf8(&chunk.bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "base64": STANDARD.encode(&chunk.bytes) }),
    };
    (name, data)
}

/// Returns `true` if a client wants events.
pub(super) fn accepts(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get_all(header::ACCEPT)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    let mut media = accepted.flat_map(|value| value.split(','));
    media.any(|media| media.split(';').next().is_some_and(|media| media.trim() == MEDIA))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_cannot_begin_another_event() {
        let told = printed("stdout", "x\n\nevent: result\ndata: {}\n\n");
        assert_eq!(told.matches("event: ").count(), 2);
        assert_eq!(told.lines().filter(|line| line.starts_with("event: ")).count(), 1);
    }
}
