//! Uses a client's root as the workspace, if no user has chosen one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_tools::toolbox::Toolbox;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, InputRequest, InputRequiredResult, ListRootsRequest, ListRootsResult, LoggingLevel,
};
use rmcp::service::{Peer, RequestContext};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::RootRequest;
use crate::log::is_stateless;
use crate::uri::path_of;

/// Timeout for a client to list its roots; calls wait for it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Name of the question in a result that requires input.
const QUESTION: &str = "roots";

const UNNAMED: &str = "the client did not name its roots";

/// The [`Toolbox`] for the current workspace, and the state of the negotiation.
#[derive(Debug)]
pub(super) struct Roots {
    wishes: Option<mpsc::Sender<RootRequest>>,
    first: Arc<Toolbox>,
    toolbox: watch::Sender<Arc<Toolbox>>,
    settled: watch::Sender<bool>,
    asking: AtomicBool,
    /// Set if the roots changed while they were being requested.
    stale: AtomicBool,
}

/// Result of a client's request for a workspace.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Adopted {
    /// Later calls use this directory.
    Yes(PathBuf),
    /// The directory was rejected, with the reason.
    Refused(String),
    /// The client has no root.
    None,
}

impl Roots {
    /// Uses `toolbox` until a client's directory is adopted.
    pub(super) fn new(toolbox: Arc<Toolbox>, wishes: Option<mpsc::Sender<RootRequest>>) -> Self {
        Self {
            settled: watch::Sender::new(wishes.is_none()),
            wishes,
            first: Arc::clone(&toolbox),
            toolbox: watch::Sender::new(toolbox),
            asking: AtomicBool::new(false),
            stale: AtomicBool::new(false),
        }
    }

    /// Returns the [`Toolbox`] for a new call. Running calls keep theirs.
    pub(super) fn toolbox(&self) -> Arc<Toolbox> {
        Arc::clone(&self.toolbox.borrow())
    }

    /// Requests the client's roots and adopts the first, in protocol versions with sessions.
    pub(super) async fn ask(&self, peer: &Peer<RoleServer>) -> Adopted {
        // In stateless versions there is no handshake; the first call asks.
        let Some(client) = peer.peer_info().filter(|_| self.wishes.is_some()) else {
            return Adopted::None;
        };
        if client.capabilities.roots.is_none() {
            return self.settle(Adopted::None).await;
        }
        self.settled.send_replace(false);
        self.stale.store(true, Ordering::Relaxed);
        if self.asking.swap(true, Ordering::Relaxed) {
            return Adopted::None;
        }
        let mut adopted = Adopted::None;
        while self.stale.swap(false, Ordering::Relaxed) {
            adopted = match timeout(TIMEOUT, peer.list_roots()).await {
                Ok(Ok(roots)) => self.take_over(&roots).await,
                _ => Adopted::Refused(UNNAMED.to_owned()),
            };
        }
        self.asking.store(false, Ordering::Relaxed);
        self.settle(adopted).await
    }

    /// Waits for the roots if they were requested. In stateless versions, returns the question that the
    /// client has to answer before the call.
    pub(super) async fn question(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Adopted, InputRequiredResult> {
        if *self.settled.borrow() {
            return Ok(Adopted::None);
        }
        if !is_stateless(context) {
            let mut settled = self.settled.subscribe();
            let waited = timeout(TIMEOUT, settled.wait_for(|settled| *settled))
                .await
                .is_ok();
            return Ok(if waited {
                Adopted::None
            } else {
                self.settle(Adopted::None).await
            });
        }
        let answers = request.input_responses.as_ref();
        let adopted = match answers.and_then(|answers| answers.get(QUESTION)) {
            Some(answer) => match serde_json::from_value(answer.clone()) {
                Ok(roots) => self.take_over(&roots).await,
                Err(_) => Adopted::Refused(UNNAMED.to_owned()),
            },
            None if offers_roots(context) => return Err(ask_for_input()),
            None => Adopted::None,
        };
        Ok(self.settle(adopted).await)
    }

    /// Adopts the first root that is a local directory, if permitted.
    async fn take_over(&self, roots: &ListRootsResult) -> Adopted {
        let first = roots.roots.iter().find_map(|root| path_of(&root.uri));
        let (Some(path), Some(wishes)) = (first, &self.wishes) else {
            return Adopted::None;
        };
        let (answer, answered) = oneshot::channel();
        let asked = wishes.send(RootRequest::Adopt(path.clone(), answer)).await;
        match (asked, answered.await) {
            (Ok(()), Ok(Ok(toolbox))) => {
                self.toolbox.send_replace(Arc::new(toolbox));
                Adopted::Yes(path)
            }
            (Ok(()), Ok(Err(why))) => Adopted::Refused(why),
            // The connection is about to end.
            _ => Adopted::None,
        }
    }

    /// Releases waiting calls. Reverts to the first [`Toolbox`] if the client no longer offers a directory.
    async fn settle(&self, adopted: Adopted) -> Adopted {
        if !matches!(adopted, Adopted::Yes(_)) {
            self.toolbox.send_replace(Arc::clone(&self.first));
            if let Some(wishes) = &self.wishes {
                let _ = wishes.send(RootRequest::Stay).await;
            }
        }
        self.settled.send_replace(true);
        adopted
    }
}

fn offers_roots(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    capabilities.is_some_and(|capabilities| capabilities.roots.is_some())
}

fn ask_for_input() -> InputRequiredResult {
    let question = InputRequest::ListRoots(ListRootsRequest::default());
    InputRequiredResult::from_input_requests(BTreeMap::from([(QUESTION.to_owned(), question)]))
}

impl Adopted {
    /// Returns a log message about the result, with its level.
    pub(super) fn log_message(&self) -> Option<(LoggingLevel, String)> {
        match self {
            Self::Yes(path) => Some((LoggingLevel::Info, format!("the workspace is {}", path.display()))),
            Self::Refused(why) => Some((
                LoggingLevel::Warning,
                format!("the client's root is not the workspace: {why}"),
            )),
            Self::None => None,
        }
    }
}
