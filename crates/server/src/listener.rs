//! The server's side of its socket.

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringfence_container::Sandboxes;
use ringfence_exec::backend::{self, Backend};
use ringfence_exec::bridge::ByteChannel;
use ringfence_exec::local::{Chunk, Connection, Local, SessionInfo, Stream};
use ringfence_exec::runner::RunSpec;
use ringfence_packages::SessionPackages;
use ringfence_policy::{ExecutionResult, Language, Request, Scope, Trusted};
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};

use crate::api::Api;
use crate::console::Door;
use crate::frame::{self, Frame, Kind, Receiver};
use crate::sandboxes;
use crate::wire::{Reason, Refusal, Run, SandboxAction, SandboxRequest, SessionAction, SessionRequest};
use ringfence_gateway_protocol::socket::Socket;
use ringfence_http::serve_connection;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 512;

/// Maximum number of buffered chunks of output or input of a connection.
const IN_FLIGHT: usize = 16;

/// Timeout for a client to read its result.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Everything that the server's clients can use.
#[derive(Debug, Clone)]
pub struct Services {
    /// Runs requests, and keeps the packages of sessions.
    pub backend: Arc<SessionPackages>,
    /// The local fence of the backend, with its sessions.
    pub local: Arc<Local>,
    pub sandboxes: Arc<Sandboxes>,
    /// The HTTP API, whose requests this socket takes beside frames.
    pub api: Arc<Api>,
    /// Access to the console, if it is served.
    pub console: Option<Door>,
    /// Paths that no program may change, in addition to those of clients.
    pub trusted: Arc<Trusted>,
}

/// The server's socket, removed on drop.
#[derive(Debug)]
pub struct Listener(Socket);

impl Listener {
    /// Listens at `path`, replacing a stale socket. The caller must hold the server's lock.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Socket::bind(path).map(Self)
    }

    /// Serves requests until `stop` resolves; then closes the socket, so that nobody waits there for an answer, and cancels
    /// those in progress.
    pub async fn serve(self, services: &Services, stop: impl Future<Output = ()>) {
        let http = services.api.on_socket();
        let supervise = |stream| {
            let (services, http) = (services.clone(), http.clone());
            async move {
                // A client that says nothing must not hold its place for ever.
                let protocol = tokio::time::timeout(TIMEOUT, protocol(&stream)).await;
                match protocol.unwrap_or_default() {
                    Some(Protocol::Frames) => supervise(stream, &services).await,
                    Some(Protocol::Http) => serve_connection(stream, http).await,
                    None => {}
                }
            }
        };
        self.0.serve(MAX_CONNECTIONS, supervise, stop).await;
    }
}

/// A protocol of the socket.
enum Protocol {
    Frames,
    Http,
}

/// Returns the protocol of a client by its first byte, which stays unread: the kind of a frame is a control
/// character, the method of an HTTP request begins with a capital letter. `None` if the client is gone.
async fn protocol(stream: &UnixStream) -> Option<Protocol> {
    let mut first = [0];
    let peek = || Ok(recv(stream, &mut first, RecvFlags::PEEK)?);
    let (read, _) = stream.async_io(Interest::READABLE, peek).await.ok()?;
    (read > 0).then_some(match first[0].is_ascii_uppercase() {
        true => Protocol::Http,
        false => Protocol::Frames,
    })
}

/// Serves one client, one request after the other. Disconnects a client that violates the protocol.
async fn supervise(stream: UnixStream, services: &Services) {
    let (reader, mut sender) = stream.into_split();
    let mut receiver = Receiver::new(reader);
    while let Ok(Some(Frame { kind, payload })) = receiver.next().await {
        // Until the answer is sent.
        let work = services.api.begin_own_work().ok();
        let answer = match kind {
            Kind::Run | Kind::Session | Kind::Sandbox if work.is_none() && begins_work(kind, &payload) => {
                refused(&draining(kind))
            }
            Kind::Run => answer(&payload, &mut receiver, &mut sender, services).await,
            Kind::Session => sessions(&payload, services).await,
            Kind::Sandbox => sandboxes::answer(&payload, &services.sandboxes).await,
            Kind::Console => console(services.console.as_ref()),
            // Sent before the client saw the end of a request.
            Kind::Stdin | Kind::StdinEnd | Kind::Cancel => continue,
            Kind::Accepted
            | Kind::Stdout
            | Kind::Stderr
            | Kind::Result
            | Kind::Refusal
            | Kind::Sessions
            | Kind::Sandboxes
            | Kind::ConsoleAccess => return,
        };
        let Ok((kind, payload)) = answer else { return };
        let sent = tokio::time::timeout(TIMEOUT, frame::send(&mut sender, kind, &payload)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// Grants access to the console: a client of this socket may answer approval requests anyway.
fn console(door: Option<&Door>) -> serde_json::Result<(Kind, Vec<u8>)> {
    let refusal = match door.map(Door::access) {
        Some(Ok(access)) => return Ok((Kind::ConsoleAccess, serde_json::to_vec(&access)?)),
        Some(Err(error)) => Refusal {
            reason: Reason::Failed,
            message: error.to_string(),
            hint: "report this as a defect".into(),
        },
        None => Refusal {
            reason: Reason::Unavailable,
            message: "the server that is running serves no console".to_owned(),
            hint: "start one with `ringfence serve`, without `engine.console = false`".into(),
        },
    };
    Ok((Kind::Refusal, serde_json::to_vec(&refusal)?))
}

async fn sessions(payload: &[u8], services: &Services) -> serde_json::Result<(Kind, Vec<u8>)> {
    let parsed = serde_json::from_slice::<SessionRequest>(payload).map_err(|error| Refusal::invalid(&error));
    let result = match parsed {
        Ok(SessionRequest { scope, action }) => see_to(&scope, action, services).await.map_err(Refusal::from),
        Err(refusal) => Err(refusal),
    };
    match result {
        Ok(sessions) => Ok((Kind::Sessions, serde_json::to_vec(&sessions)?)),
        Err(refusal) => Ok((Kind::Refusal, serde_json::to_vec(&refusal)?)),
    }
}

/// Performs an operation on a scope's sessions. Returns the listed or created ones.
async fn see_to(
    scope: &Scope,
    action: SessionAction,
    services: &Services,
) -> Result<Vec<SessionInfo>, backend::Error> {
    let local = &services.local;
    let failed = |error| backend::Error::from(&error);
    let made = match action {
        SessionAction::List => return Ok(local.sessions(scope)),
        SessionAction::New {
            id,
            limits,
            fence,
            packages,
        } => {
            let request = Request {
                limits,
                scope: scope.clone(),
                session: Some(id.clone()),
                ..Request::new(Language::Python, "")
            };
            let fence = fence.into();
            let making = services
                .backend
                .new_session(&id, request, fence, packages.as_ref());
            making.await?;
            id
        }
        SessionAction::Fork { from, to } => {
            services.backend.fork_session(scope, &from, &to).await?;
            to
        }
        SessionAction::Remove { id } => {
            local.remove_session(scope, &id).await.map_err(failed)?;
            return Ok(Vec::new());
        }
    };
    let all = local.sessions(scope).into_iter();
    Ok(all.filter(|session| session.id == made).collect())
}

async fn answer(
    payload: &[u8],
    receiver: &mut Receiver<OwnedReadHalf>,
    sender: &mut OwnedWriteHalf,
    services: &Services,
) -> serde_json::Result<(Kind, Vec<u8>)> {
    let parsed = serde_json::from_slice::<Run>(payload).map_err(|error| Refusal::invalid(&error));
    let result = match parsed {
        Ok(run) => execute(run, receiver, sender, services).await,
        Err(refusal) => Err(refusal),
    };
    match result {
        Ok(result) => Ok((Kind::Result, serde_json::to_vec(&result)?)),
        Err(refusal) => Ok((Kind::Refusal, serde_json::to_vec(&refusal)?)),
    }
}

async fn execute(
    run: Run,
    receiver: &mut Receiver<OwnedReadHalf>,
    sender: &mut OwnedWriteHalf,
    services: &Services,
) -> Result<ExecutionResult, Refusal> {
    let (stdin_sender, stdin) = mpsc::channel(IN_FLIGHT);
    let (output, chunks) = mpsc::channel(IN_FLIGHT);
    let (cancel, cancelled) = watch::channel(false);
    let connection = Connection {
        stdin: run.stdin.then_some(stdin),
        output: run.stream.then_some(output),
        cancelled: Some(cancelled),
        bridge: None,
    };
    let (settings, bridged) = (run.settings.clone(), run.bridge);
    let waits = run.waits_for_acceptance();
    let mut spec = run.spec()?;
    if settings.is_some() && settings != services.backend.fingerprint(&spec) {
        return Err(declined(&spec));
    }
    spec.request.trusted.extend(&services.trusted);
    // Others would only be woken while their program starts.
    if waits && frame::send(sender, Kind::Accepted, &[]).await.is_err() {
        return Err(Refusal::gone());
    }
    let (bridge, carrying) = match bridged {
        true => bridge(receiver)
            .await
            .map(|(end, carrying)| (Some(end), Some(carrying)))?,
        false => (None, None),
    };
    let connection = Connection { bridge, ..connection };
    let running = services.backend.run(&spec, connection);
    let forwarding = forward(chunks, sender);
    let hearing = receive(receiver, stdin_sender, cancel);
    let carrying = async {
        if let Some(carrying) = carrying {
            carrying.await;
        }
    };
    tokio::pin!(running, forwarding, hearing, carrying);
    // All are polled concurrently: a client that does not read must not delay the timeout of its run.
    let (mut result, mut forwarded, mut heard, mut carried) = (None, false, false, false);
    loop {
        tokio::select! {
            biased;
            finished = &mut running, if result.is_none() => result = Some(finished),
            () = &mut forwarding, if !forwarded => forwarded = true,
            () = &mut hearing, if !heard => heard = true,
            () = &mut carrying, if !carried => carried = true,
        }
        if forwarded && let Some(result) = result.take() {
            return result.map_err(Refusal::from);
        }
    }
}

/// Receives the client's end of a bridge: the byte channel for the program, and its relay.
async fn bridge(
    receiver: &Receiver<OwnedReadHalf>,
) -> Result<(ByteChannel, impl Future<Output = ()> + use<>), Refusal> {
    let stream = receiver.stream().ok_or_else(Refusal::gone)?;
    let taken = tokio::time::timeout(TIMEOUT, ByteChannel::take_over(stream)).await;
    taken.ok().and_then(Result::ok).ok_or_else(Refusal::gone)
}

/// Returns the refusal of a client with other settings, which then runs the request itself.
fn declined(spec: &RunSpec) -> Refusal {
    let runtime = spec.target.runtime();
    Refusal {
        reason: Reason::Declined,
        message: format!("the server has other settings of the runtime `{runtime}`"),
        hint: "restart the server, or pass `--no-engine`".into(),
    }
}

/// Returns `true` for a request that begins something.
fn begins_work(kind: Kind, payload: &[u8]) -> bool {
    match kind {
        Kind::Session => {
            let parsed = serde_json::from_slice::<SessionRequest>(payload);
            parsed.is_ok_and(|request| {
                matches!(
                    request.action,
                    SessionAction::New { .. } | SessionAction::Fork { .. }
                )
            })
        }
        Kind::Sandbox => {
            let parsed = serde_json::from_slice::<SandboxRequest>(payload);
            parsed.is_ok_and(|request| {
                matches!(request.action, SandboxAction::New(_) | SandboxAction::Run { .. })
            })
        }
        _ => true,
    }
}

/// Returns the refusal while the server drains. The client of a run then runs it itself.
fn draining(kind: Kind) -> Refusal {
    Refusal {
        reason: match kind {
            Kind::Run => Reason::Declined,
            _ => Reason::Unavailable,
        },
        message: "the server is about to end, and begins nothing more".to_owned(),
        hint: "send it again to the server that follows, or pass `--no-engine`".into(),
    }
}

fn refused(refusal: &Refusal) -> serde_json::Result<(Kind, Vec<u8>)> {
    Ok((Kind::Refusal, serde_json::to_vec(refusal)?))
}

/// Forwards output to the client until the run has no more.
async fn forward(mut chunks: mpsc::Receiver<Chunk>, sender: &mut OwnedWriteHalf) {
    while let Some(Chunk { stream, bytes }) = chunks.recv().await {
        let kind = match stream {
            Stream::Stdout => Kind::Stdout,
            Stream::Stderr => Kind::Stderr,
        };
        if frame::send(sender, kind, &bytes).await.is_err() {
            return;
        }
    }
}

/// Reads standard input, cancellation and disconnect while a request runs.
async fn receive(
    receiver: &mut Receiver<OwnedReadHalf>,
    stdin: mpsc::Sender<Vec<u8>>,
    cancel: watch::Sender<bool>,
) {
    let mut stdin = Some(stdin);
    loop {
        match receiver.next().await {
            Ok(Some(Frame {
                kind: Kind::Stdin,
                payload,
            })) => {
                if let Some(stdin) = &stdin {
                    // Keeps reading if the program no longer reads its input.
                    let _ = stdin.send(payload).await;
                }
            }
            Ok(Some(Frame {
                kind: Kind::StdinEnd, ..
            })) => stdin = None,
            Ok(Some(_)) | Ok(None) | Err(_) => {
                cancel.send_replace(true);
                return;
            }
        }
    }
}
