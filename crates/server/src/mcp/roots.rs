//! Where the tools work: the directory that a client offers, where no person has chosen one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_runtime::kernel::Kernel;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, InputRequest, InputRequiredResult, ListRootsRequest, ListRootsResult, LoggingLevel,
};
use rmcp::service::{Peer, RequestContext};
use tokio::sync::watch;

use super::Adopt;
use super::log::is_stateless;

/// How long a client may take to name its roots, and calls wait for that.
const PATIENCE: Duration = Duration::from_secs(5);

/// The name of our question in a result that asks for input.
const QUESTION: &str = "roots";

const UNNAMED: &str = "the client did not name its roots";

/// A kernel, and whether it is known yet that it is the right one.
#[derive(Debug)]
pub(super) struct Roots {
    adopt: Option<Adopt>,
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
    pub(super) fn new(kernel: Arc<Kernel>, adopt: Option<Adopt>) -> Self {
        Self {
            settled: watch::Sender::new(adopt.is_none()),
            adopt,
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
        let Some(client) = peer.peer_info().filter(|_| self.adopt.is_some()) else {
            return Adopted::None;
        };
        if client.capabilities.roots.is_none() {
            self.settled.send_replace(true);
            return Adopted::None;
        }
        self.settled.send_replace(false);
        self.stale.store(true, Ordering::Relaxed);
        if self.asking.swap(true, Ordering::Relaxed) {
            return Adopted::None;
        }
        let mut adopted = Adopted::None;
        while self.stale.swap(false, Ordering::Relaxed) {
            adopted = match tokio::time::timeout(PATIENCE, list(peer)).await {
                Ok(Some(roots)) => self.take_over(&roots),
                _ => self.give_back(Adopted::Refused(UNNAMED.to_owned())),
            };
        }
        self.asking.store(false, Ordering::Relaxed);
        self.settled.send_replace(true);
        adopted
    }

    /// Waits until the client has named its roots, where it was asked to. What it has to be asked before the call
    /// can go on, where each request stands for itself.
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
            if tokio::time::timeout(PATIENCE, settled.wait_for(|settled| *settled))
                .await
                .is_err()
            {
                self.settled.send_replace(true);
            }
            return Ok(Adopted::None);
        }
        let answer = request
            .input_responses
            .as_ref()
            .and_then(|answers| answers.get(QUESTION));
        let adopted = match answer {
            Some(answer) => match serde_json::from_value(answer.clone()) {
                Ok(roots) => self.take_over(&roots),
                Err(_) => Adopted::Refused(UNNAMED.to_owned()),
            },
            None if context
                .client_capabilities()
                .is_some_and(|capabilities| capabilities.roots.is_some()) =>
            {
                return Err(ask_for_input());
            }
            None => Adopted::None,
        };
        self.settled.send_replace(true);
        Ok(adopted)
    }

    /// Takes over the first root that is a directory here, if it may be one.
    fn take_over(&self, roots: &ListRootsResult) -> Adopted {
        let first = roots.roots.iter().find_map(|root| path_of(&root.uri));
        let (Some(path), Some(Adopt(adopt))) = (first, &self.adopt) else {
            return self.give_back(Adopted::None);
        };
        match adopt(&path) {
            Ok(kernel) => {
                self.kernel.send_replace(Arc::new(kernel));
                Adopted::Yes(path)
            }
            Err(why) => self.give_back(Adopted::Refused(why)),
        }
    }

    /// Works where it worked before any root: a directory that the client no longer offers is no longer used.
    fn give_back(&self, why: Adopted) -> Adopted {
        self.kernel.send_replace(Arc::clone(&self.first));
        why
    }
}

async fn list(peer: &Peer<RoleServer>) -> Option<ListRootsResult> {
    peer.list_roots().await.ok()
}

fn ask_for_input() -> InputRequiredResult {
    let question = InputRequest::ListRoots(ListRootsRequest::default());
    InputRequiredResult::from_input_requests(BTreeMap::from([(QUESTION.to_owned(), question)]))
}

/// The path of a `file://` address of this machine.
fn path_of(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = path.split(['?', '#']).next()?;
    let bytes = decoded(path.as_bytes())?;
    let path = PathBuf::from(OsString::from_vec(bytes));
    Some(path).filter(|path| path.is_absolute() && !path.as_os_str().as_encoded_bytes().contains(&0))
}

/// With `%41` as `A`; none if that is written wrongly.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        bytes.push(match first {
            b'%' => {
                let (digits, after) = tail.split_at_checked(2)?;
                rest = after;
                let digits = std::str::from_utf8(digits).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                u8::from_str_radix(digits, 16).ok()?
            }
            other => *other,
        });
    }
    Some(bytes)
}

impl Adopted {
    /// What a client is told of it, and how grave that is.
    pub(super) fn told(&self) -> Option<(LoggingLevel, String)> {
        match self {
            Self::Yes(path) => Some((LoggingLevel::Info, format!("the workspace is {}", shown(path)))),
            Self::Refused(why) => Some((
                LoggingLevel::Warning,
                format!("the client's root is not the workspace: {why}"),
            )),
            Self::None => None,
        }
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().chars().take(4096).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machines_files_are_paths() {
        let check = |uri: &str, expected: Option<&str>| {
            assert_eq!(path_of(uri).as_deref(), expected.map(Path::new), "{uri}");
        };
        check("file:///home/ann/project", Some("/home/ann/project"));
        check("file://localhost/a", Some("/a"));
        check("file:///a%20b/%C3%A9", Some("/a b/é"));
        check("file:///a?x#y", Some("/a"));
        check("file://elsewhere/a", None);
        check("file://localhostile/a", None);
        check("file:relative", None);
        check("file://", None);
        check("http://a/b", None);
        check("file:///a%", None);
        check("file:///a%2", None);
        check("file:///a%+1", None);
        check("file:///a%00b", None);
    }
}
