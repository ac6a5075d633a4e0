//! Files that clients' runs leave in the state directory, until they expire or the account's last key is
//! removed.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ringfence_container::outputs::Outputs;
use ringfence_exec::artifact::{self, Store};
use ringfence_policy::Scope;
use ringfence_records::approval::{self, Service};

/// Time between two looks for records that are too old.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The places of files that runs leave. The audit log is not among them: it is the operator's record.
#[derive(Debug)]
pub struct Remains {
    /// Stored runs.
    pub runs: Store,
    /// Directories for output files of reused containers.
    pub outputs: Outputs,
    /// Questions to people, with the answers that are remembered.
    pub approvals: Service,
}

/// An error of removing files.
#[derive(Debug, thiserror::Error)]
pub enum RemainsError {
    #[error("cannot remove the stored runs of the key: {}", with_sources(.0))]
    Runs(#[from] artifact::Error),
    #[error("cannot remove the output directories of the key: {0}")]
    Outputs(#[source] io::Error),
    #[error("cannot remove the questions of the key: {0}")]
    Questions(#[from] approval::Error),
}

impl RemainsError {
    /// Returns a hint for the operator.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Runs(_) => "check the directory of `artifacts.dir`, then try again",
            Self::Outputs(_) => "wait until no container uses it, then try again",
            Self::Questions(_) => "check the state directory, then try again",
        }
    }
}

impl Remains {
    /// Removes the files that an owner's runs have left. No such run may be active. Blocks on the disk.
    ///
    /// # Errors
    /// If files are left. The call can be repeated.
    pub fn remove(&self, owner: &Scope) -> Result<(), RemainsError> {
        self.runs.remove_of(owner)?;
        self.outputs.remove_of(owner).map_err(RemainsError::Outputs)?;
        Ok(self.approvals.forget(owner)?)
    }

    /// Removes stored runs that are too old, now and at intervals, until `stop` resolves.
    pub async fn keep_young(self: Arc<Self>, stop: impl Future<Output = ()>) {
        let sweep = async {
            loop {
                let this = Arc::clone(&self);
                // What has failed is tried again.
                let _ = tokio::task::spawn_blocking(move || this.runs.sweep(None)).await;
                tokio::time::sleep(INTERVAL).await;
            }
        };
        tokio::select! {
            () = stop => {}
            never = sweep => { let _: Infallible = never; }
        }
    }
}

/// Renders an error with those that caused it.
fn with_sources(error: &artifact::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_an_owner_left_goes_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let remains = Remains {
            runs: Store::new(dir.path(), artifact::Keep::DEFAULT),
            outputs: Outputs::new(dir.path().join("output"), None),
            approvals: Service::at(dir.path()),
        };
        let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let [gone, kept] =
            [&ann, &bob].map(|scope| remains.outputs.open(scope, None).unwrap().path().to_owned());
        remains.remove(&ann).unwrap();
        assert!(!gone.exists() && kept.exists());

        // A record that cannot be removed is an error, and said so.
        let executions = dir.path().join("executions");
        fs::write(&executions, "no directory").unwrap();
        let error = remains.remove(&ann).unwrap_err();
        assert!(matches!(error, RemainsError::Runs(_)), "{error}");
        assert!(error.to_string().contains("cannot list"), "{error}");
    }
}
