//! Installs packages in a fence that reaches the index alone.

use std::io::{self, Read};

use ringfence_exec::local::{Chunk, Connection, Fence, Stream};
use ringfence_exec::runner::{Hooks, RunSpec, Runner};
use ringfence_policy::{
    Bytes, Cidr, Cpus, EgressPolicy, ExecutionResult, Limits, Network, Outcome, Pids, Request, Scope, Target,
    Timeout,
};
use tokio::sync::{mpsc, watch};

use crate::ecosystem::Ecosystem;
use crate::error::{Error, InstallError, StoreError};
use crate::failure;
use crate::index::Index;
use crate::requirement::Requirement;
use crate::store::Staging;
use crate::tree::{self, Tree, TreeError};

/// Exit status of a guest without an installer.
const NO_INSTALLER: i32 = 3;
/// Exit status after a package that brought the metadata of another.
const FOREIGN_METADATA: i32 = 5;
/// Exit status of a guest in an interpreter that has another installer.
const NOT_NODE: i32 = 6;

/// Capacity of the queue of output chunks.
const IN_FLIGHT: usize = 16;

/// Limits of an installation. Its files are in memory until they are read.
fn limits() -> Limits {
    Limits {
        timeout: Timeout::seconds(15 * 60),
        max_output: Bytes::kib(64),
        memory: Bytes::mib(3 * 1024),
        disk: Bytes::mib(2 * 1024),
        cpus: Cpus::ONE,
        pids: Pids::DEFAULT,
    }
}

/// An installation to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Installation<'a> {
    pub(crate) index: &'a Index,
    /// Address ranges that the user opened to programs.
    pub(crate) private_networks: &'a [Cidr],
    pub(crate) requirements: &'a [Requirement],
    pub(crate) scope: &'a Scope,
    pub(crate) fence: Fence,
}

impl Installation<'_> {
    /// Returns the specification of the guest that installs.
    pub(crate) fn spec(self) -> RunSpec {
        let facts = self.index.ecosystem().facts();
        let (name, code) = facts.program;
        let index = [
            self.index.to_string(),
            self.index.without_tls().unwrap_or_else(|| "-".to_owned()),
            facts.place.to_owned(),
        ];
        let request = Request {
            name: name.to_owned(),
            args: index
                .into_iter()
                .chain(self.requirements.iter().map(ToString::to_string))
                .collect(),
            limits: limits(),
            network: Network::Allowlist(EgressPolicy {
                allowed: self.index.allowed(),
                private_networks: self.private_networks.to_vec(),
            }),
            scope: self.scope.clone(),
            ..Request::new(facts.language, code)
        };
        // Code of strangers is installed in the fence alone, whatever runs may do without.
        let fence = match self.fence {
            Fence::Required => Fence::Required,
            Fence::Default | Fence::BestEffort | Fence::Unfenced | Fence::Host => Fence::Default,
        };
        RunSpec::new(request, Target::Local, fence)
    }

    /// Runs the installation, and unpacks its archive.
    pub(crate) async fn run(
        self,
        staging: Staging,
        runner: &Runner,
        cancelled: Option<watch::Receiver<bool>>,
    ) -> Result<(Staging, Tree), Error> {
        let (output, chunks) = mpsc::channel(IN_FLIGHT);
        let ecosystem = self.index.ecosystem();
        // The lock stays with the thread that writes, even if nobody waits for it any more.
        let unpacking = tokio::task::spawn_blocking(move || {
            let tree = tree::unpack(Archive::new(chunks), &staging.site_packages(), ecosystem);
            (staging, tree)
        });
        let connection = Connection {
            output: Some(output),
            cancelled,
            ..Connection::none()
        };
        let spec = self.spec();
        let result = runner.run(&spec, Hooks::default(), connection).await;
        let (staging, tree) = unpacking.await.map_err(StoreError::Panicked)?;
        Ok((staging, installed(ecosystem, &result?, tree)?))
    }
}

/// Returns the tree of an installation that succeeded.
fn installed(
    ecosystem: Ecosystem,
    result: &ExecutionResult,
    tree: Result<Tree, TreeError>,
) -> Result<Tree, InstallError> {
    match (result.meta.outcome, result.exit_code) {
        // The guest could not go on because we had stopped reading.
        (Outcome::Exited | Outcome::Signalled, code) if code != 0 && is_refused(&tree) => {
            tree.map_err(InstallError::Tree)
        }
        (Outcome::Exited, 0) => tree.map_err(InstallError::Tree),
        (Outcome::Exited, NO_INSTALLER) => Err(InstallError::NoInstaller(ecosystem)),
        (Outcome::Exited, NOT_NODE) => Err(InstallError::NotNode(ecosystem)),
        (Outcome::Exited, FOREIGN_METADATA) => Err(InstallError::ForeignMetadata),
        (Outcome::TimedOut, _) => Err(InstallError::TimedOut(limits().timeout)),
        (Outcome::MemoryExceeded, _) => Err(InstallError::Memory(limits().memory)),
        (Outcome::Cancelled, _) => Err(InstallError::Cancelled),
        (Outcome::Exited | Outcome::Signalled | Outcome::Blocked | Outcome::Unknown, _) => {
            Err(failure::classify(ecosystem, result, limits().disk))
        }
    }
}

/// Returns `true` if the archive was refused for its content, not for being truncated.
fn is_refused(tree: &Result<Tree, TreeError>) -> bool {
    matches!(tree, Err(error) if !matches!(error, TreeError::Archive(_)))
}

/// Standard output of a guest, as it arrives.
struct Archive {
    chunks: mpsc::Receiver<Chunk>,
    current: io::Cursor<Vec<u8>>,
}

impl Archive {
    fn new(chunks: mpsc::Receiver<Chunk>) -> Self {
        Self {
            chunks,
            current: io::Cursor::default(),
        }
    }
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.current.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.chunks.blocking_recv() {
                Some(chunk) if chunk.stream == Stream::Stdout => {
                    self.current = io::Cursor::new(chunk.bytes);
                }
                Some(_) => {}
                None => return Ok(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_reaches_the_index_alone() {
        let index = Index::new(Ecosystem::Python, "https://index.test/simple", Vec::new()).unwrap();
        let requirements = ["b==1".parse().unwrap()];
        let installation = Installation {
            index: &index,
            private_networks: &[],
            requirements: &requirements,
            scope: &Scope::local(),
            fence: Fence::Unfenced,
        };
        let spec = installation.spec();
        assert_eq!(spec.fence, Fence::Default);
        assert_eq!(
            spec.request.network,
            Network::Allowlist(EgressPolicy {
                allowed: vec!["index.test:443".parse().unwrap()],
                private_networks: Vec::new(),
            })
        );
        assert!(
            spec.request.mounts.is_empty() && spec.request.workspace.is_none() && spec.request.env.is_empty()
        );
        assert_eq!(spec.request.args.last().map(String::as_str), Some("b==1"));
    }
}
