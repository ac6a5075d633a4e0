//! Client of the server's socket.

use std::io;
use std::os::unix::net;
use std::path::Path;

use ringfence_exec::local::{Chunk, Connection, SessionInfo, Stream};
use ringfence_policy::ExecutionResult;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};

use crate::frame::{self, Frame, Kind, Receiver};
use crate::wire::{ConsoleAccess, Reason, Refusal, Run, SandboxAnswer, SandboxRequest, SessionRequest};

/// A connection to the server.
#[derive(Debug)]
pub struct Client {
    receiver: Receiver<OwnedReadHalf>,
    sender: OwnedWriteHalf,
}

/// The server returned no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's configuration differs from this client's. Returns the untouched connection.
    #[error("the server has other settings")]
    Declined(Connection),
    /// The server ended before it had read the request. Returns the untouched connection.
    #[error("the server has ended")]
    Unread(Connection),
    /// The server refused the request.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// The connection broke; the outcome of the run is unknown.
    #[error("the connection to the server was lost")]
    Broken(#[source] io::Error),
    /// The response cannot be parsed.
    #[error("the server's answer cannot be read")]
    Answer(#[source] serde_json::Error),
}

/// Connects to a server's socket, without a runtime and without waiting.
///
/// # Errors
/// If no server listens there, or too many clients wait.
pub fn connect_now(socket: &Path) -> io::Result<net::UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connection = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&connection, &SocketAddrUnix::new(socket)?)?;
    Ok(connection.into())
}

impl Client {
    /// Connects to a server's socket.
    ///
    /// # Errors
    /// If no server listens there.
    pub async fn connect(socket: &Path) -> io::Result<Self> {
        Ok(Self::over(UnixStream::connect(socket).await?))
    }

    /// Takes over a connection from [`connect_now`].
    ///
    /// # Errors
    /// If the server has closed it since.
    pub fn of(connection: net::UnixStream) -> io::Result<Self> {
        // A server sends nothing before a request.
        match recv(&connection, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => UnixStream::from_std(connection).map(Self::over),
            Err(error) => Err(error.into()),
            Ok(_) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    fn over(connection: UnixStream) -> Self {
        let (reader, sender) = connection.into_split();
        Self {
            receiver: Receiver::new(reader),
            sender,
        }
    }

    /// Runs a request.
    ///
    /// # Errors
    /// If it was refused or the connection broke.
    pub async fn run(&mut self, mut run: Run, connection: Connection) -> Result<ExecutionResult, Error> {
        run.stream = connection.output.is_some();
        run.stdin = connection.stdin.is_some();
        run.bridge = connection.bridge.is_some();
        let request = serde_json::to_vec(&run).map_err(Error::Answer)?;
        match frame::send(&mut self.sender, Kind::Run, &request).await {
            Err(error) if is_closed(&error) => return Err(Error::Unread(connection)),
            sent => sent.map_err(Error::Broken)?,
        }
        if run.waits_for_acceptance() {
            match self.refusal().await {
                Err(Error::Broken(error)) if is_unread(&error) => return Err(Error::Unread(connection)),
                Ok(Some(payload)) => return Err(refused(&payload, connection)),
                accepted => drop(accepted?),
            }
        }
        let Connection {
            stdin,
            output,
            cancelled,
            bridge,
        } = connection;
        let untouched = Connection {
            output: output.clone(),
            cancelled: cancelled.clone(),
            ..Connection::none()
        };
        let carrying = match bridge {
            Some(bridge) => {
                let handed = bridge.hand_over(self.sender.as_ref()).await;
                Some(handed.map_err(Error::Broken)?)
            }
            None => None,
        };
        let carrying = async {
            if let Some(carrying) = carrying {
                carrying.await;
            }
        };
        let talking = async { tokio::join!(talk(&mut self.sender, stdin, cancelled), carrying) };
        let listening = listen(&mut self.receiver, output, untouched, run.waits_for_acceptance());
        tokio::pin!(talking, listening);
        tokio::select! {
            result = &mut listening => result,
            _ = &mut talking => listening.await,
        }
    }

    /// Waits until the server accepts the run; `Some` if it refuses. Called before any input is read, because
    /// input of a terminal cannot be put back.
    async fn refusal(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.receiver.next().await.map_err(Error::Broken)? {
            Some(Frame {
                kind: Kind::Accepted, ..
            }) => Ok(None),
            Some(Frame {
                kind: Kind::Refusal,
                payload,
            }) => Ok(Some(payload)),
            Some(_) | None => Err(Error::Broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

impl Client {
    /// Performs an operation on a scope's sessions. Returns the listed or created ones.
    ///
    /// # Errors
    /// If it was refused or the connection broke.
    pub async fn sessions(&mut self, request: &SessionRequest) -> Result<Vec<SessionInfo>, Error> {
        self.ask(request, Kind::Session, Kind::Sessions).await
    }

    /// Performs an operation on a scope's sandboxes.
    ///
    /// # Errors
    /// If it was refused or the connection broke.
    pub async fn sandboxes(&mut self, request: &SandboxRequest) -> Result<SandboxAnswer, Error> {
        self.ask(request, Kind::Sandbox, Kind::Sandboxes).await
    }

    /// Requests access to the server's console.
    ///
    /// # Errors
    /// If it serves none or the connection broke.
    pub async fn console(&mut self) -> Result<ConsoleAccess, Error> {
        self.ask(&(), Kind::Console, Kind::ConsoleAccess).await
    }

    /// Sends a request frame and receives the response frame.
    async fn ask<A: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        asked: Kind,
        answered: Kind,
    ) -> Result<A, Error> {
        let request = serde_json::to_vec(request).map_err(Error::Answer)?;
        let sent = frame::send(&mut self.sender, asked, &request).await;
        sent.map_err(unread_or_broken)?;
        match self.receiver.next().await.map_err(unread_or_broken)? {
            Some(Frame { kind, payload }) if kind == answered => {
                serde_json::from_slice(&payload).map_err(Error::Answer)
            }
            Some(Frame {
                kind: Kind::Refusal,
                payload,
            }) => Err(refused(&payload, Connection::none())),
            Some(_) | None => Err(Error::Broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

fn refused(payload: &[u8], connection: Connection) -> Error {
    match serde_json::from_slice::<Refusal>(payload) {
        Ok(Refusal {
            reason: Reason::Declined,
            ..
        }) => Error::Declined(connection),
        Ok(refusal) => Error::Refused(refusal),
        Err(error) => Error::Answer(error),
    }
}

/// Returns the error of a request that is one message and brings nothing else.
fn unread_or_broken(error: io::Error) -> Error {
    match is_closed(&error) {
        true => Error::Unread(Connection::none()),
        false => Error::Broken(error),
    }
}

/// Returns `true` if the server has closed its end.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// Returns `true` if the server closed a connection from which it had not read everything, or which it had not accepted
/// (`unix_release_sock` in net/unix/af_unix.c): if one message was sent, it did not act on it.
fn is_unread(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset
}

/// Forwards standard input and cancellation until both have ended.
async fn talk(
    sender: &mut OwnedWriteHalf,
    stdin: Option<mpsc::Receiver<Vec<u8>>>,
    cancelled: Option<watch::Receiver<bool>>,
) {
    let cancel = async {
        match cancelled {
            Some(mut cancelled) => drop(cancelled.wait_for(|cancelled| *cancelled).await),
            None => std::future::pending().await,
        }
    };
    tokio::pin!(cancel);
    // If the server is gone, the receiving side reports it.
    if let Some(mut stdin) = stdin {
        loop {
            let sent = tokio::select! {
                () = &mut cancel => return drop(frame::send(sender, Kind::Cancel, &[]).await),
                bytes = stdin.recv() => match bytes {
                    Some(bytes) => frame::send(sender, Kind::Stdin, &bytes).await,
                    None => break drop(frame::send(sender, Kind::StdinEnd, &[]).await),
                },
            };
            if sent.is_err() {
                return;
            }
        }
    }
    cancel.await;
    let _ = frame::send(sender, Kind::Cancel, &[]).await;
}

/// Passes on output until the result. `untouched` goes back to the caller if the server declines the run, which it
/// does before it has begun, or ends before it has read the request. `is_read` is set if it certainly has.
async fn listen(
    receiver: &mut Receiver<OwnedReadHalf>,
    output: Option<mpsc::Sender<Chunk>>,
    untouched: Connection,
    mut is_read: bool,
) -> Result<ExecutionResult, Error> {
    loop {
        let frame = match receiver.next().await {
            // A message that was sent since may be what was not read, once the run is cancelled.
            Err(error) if !is_read && is_unread(&error) && !untouched.is_cancelled() => {
                return Err(Error::Unread(untouched));
            }
            frame => frame.map_err(Error::Broken)?,
        };
        is_read = true;
        let Frame { kind, payload } =
            frame.ok_or_else(|| Error::Broken(io::ErrorKind::UnexpectedEof.into()))?;
        let stream = match kind {
            Kind::Stdout => Stream::Stdout,
            Kind::Stderr => Stream::Stderr,
            Kind::Result => return serde_json::from_slice(&payload).map_err(Error::Answer),
            Kind::Refusal => return Err(refused(&payload, untouched)),
            Kind::Accepted
            | Kind::Run
            | Kind::Stdin
            | Kind::StdinEnd
            | Kind::Cancel
            | Kind::Session
            | Kind::Sessions
            | Kind::Sandbox
            | Kind::Sandboxes
            | Kind::Console
            | Kind::ConsoleAccess => {
                return Err(Error::Broken(io::ErrorKind::InvalidData.into()));
            }
        };
        if let Some(output) = &output {
            // The result is still needed if the caller no longer reads output.
            let _ = output
                .send(Chunk {
                    stream,
                    bytes: payload,
                })
                .await;
        }
    }
}
