//! Server-sent events of a running program: `stdout`, `stderr`, then `result` or `error`.

use std::time::Duration;

use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use ringfence_exec::local::{Chunk, Stream};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::content::Content;
use super::invocation::Invocation;
use super::stream;

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
    stdout: Decoder,
    stderr: Decoder,
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
        stdout: Decoder::default(),
        stderr: Decoder::default(),
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
            match watched.invocation.answer().await {
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
        printed("stdout", &self.stdout.end()) + &printed("stderr", &self.stderr.end())
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

/// Decodes UTF-8 that arrives in pieces. Invalid bytes become U+FFFD, as in a result.
#[derive(Default)]
struct Decoder {
    /// The beginning of a character.
    begun: Vec<u8>,
}

impl Decoder {
    fn push(&mut self, bytes: &[u8]) -> String {
        self.begun.extend_from_slice(bytes);
        let end = self.begun.len() - unfinished(&self.begun);
        let rest = self.begun.split_off(end);
        let whole = std::mem::replace(&mut self.begun, rest);
        String::from_utf8_lossy(&whole).into_owned()
    }

    fn end(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned()
    }
}

/// Returns the length of the character at the end of `bytes` that has begun but is not complete.
fn unfinished(bytes: &[u8]) -> usize {
    for (back, byte) in bytes.iter().rev().take(3).enumerate() {
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if length > back + 1 { back + 1 } else { 0 };
    }
    0
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
    fn characters_survive_any_cut_and_nothing_waits_for_ever() {
        let text = "aé€𝄞\n".repeat(3);
        for size in 1..9 {
            let mut decoder = Decoder::default();
            let mut got = String::new();
            for piece in text.as_bytes().chunks(size) {
                got += &decoder.push(piece);
                assert!(decoder.begun.len() <= 3);
            }
            assert_eq!(got + &decoder.end(), text, "{size}");
        }
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push(b"\xff\x80x\xe2\x82"), "\u{fffd}\u{fffd}x");
        assert_eq!(decoder.end(), "\u{fffd}");
    }

    #[test]
    fn output_cannot_begin_another_event() {
        let told = printed("stdout", "x\n\nevent: result\ndata: {}\n\n");
        assert_eq!(told.matches("event: ").count(), 2);
        assert_eq!(told.lines().filter(|line| line.starts_with("event: ")).count(), 1);
    }
}
