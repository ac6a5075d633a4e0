//! Where the tools work: the directory that a client offers, where no person has chosen one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_runtime::kernel::Kernel;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, InputRequest, InputRequiredResult, ListRootsRequest, ListRootsResult, LoggingLevel,
};
use rmcp::service::{Peer, RequestContext};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::Wish;
use super::log::is_stateless;
use super::uri::path_of;

/// How long a client may take to name its roots, and calls wait for that.
const PATIENCE: Duration = Duration::from_secs(5);

/// The name of our question in a result that asks for input.
const QUESTION: &str = "roots";

const UNNAMED: &str = "the client did not name its roots";

/// The kernel that works in the right directory, and whether it is known yet which one that is.
#[derive(Debug)]
pub(super) struct Roots {
    wishes: Option<mpsc::Sender<Wish>>,
    first: Arc<Kernel>,
    kernel: watch::Sender<Arc<Kernel>>,
    settled: watch::Sender<bool>,
    asking: AtomicBool,
    /// The client has said that they changed while we were asking.
    stale: AtomicBool,
}

/// What became of a client's directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Adopted {
    /// Later calls work there.
    Yes(PathBuf),
    /// They do not, and why.
    Refused(String),
    /// There was none.
    None,
}

impl Roots {
    /// Works with `kernel` until a client's directory is adopted.
    pub(super) fn new(kernel: Arc<Kernel>, wishes: Option<mpsc::Sender<Wish>>) -> Self {
        Self {
            settled: watch::Sender::new(wishes.is_none()),
            wishes,
            first: Arc::clone(&kernel),
            kernel: watch::Sender::new(kernel),
            asking: AtomicBool::new(false),
            stale: AtomicBool::new(false),
        }
    }

    /// The kernel for a call that begins. It keeps the one it was given.
    pub(super) fn kernel(&self) -> Arc<Kernel> {
        Arc::clone(&self.kernel.borrow())
    }

    /// Asks the client for its roots and takes over the first. For versions in which a server may ask.
    pub(super) async fn ask(&self, peer: &Peer<RoleServer>) -> Adopted {
        // Where each request stands for itself, nobody has introduced himself, and a call will ask.
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
            adopted = match timeout(PATIENCE, peer.list_roots()).await {
                Ok(Ok(roots)) => self.take_over(&roots).await,
                _ => Adopted::Refused(UNNAMED.to_owned()),
            };
        }
        self.asking.store(false, Ordering::Relaxed);
        self.settle(adopted).await
    }

    /// Waits until the client has named its roots, where it was asked to. Where each request stands for itself: what
    /// the client has to be asked before the call can go on.
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
            let waited = timeout(PATIENCE, settled.wait_for(|settled| *settled))
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

    /// Takes over the first root that is a directory here, if it may be one.
    async fn take_over(&self, roots: &ListRootsResult) -> Adopted {
        let first = roots.roots.iter().find_map(|root| path_of(&root.uri));
        let (Some(path), Some(wishes)) = (first, &self.wishes) else {
            return Adopted::None;
        };
        let (answer, answered) = oneshot::channel();
        let asked = wishes.send(Wish::Adopt(path.clone(), answer)).await;
        match (asked, answered.await) {
            (Ok(()), Ok(Ok(kernel))) => {
                self.kernel.send_replace(Arc::new(kernel));
                Adopted::Yes(path)
            }
            (Ok(()), Ok(Err(why))) => Adopted::Refused(why),
            // The connection is about to end.
            _ => Adopted::None,
        }
    }

    /// Lets calls go on. A directory that the client no longer offers is no longer used.
    async fn settle(&self, adopted: Adopted) -> Adopted {
        if !matches!(adopted, Adopted::Yes(_)) {
            self.kernel.send_replace(Arc::clone(&self.first));
            if let Some(wishes) = &self.wishes {
                let _ = wishes.send(Wish::Stay).await;
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
    /// What a client is told of it, and how grave that is.
    pub(super) fn told(&self) -> Option<(LoggingLevel, String)> {
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
