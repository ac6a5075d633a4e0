//! A server of the Model Context Protocol: the kernel's tools for any client that starts us.
//!
//! The protocol's messages and its versions are the official library's. Ours are the limits: on lines, on calls at
//! once, on answers that wait; and what a lost client means for what it started.
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
mod tools;
mod uri;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::{Scope, SessionId};
use ringfence_runtime::kernel::Kernel;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use handler::Handler;
use lines::Lines;

pub use lines::refusal;
pub use rmcp::transport::io::stdio_pipes;
pub use uri::path_of;

/// How long a client may take to read what is left when the connection ends.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long calls may take to end once they were taken back.
const LAST_CALLS: Duration = Duration::from_secs(10);

/// What a server serves, and for whom.
#[derive(Debug)]
pub struct Settings {
    /// Whose files and interpreters they are.
    pub scope: Scope,
    /// Which conversation it is, where files are kept apart by session.
    pub session: Option<SessionId>,
    /// The tools, and where they work.
    pub kernel: Arc<Kernel>,
    /// Where to send what the client says of its directories; `None` where a person has chosen one.
    pub wishes: Option<mpsc::Sender<Wish>>,
    /// Whether the client may be asked what a person has to decide.
    pub elicitation: Elicitation,
}

/// Whether a client may be asked what a person has to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elicitation {
    /// If it says that it can.
    Allowed,
    /// Never: the questions are for other gateways.
    Off,
}

/// What a client says of the directories that it works in.
#[derive(Debug)]
pub enum Wish {
    /// The tools shall work in this directory. The kernel for that is the answer, or why there is none.
    Adopt(PathBuf, oneshot::Sender<Result<Kernel, String>>),
    /// Nothing: they stay where they are.
    Stay,
}

/// Serves one client until it leaves or `stop` ends. All that it started has ended then.
pub async fn serve<R, W>(settings: Settings, reader: R, writer: W, stop: impl Future<Output = ()>)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (gone, left) = watch::channel(false);
    let (lines, unwritten) = Lines::new(reader, lines::MAX_LINE, gone.clone());
    let mut writing = JoinSet::new();
    writing.spawn(lines::write_lines(writer, unwritten));
    let handler = Handler::new(settings, left);
    tokio::pin!(stop);
    let started = tokio::select! {
        started = rmcp::serve_server(handler.clone(), lines) => started.ok(),
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
                // How the library's loop ended changes nothing about what is left to do.
                let _ = waiting.await;
            }
        }
    }
    gone.send_replace(true);
    let _ = tokio::time::timeout(LAST_CALLS, handler.finished()).await;
    drop(handler);
    let _ = tokio::time::timeout(LAST_WORDS, writing.join_next()).await;
    writing.shutdown().await;
}
