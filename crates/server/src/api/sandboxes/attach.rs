//! Terminals of processes over a WebSocket (RFC 6455).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use axum::routing::on;
use futures_util::{SinkExt, StreamExt};
use ringfence_sandbox::output::{Item, Reader};
use ringfence_sandbox::process::Process;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::super::error::{ApiError, Reason};
use super::super::events;
use super::super::extract::{InActiveProcess, Params};
use super::super::route::{Route, route};
use super::super::websocket;
use super::processes::{FROM, OutputQuery, Terminal};

/// Maximum size of a client's message, in bytes.
const MAX_MESSAGE: usize = 64 * 1024;

/// Time that a client has to close its end.
const CLOSING: Duration = Duration::from_secs(1);

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/v1/sandboxes/{id}/processes/{pid}/attach",
            "Attach to the terminal of a process, over a WebSocket: binary messages are what is typed and what is shown. Texts are \
             JSON: `{\"resize\": {\"columns\", \"rows\"}}` of the client; `{\"lost\": BYTES}`, where output is no longer kept, and \
             `{\"end\": END}` of the server. Closing the WebSocket leaves the process as it is.",
            vec![websocket::SWITCHED],
            |method| on(method, attach),
        )
        .with_parameters(&[FROM])
        .recorded_as("sandbox.attach"),
    ]
}

/// A text of a client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Control {
    resize: Terminal,
}

/// Refuses what only a process in a terminal has.
pub(super) fn check_terminal(process: &Process, hint: &str) -> Result<(), ApiError> {
    match process.info().terminal {
        true => Ok(()),
        false => Err(ApiError::new(
            Reason::Conflict,
            "the process has no terminal",
            hint,
        )),
    }
}

async fn attach(
    Params(OutputQuery { from }): Params<OutputQuery>,
    InActiveProcess(process): InActiveProcess,
    request: Request,
) -> Result<Response, ApiError> {
    check_terminal(
        &process,
        "start it with `terminal`, or follow its output by `GET …/output`",
    )?;
    let reader = process.output.read_from(from);
    websocket::begin(request, MAX_MESSAGE, |socket| {
        Attached::new(socket, process).serve(reader)
    })
}

/// A client at the terminal of a process.
struct Attached<S> {
    socket: WebSocketStream<S>,
    process: Arc<Process>,
    /// Input on its way to the process.
    typed: mpsc::Sender<Vec<u8>>,
    /// Writes the input, while output goes on.
    _writer: JoinSet<()>,
}

/// An event at a terminal.
enum Event {
    Output(Option<Item>),
    Message(Option<Result<Message, Error>>, Option<mpsc::OwnedPermit<Vec<u8>>>),
    /// Nothing for a while.
    Idle,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Attached<S> {
    fn new(socket: WebSocketStream<S>, process: Arc<Process>) -> Self {
        let (typed, mut pending) = mpsc::channel::<Vec<u8>>(1);
        let mut writer = JoinSet::new();
        let of = Arc::clone(&process);
        writer.spawn(async move {
            while let Some(bytes) = pending.recv().await
                && of.write(bytes).await
            {}
        });
        Self {
            socket,
            process,
            typed,
            _writer: writer,
        }
    }

    /// Passes on what is typed and shown, until the process has ended or the client leaves.
    async fn serve(mut self, mut reader: Reader) {
        loop {
            let served = match self.next(&mut reader).await {
                Event::Output(Some(item)) => self.show(item).await,
                Event::Message(Some(Ok(message)), permit) => self.take(message, permit).await,
                Event::Idle => self.socket.send(Message::Ping(Vec::new().into())).await,
                Event::Output(None) => return self.close(CloseCode::Normal, "").await,
                Event::Message(..) => return,
            };
            // An error ends it: there is no one to report it to.
            if served.is_err() {
                return;
            }
        }
    }

    async fn next(&mut self, reader: &mut Reader) -> Event {
        let message = async {
            // Taken once the process has room for it. None, if its input is closed.
            let permit = self.typed.clone().reserve_owned().await.ok();
            (self.socket.next().await, permit)
        };
        tokio::select! {
            item = reader.next() => Event::Output(item),
            (message, permit) = message => Event::Message(message, permit),
            () = tokio::time::sleep(events::HEARTBEAT) => Event::Idle,
        }
    }

    async fn show(&mut self, item: Item) -> Result<(), Error> {
        let message = match item {
            Item::Chunk { chunk, .. } => Message::binary(chunk.bytes),
            Item::Lost(bytes) => Message::text(json!({ "lost": bytes }).to_string()),
            Item::End(end) => Message::text(json!({ "end": end }).to_string()),
        };
        self.socket.send(message).await
    }

    async fn take(
        &mut self,
        message: Message,
        permit: Option<mpsc::OwnedPermit<Vec<u8>>>,
    ) -> Result<(), Error> {
        match message {
            Message::Binary(_) if !self.process.takes_input() => {
                return self
                    .refuse("the input of the process is closed; `stdin` opens it")
                    .await;
            }
            Message::Binary(bytes) => drop(permit.map(|permit| permit.send(bytes.into()))),
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(Control { resize }) => self.process.resize(resize.into()),
                Err(_) => {
                    return self
                        .refuse("expected {\"resize\": {\"columns\", \"rows\"}}")
                        .await;
                }
            },
            // The library answers these.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {}
        }
        Ok(())
    }

    /// Ends it for a message that cannot be taken.
    async fn refuse(&mut self, why: &'static str) -> Result<(), Error> {
        self.close(CloseCode::Policy, why).await;
        Err(Error::ConnectionClosed)
    }

    /// Closes the WebSocket, and waits for the client to do so (RFC 6455, section 7.1.1).
    async fn close(&mut self, code: CloseCode, reason: &'static str) {
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        let closed = async {
            if self.socket.close(Some(frame)).await.is_ok() {
                while let Some(Ok(_)) = self.socket.next().await {}
            }
        };
        let _ = tokio::time::timeout(CLOSING, closed).await;
    }
}
