//! An MCP server: offers the tools of a [`Toolbox`] to a client over standard streams, or in a session over HTTP.
//!
//! Protocol messages and versions are implemented by the official library. This crate adds limits (line
//! length, concurrent calls, queued responses) and cancellation of calls when the client is lost. The routes of HTTP are
//! those of the crate `server`.
#![forbid(unsafe_code)]
#![expect(
    deprecated,
    reason = "roots and log messages have nothing in their place yet, and clients use them"
)]

mod calls;
mod elicitation;
mod handler;
mod invocation;
mod lines;
mod log;
mod parked;
mod progress;
mod roots;
mod schema;
pub mod session;
mod streams;
mod tools;
mod uri;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::{Scope, SessionId};
use ringfence_tools::toolbox::Toolbox;
use rmcp::RoleServer;
use rmcp::transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use handler::Handler;
use lines::Lines;

pub use lines::refusal;
pub use rmcp::transport::io::stdio_pipes;
pub use uri::path_of;

/// Timeout for a client to read queued responses when the connection ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Timeout for calls to end after cancellation.
const LAST_CALLS: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Settings {
    /// Owner of files and interpreters.
    pub scope: Scope,
    /// Session, where files are separated by session.
    pub session: Option<SessionId>,
    /// Tools with their workspaces.
    pub toolbox: Arc<Toolbox>,
    /// Channel for the client's roots. `None` if the user has chosen a directory.
    pub wishes: Option<mpsc::Sender<RootRequest>>,
    /// Permission to ask the client's user for approval.
    pub elicitation: Elicitation,
    /// Channel for messages about questions that wait, to the person at this machine.
    pub notes: mpsc::Sender<String>,
    /// Kind of the client.
    pub peer: Peer,
}

/// The client of a connection, as known before its first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// The user who started the server, by a program that names itself.
    Local,
    /// The holder of this credential of the HTTP API.
    Credential(String),
}

/// Permission to ask the client's user for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elicitation {
    /// If the client supports it.
    Allowed,
    /// Never: other gateways handle approval requests.
    Off,
}

/// A request by a client about its roots.
#[derive(Debug)]
pub enum RootRequest {
    /// Use this directory as the workspace. The reply is a [`Toolbox`] for it, or an error.
    Adopt(PathBuf, oneshot::Sender<Result<Toolbox, String>>),
    /// Keep the current workspace.
    Stay,
}

/// Serves one client until it disconnects or `stop` resolves. All its calls have ended then.
pub async fn serve<R, W>(settings: Settings, reader: R, writer: W, stop: impl Future<Output = ()>)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (gone, left) = watch::channel(false);
    let (lines, unwritten) = Lines::new(reader, lines::MAX_LINE, gone.clone());
    let mut writing = JoinSet::new();
    writing.spawn(lines::write_lines(writer, unwritten));
    converse(Handler::new(settings, left), lines, gone, stop).await;
    let _ = tokio::time::timeout(LAST_WORDS, writing.join_next()).await;
    writing.shutdown().await;
}

/// Answers the messages of a transport until it ends or `stop` resolves. All calls have ended then.
async fn converse<T: Transport<RoleServer> + 'static>(
    handler: Handler,
    transport: T,
    gone: watch::Sender<bool>,
    stop: impl Future<Output = ()>,
) {
    tokio::pin!(stop);
    let started = tokio::select! {
        started = rmcp::serve_server(handler.clone(), transport) => started.ok(),
        () = &mut stop => None,
    };
    if let Some(running) = started {
        let token = running.cancellation_token();
        let waiting = running.waiting();
        tokio::pin!(waiting);
        tokio::select! {
            _ = &mut waiting => {}
            () = &mut stop => {
                gone.send_replace(true);
                token.cancel();
                // The cleanup is the same however the library's loop ended.
                let _ = waiting.await;
            }
        }
    }
    gone.send_replace(true);
    let _ = tokio::time::timeout(LAST_CALLS, handler.finished()).await;
}
