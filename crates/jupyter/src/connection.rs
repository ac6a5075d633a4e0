//! A client at the channels of a kernel, over a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{MissedTickBehavior, interval};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as Frame};

use crate::error::Error;
use crate::kernel::Status;
use crate::message::{Channel, Header, Incoming, Protocol};
use crate::peer::{Act, Gate, Mailbox, Peer, Refusal, Request};
use crate::questions::failure;
use crate::service::{Kernel, Service};

/// Maximum size of a client's message, in bytes.
pub const MAX_MESSAGE: usize = 1024 * 1024;

/// Interval at which the client is pinged and the sandbox's time extended.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Time that a client has to close its end.
const CLOSING: Duration = Duration::from_secs(1);

/// A place at the channels of a kernel, until it is dropped.
#[derive(Debug)]
pub struct Channels {
    client: Client,
    mailbox: Mailbox,
}

/// A client of a kernel, until it is dropped.
#[derive(Debug)]
struct Client {
    service: Arc<Service>,
    kernel: Arc<Kernel>,
    peer: Arc<Peer>,
    gate: Arc<dyn Gate>,
    protocol: Protocol,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kernel.shared.leave(&self.peer);
    }
}

/// The content of `shutdown_request`.
#[derive(Debug, Deserialize)]
struct Shutdown {
    restart: bool,
}

/// The end of a connection: with a reason for the client, unless it has gone or reads nothing.
type End = Option<(CloseCode, &'static str)>;

impl Channels {
    /// Joins the clients of a kernel.
    ///
    /// # Errors
    /// If there are too many.
    pub fn join(
        service: Arc<Service>,
        kernel: Arc<Kernel>,
        gate: Arc<dyn Gate>,
        protocol: Protocol,
    ) -> Result<Self, Error> {
        let (peer, mailbox) = kernel.shared.join()?;
        let client = Client {
            service,
            kernel,
            peer,
            gate,
            protocol,
        };
        Ok(Self { client, mailbox })
    }

    /// Passes messages in both directions, until the client leaves or the kernel ends.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(self, socket: WebSocketStream<S>) {
        let Self { client, mut mailbox } = self;
        let (mut sink, mut stream) = socket.split();
        let cut = mailbox.cut();
        // Neither waits for the other: what is read may wait for room to answer.
        let end = tokio::select! {
            end = client.write(&mut mailbox, &mut sink) => end,
            end = client.read(&mut stream) => end,
            // A client that reads nothing holds up a write for ever.
            () = cut => None,
        };
        if let Some((code, reason)) = end {
            close(sink, stream, code, reason).await;
        }
    }
}

impl Client {
    /// Sends the kernel's messages to the client. Extends the sandbox's lifetime meanwhile.
    async fn write<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mailbox: &mut Mailbox,
        sink: &mut SplitSink<WebSocketStream<S>, Frame>,
    ) -> End {
        let shared = &self.kernel.shared;
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let frame = tokio::select! {
                biased;
                _ = heartbeat.tick() => {
                    if shared.extend().is_err() {
                        shared.end();
                    }
                    Frame::Ping(Vec::new().into())
                }
                // Before the end: the last messages are among them.
                message = mailbox.messages.recv() => message?.frame(self.protocol),
                () = shared.ended() => {
                    let content = json!({"execution_state": Status::Dead.as_str()});
                    let last = shared.message(Channel::Iopub, "status", &Header::default(), content);
                    sink.send(last.frame(self.protocol)).await.ok()?;
                    return Some((CloseCode::Normal, "the kernel has ended"));
                }
            };
            sink.send(frame).await.ok()?;
        }
    }

    /// Takes messages of the client.
    async fn read<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut SplitStream<WebSocketStream<S>>,
    ) -> End {
        loop {
            let frame: Result<Frame, SocketError> = stream.next().await?;
            let bytes = match (self.protocol, frame.ok()?) {
                (Protocol::Json, Frame::Text(text)) => text.into(),
                (Protocol::V1, Frame::Binary(bytes)) => bytes,
                (Protocol::Json, Frame::Binary(_)) => {
                    let reason = "expected a text: messages with buffers are not served";
                    return Some((CloseCode::Unsupported, reason));
                }
                (Protocol::V1, Frame::Text(_)) => {
                    return Some((CloseCode::Unsupported, "expected a binary message"));
                }
                // The library answers these.
                (_, Frame::Ping(_) | Frame::Pong(_) | Frame::Close(_) | Frame::Frame(_)) => continue,
            };
            let Ok(message) = Incoming::parse(self.protocol, &bytes) else {
                return Some((CloseCode::Invalid, "expected a message of a kernel's client"));
            };
            match (message.channel, message.header.msg_type.as_str()) {
                (Channel::Control, _) | (Channel::Shell, "shutdown_request") => self.control(&message).await,
                (Channel::Shell, _) => self.queue(message, bytes.len()).await,
                // Nothing asks for input, and nobody but the kernel publishes.
                (Channel::Stdin | Channel::Iopub, _) => {}
            }
        }
    }

    /// Adds a request to those that wait for the kernel.
    async fn queue(&self, message: Incoming, size: usize) {
        let kept = match self.gate.keep(size) {
            Ok(kept) => kept,
            Err(refusal) => return self.reply(&message, refused(&refusal)).await,
        };
        let request = Request {
            message: message.clone(),
            peer: Arc::clone(&self.peer),
            gate: Arc::clone(&self.gate),
            restarts: self.kernel.shared.restarts(),
            _kept: kept,
        };
        if !self.kernel.requests.add(request) {
            let content = failure("Busy", "too many requests wait for the kernel", None);
            self.reply(&message, content).await;
        }
    }

    /// Answers a request that does not wait for the code that runs.
    async fn control(&self, message: &Incoming) {
        let shared = &self.kernel.shared;
        let restart = message.content::<Shutdown>().is_ok_and(|asked| asked.restart);
        let content = match message.header.msg_type.as_str() {
            "kernel_info_request" => shared.info().await,
            "interrupt_request" => {
                let interrupt = async { shared.interrupt() };
                self.act(Act::Interrupt, interrupt, json!({"status": "ok"})).await
            }
            "shutdown_request" if restart => {
                let content = json!({"status": "ok", "restart": true});
                self.act(Act::Restart, shared.restart(), content).await
            }
            "shutdown_request" => return self.shut_down(message).await,
            kind if kind.ends_with("_request") => {
                failure("NotSupported", "kernels of this server do not answer it", None)
            }
            _ => return,
        };
        self.reply(message, content).await;
    }

    /// Ends the kernel, with its answer before: the connection ends with the kernel.
    async fn shut_down(&self, message: &Incoming) {
        let shared = &self.kernel.shared;
        let nothing = async { Ok(()) };
        let content = json!({"status": "ok", "restart": false});
        let content = self.act(Act::Remove, nothing, content).await;
        let is_allowed = content["status"] == "ok";
        self.reply(message, content).await;
        if is_allowed {
            // An error means that it has ended already.
            drop(self.service.remove(&shared.scope, &shared.id).await);
        }
    }

    /// Performs an operation for a client, if its gate allows it. Returns the content of the reply.
    async fn act(&self, act: Act, done: impl Future<Output = Result<(), Error>>, content: Value) -> Value {
        let described = json!({"kernel": self.kernel.shared.id});
        let _under_way = match self.gate.begin(act, &described) {
            Ok(under_way) => under_way,
            Err(refusal) => return refused(&refusal),
        };
        match done.await {
            Ok(()) => content,
            Err(error) => failure("KernelError", &format!("{error} (hint: {})", error.hint()), None),
        }
    }

    /// Answers a request without the kernel. Clients wait for its status as well.
    async fn reply(&self, message: &Incoming, content: Value) {
        let Incoming { header, channel, .. } = message;
        let shared = &self.kernel.shared;
        let status = |state: Status| {
            let content = json!({"execution_state": state.as_str()});
            shared.message(Channel::Iopub, "status", header, content)
        };
        let reply = header.msg_type.replace("_request", "_reply");
        let reply = shared.message(*channel, &reply, header, content);
        for message in [status(Status::Busy), reply, status(Status::Idle)] {
            self.peer.send(Arc::new(message)).await;
        }
    }
}

fn refused(refusal: &Refusal) -> Value {
    failure(refusal.kind, &refusal.message, None)
}

/// Closes the WebSocket, and waits for the client to do so (RFC 6455, section 7.1.1).
async fn close<S: AsyncRead + AsyncWrite + Unpin>(
    mut sink: SplitSink<WebSocketStream<S>, Frame>,
    mut stream: SplitStream<WebSocketStream<S>>,
    code: CloseCode,
    reason: &'static str,
) {
    let frame = CloseFrame {
        code,
        reason: reason.into(),
    };
    let closed = async {
        if sink.send(Frame::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    };
    let _ = tokio::time::timeout(CLOSING, closed).await;
}
