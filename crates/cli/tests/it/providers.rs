//! Model APIs: real HTTP in the providers' formats, with responses of the test's choice, and a record of
//! every request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// The two API formats of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Anthropic,
    OpenAi,
}

pub(crate) const FORMATS: [Format; 2] = [Format::Anthropic, Format::OpenAi];

/// The response of an API to a request.
pub(crate) enum Reply {
    /// Sends this and hangs up.
    Whole(String),
    /// Sends the first, then the second for ever.
    Endless(String, &'static str),
    /// Sends one byte after another, slowly and for ever.
    Trickle(String),
    /// Sends nothing and stays connected.
    Silence,
}

/// An API, and its recorded requests.
pub(crate) struct Provider {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Format {
    pub(crate) fn model(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic/small",
            Self::OpenAi => "openai/small",
        }
    }

    /// Returns a response body with this text and stop reason.
    pub(crate) fn ended(self, text: &str, reason: &str) -> Value {
        match self {
            Self::Anthropic => json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "small",
                "content": [{"type": "text", "text": text}],
                "stop_reason": reason, "stop_sequence": null,
                "usage": {"input_tokens": 300, "output_tokens": 1},
            }),
            Self::OpenAi => json!({
                "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "small",
                "choices": [{"index": 0, "finish_reason": reason,
                    "message": {"role": "assistant", "content": text, "refusal": null}}],
                "usage": {"prompt_tokens": 300, "completion_tokens": 1, "total_tokens": 301},
            }),
        }
    }

    /// Returns the body of a complete response with this text.
    pub(crate) fn says(self, text: &str) -> Value {
        self.ended(
            text,
            match self {
                Self::Anthropic => "end_turn",
                Self::OpenAi => "stop",
            },
        )
    }
}

impl Reply {
    pub(crate) fn body(body: &Value) -> Self {
        Self::with("200 OK\r\nContent-Type: application/json", &body.to_string())
    }

    pub(crate) fn with(head: &str, body: &str) -> Self {
        let length = body.len();
        Self::Whole(format!(
            "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ))
    }
}

impl Provider {
    /// Creates an API that responds to each request by its text.
    pub(crate) fn new(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, reply) = (Arc::clone(&requests), Arc::new(reply));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, seen, reply) = (stream.unwrap(), Arc::clone(&seen), Arc::clone(&reply));
                std::thread::spawn(move || {
                    let request = read(&mut stream);
                    seen.lock().unwrap().push(request.clone());
                    // The client may have disconnected.
                    let _ = answer(&mut stream, reply(&request));
                });
            }
        });
        Self { port, requests }
    }

    /// Creates an API whose model always answers this.
    pub(crate) fn saying(format: Format, text: &str) -> Self {
        let body = format.says(text);
        Self::new(move |_| Reply::body(&body))
    }

    /// Returns every request, unmodified.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(stream: &mut TcpStream, reply: Reply) -> std::io::Result<()> {
    match reply {
        Reply::Whole(text) => stream.write_all(text.as_bytes()),
        Reply::Endless(first, rest) => {
            stream.write_all(first.as_bytes())?;
            loop {
                stream.write_all(rest.as_bytes())?;
            }
        }
        Reply::Trickle(first) => {
            stream.write_all(first.as_bytes())?;
            loop {
                stream.write_all(b" ")?;
                std::thread::park_timeout(Duration::from_millis(10));
            }
        }
        // Waits until the client disconnects.
        Reply::Silence => stream.read(&mut [0]).map(drop),
    }
}

fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !is_whole(&bytes) {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .to_ascii_lowercase()
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}
