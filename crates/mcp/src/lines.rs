//! Transports MCP messages over standard input and output, one per line, within limits.

use std::any::Any;
use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, GetExtensions, GetMeta, JsonRpcMessage,
    ProtocolVersion, RequestId, RequestMetaObject,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

use ringfence_gateway_protocol::line_reader::{self, LineRead};

/// Maximum size of a message. A program of 8 MiB, escaped as JSON, fits.
pub(super) const MAX_LINE: usize = 16 * 1024 * 1024;

/// Maximum number of queued outgoing messages. At the limit, reading stops (backpressure).
const MAX_UNWRITTEN: usize = 64;

/// Size of the message that contained a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length(pub(super) usize);

/// A value that is kept until the call of a request has ended, with all that it started.
#[derive(Debug, Clone)]
pub(super) struct CallGuard(
    #[expect(dead_code, reason = "is there to be dropped")] pub(super) Arc<dyn Any + Send + Sync>,
);

/// The transport for the library's loop.
#[derive(Debug)]
pub(super) struct Lines<R> {
    lines: line_reader::Lines<R>,
    max_line: usize,
    /// Set after the first request: before it, notifications and responses have no addressee.
    opened: bool,
    /// Set after `initialize`, or after a request with the metadata of a stateless one.
    begun: bool,
    out: mpsc::Sender<Vec<u8>>,
    gone: watch::Sender<bool>,
}

/// The response to an invalid message.
#[derive(Debug)]
pub(super) struct Refusal {
    code: ErrorCode,
    pub(super) what: String,
    id: Option<RequestId>,
}

impl Refusal {
    fn message(self) -> TxJsonRpcMessage<RoleServer> {
        JsonRpcMessage::error(ErrorData::new(self.code, self.what, None), self.id)
    }
}

/// Queued outgoing messages.
pub(super) type Unwritten = mpsc::Receiver<Vec<u8>>;

impl<R: AsyncRead + Unpin + Send> Lines<R> {
    /// Creates a transport that reads from `reader`, and the queue for [`write_lines`]. Sets `gone` when the
    /// client disconnects.
    pub(super) fn new(reader: R, max_line: usize, gone: watch::Sender<bool>) -> (Self, Unwritten) {
        let (out, unwritten) = mpsc::channel(MAX_UNWRITTEN);
        let lines = Self {
            lines: line_reader::Lines::new(reader, max_line),
            max_line,
            opened: false,
            begun: false,
            out,
            gone,
        };
        (lines, unwritten)
    }

    /// Receives the next valid message. Invalid ones get an error response, or are ignored where the protocol
    /// demands it.
    async fn message(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            // Reads nothing from a client that does not read its responses.
            drop(self.out.reserve().await.ok()?);
            let out = self.out.clone();
            let next = tokio::select! {
                next = self.lines.next() => next,
                () = out.closed() => return None,
            };
            let refusal = match next {
                Ok(LineRead::Line(line)) => match self.understood(&line) {
                    Ok(Some(message)) => return Some(message),
                    Ok(None) => continue,
                    Err(refusal) => refusal,
                },
                Ok(LineRead::TooLong) => too_long(self.max_line),
                Ok(LineRead::End) | Err(_) => return None,
            };
            self.out.send(encode(&refusal.message()).ok()?).await.ok()?;
        }
    }

    /// Parses a line, or returns the error response.
    fn understood(&mut self, line: &[u8]) -> Result<Option<ClientJsonRpcMessage>, Refusal> {
        let Some(mut message) = parse(line)? else {
            return Ok(None);
        };
        if let JsonRpcMessage::Request(request) = &mut message {
            if !self.begun {
                self.begun = begins(&request.request).map_err(|what| Refusal {
                    code: ErrorCode::INVALID_PARAMS,
                    what,
                    id: Some(request.id.clone()),
                })?;
            }
            self.opened = true;
            request.request.extensions_mut().insert(Length(line.len()));
        }
        Ok(Some(message).filter(|_| self.opened))
    }
}

/// Returns `true` if a request begins the conversation, and `false` if it may precede the beginning.
///
/// # Errors
/// If neither; the library's own message names the metadata of stateless requests only.
fn begins(request: &ClientRequest) -> Result<bool, String> {
    match request {
        ClientRequest::InitializeRequest(_) => Ok(true),
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => Ok(false),
        ClientRequest::CustomRequest(custom) if custom.method == "initialize" => {
            Err(incomplete(custom.params.as_ref()))
        }
        other => match is_stateless(other) {
            true => Ok(true),
            false => Err(format!(
                "expected `initialize` as the first request, found `{}`",
                other.method().escape_debug().take(MAX_METHOD).collect::<String>()
            )),
        },
    }
}

/// Maximum length of a method's name in an error.
const MAX_METHOD: usize = 80;

/// Returns `true` if the request has any metadata of stateless requests; the library checks the rest.
pub(super) fn is_stateless(request: &ClientRequest) -> bool {
    let version = ProtocolVersion::V_2026_07_28;
    let missing = request.get_meta().missing_required_keys(&version);
    let all = RequestMetaObject::default().missing_required_keys(&version);
    missing.len() < all.len()
}

/// Returns the error for an `initialize` without a required parameter, or with one of another type.
pub(super) fn incomplete(params: Option<&Value>) -> String {
    const NEEDED: [&str; 3] = ["protocolVersion", "capabilities", "clientInfo"];
    let has = |name: &&&str| params.is_some_and(|params| params.get(**name).is_some());
    let missing: Vec<String> = NEEDED
        .iter()
        .filter(|name| !has(name))
        .map(|name| format!("`{name}`"))
        .collect();
    let found = match missing.is_empty() {
        true => "one of another type".to_owned(),
        false => format!("no {}", missing.join(", ")),
    };
    format!(
        "`initialize` needs `protocolVersion` (a string), `capabilities` (an object) and `clientInfo` (an object with `name` and \
         `version`), found {found}"
    )
}

impl<R: AsyncRead + Unpin + Send + 'static> Transport<RoleServer> for Lines<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let out = self.out.clone();
        async move {
            let line = encode(&message)?;
            let gone = |_| io::ErrorKind::BrokenPipe.into();
            out.send(line).await.map_err(gone)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.message().await;
        if message.is_none() {
            self.gone.send_replace(true);
        }
        message
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes messages until the queue is closed or the reader is gone.
pub(super) async fn write_lines(mut writer: impl AsyncWrite + Unpin, mut unwritten: Unwritten) {
    while let Some(line) = unwritten.recv().await {
        let written = async {
            writer.write_all(&line).await?;
            writer.flush().await
        };
        if written.await.is_err() {
            return;
        }
    }
}

fn encode(message: &TxJsonRpcMessage<RoleServer>) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Returns the error response to a line that is not a valid message. `None` if it is valid or ignored.
pub fn refusal(line: &[u8]) -> Option<Vec<u8>> {
    parse(line)
        .err()
        .and_then(|refusal| encode(&refusal.message()).ok())
}

/// Parses a message. `None` for an empty line and for an unknown notification.
pub(super) fn parse(line: &[u8]) -> Result<Option<ClientJsonRpcMessage>, Refusal> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let error = match serde_json::from_slice(line) {
        Ok(message) => return Ok(Some(message)),
        Err(error) => error,
    };
    let Ok(value) = serde_json::from_slice::<Value>(line) else {
        // Texts that are skipped may have any escape, such as half of a surrogate pair, which some clients send.
        let id = serde_json::from_slice(line).ok().and_then(|OnlyId { id }| id);
        return Err(Refusal {
            code: match id {
                Some(_) => ErrorCode::INVALID_REQUEST,
                None => ErrorCode::PARSE_ERROR,
            },
            what: format!("not JSON: {error}"),
            id,
        });
    };
    if value.get("method").is_some_and(Value::is_string) && value.get("id").is_none() {
        return Ok(None);
    }
    Err(Refusal {
        code: ErrorCode::INVALID_REQUEST,
        what: "not a message of JSON-RPC 2.0".to_owned(),
        id: id_of(&value),
    })
}

/// The id of a message. Nothing else of it is parsed.
#[derive(Deserialize)]
struct OnlyId {
    id: Option<RequestId>,
}

/// Returns the id of an invalid message, if it has one.
fn id_of(value: &Value) -> Option<RequestId> {
    match value.get("id")? {
        Value::String(text) => Some(RequestId::String(text.as_str().into())),
        Value::Number(number) => number.as_i64().map(RequestId::Number),
        _ => None,
    }
}

fn too_long(limit: usize) -> Refusal {
    Refusal {
        code: ErrorCode::INVALID_REQUEST,
        what: format!("the message is longer than {limit} bytes"),
        id: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use tokio::io::AsyncReadExt;

    const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

    /// Returns the methods of valid messages in `input`, and the responses to the others.
    async fn check(input: &[u8], max_line: usize) -> (Vec<String>, Vec<Value>) {
        let (gone, _) = watch::channel(false);
        let (mut lines, unwritten) = Lines::new(Cursor::new(input.to_vec()), max_line, gone);
        let mut understood = Vec::new();
        while let Some(message) = lines.receive().await {
            let value = serde_json::to_value(message).unwrap();
            understood.push(value["method"].as_str().unwrap_or("answer").to_owned());
        }
        assert!(*lines.gone.borrow());
        drop(lines);
        let (writer, mut reader) = tokio::io::duplex(1 << 20);
        write_lines(writer, unwritten).await;
        let mut text = String::new();
        reader.read_to_string(&mut text).await.unwrap();
        let answers = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (understood, answers.collect())
    }

    async fn refused(line: &[u8], code: i64, id: Value) {
        let input = [line, b"\n", PING.as_bytes(), b"\n"].concat();
        let (understood, answers) = check(&input, 1000).await;
        let shown = String::from_utf8_lossy(line).into_owned();
        assert_eq!(understood, ["ping"], "{shown}");
        assert_eq!(answers.len(), 1, "{shown}: {answers:?}");
        assert_eq!(answers[0]["error"]["code"], code, "{shown}: {answers:?}");
        assert_eq!(
            answers[0].get("id").cloned().unwrap_or(Value::Null),
            id,
            "{shown}"
        );
    }

    #[tokio::test]
    async fn what_is_no_message_is_answered_and_the_next_one_understood() {
        refused(b"garbage", -32700, Value::Null).await;
        refused(b"{\"jsonrpc\":\"2.0\",", -32700, Value::Null).await;
        refused(b"\"\xff\xfe\"", -32700, Value::Null).await;
        let lone = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"\ud83d"}}"#;
        refused(lone, -32600, 7.into()).await;
        refused(&[b'['; 900], -32700, Value::Null).await;
        refused(b"{}", -32600, Value::Null).await;
        refused(b"[]", -32600, Value::Null).await;
        refused(b"null", -32600, Value::Null).await;
        refused(br#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#, -32600, 4.into()).await;
        refused(
            br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            -32600,
            Value::Null,
        )
        .await;
        refused(br#"{"jsonrpc":"2.0","id":"a","method":5}"#, -32600, "a".into()).await;
        refused(
            br#"[{"jsonrpc":"2.0","id":4,"method":"ping"}]"#,
            -32600,
            Value::Null,
        )
        .await;
        refused(&[b'x'; 1001], -32600, Value::Null).await;
        refused(&[b'x'; 100_000], -32600, Value::Null).await;
    }

    #[tokio::test]
    async fn the_first_request_is_initialize_with_its_parameters() {
        let wrong = |method: &str, params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
        };
        for (line, expected) in [
            (
                wrong("initialize", r#"{"protocolVersion":"2025-06-18"}"#),
                "found no `capabilities`, `clientInfo`",
            ),
            (
                wrong("tools/list", "{}"),
                "expected `initialize` as the first request, found `tools/list`",
            ),
        ] {
            let input = format!("{line}\n{PING}\n");
            let (understood, answers) = check(input.as_bytes(), 1000).await;
            assert_eq!(understood, ["ping"]);
            let message = answers[0]["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(expected), "{answers:?}");
            assert_eq!(answers[0]["id"], 1);
        }
        let about =
            r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}"#;
        let input = format!("{}\n{}\n", wrong("initialize", about), wrong("tools/list", "{}"));
        assert_eq!(
            check(input.as_bytes(), 1000).await.0,
            ["initialize", "tools/list"]
        );
    }

    #[tokio::test]
    async fn what_may_be_ignored_is() {
        let input = format!(
            "\n  \r\n{PING}\r\n{}\n{}\n{PING}\n",
            r#"{"jsonrpc":"2.0","method":"$/unheard","params":5}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#
        );
        let (understood, answers) = check(input.as_bytes(), 1000).await;
        assert_eq!(understood, ["ping", "notifications/initialized", "ping"]);
        assert_eq!(answers, [Value::Null; 0]);
    }

    #[tokio::test]
    async fn nothing_but_a_request_opens_a_connection() {
        let input = format!(
            "{}\n{}\n{PING}\n",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#
        );
        assert_eq!(check(input.as_bytes(), 1000).await.0, ["ping"]);
    }

    #[tokio::test]
    async fn a_line_of_exactly_the_limit_is_understood() {
        let line = format!("{PING}\n");
        assert_eq!(check(line.as_bytes(), PING.len()).await.0, ["ping"]);
        assert_eq!(check(line.as_bytes(), PING.len() - 1).await.0, [""; 0]);
    }

    #[tokio::test]
    async fn a_line_without_its_end_is_no_message() {
        assert_eq!(check(PING.as_bytes(), 1000).await.0, [""; 0]);
    }

    #[tokio::test]
    async fn nothing_is_read_while_answers_pile_up() {
        let (gone, _) = watch::channel(false);
        let input = Cursor::new("x\n".repeat(10 * MAX_UNWRITTEN));
        let (mut lines, mut unwritten) = Lines::new(input, 1000, gone);
        let reading = lines.receive();
        tokio::pin!(reading);
        for _ in 0..3 {
            // If nothing is written, reading stops at the limit.
            tokio::select! {
                biased;
                _ = &mut reading => panic!("everything was read"),
                () = std::future::ready(()) => {}
            }
        }
        assert_eq!(unwritten.len(), MAX_UNWRITTEN);
        while !unwritten.is_empty() {
            unwritten.try_recv().unwrap();
        }
        tokio::select! {
            biased;
            _ = &mut reading => panic!("everything was read"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(unwritten.len(), MAX_UNWRITTEN);
    }

    #[tokio::test]
    async fn a_client_that_closes_its_end_is_gone() {
        let (gone, seen) = watch::channel(false);
        let (reader, _open) = tokio::io::duplex(100);
        let (mut lines, unwritten) = Lines::new(reader, 1000, gone);
        drop(unwritten);
        assert!(lines.receive().await.is_none());
        assert!(*seen.borrow());
    }
}
