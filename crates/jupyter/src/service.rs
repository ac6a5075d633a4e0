//! The kernels of a server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::{EnvName, Scope};
use ringfence_sandbox::{Error as SandboxError, NewSandbox, Sandboxes, Unclaimed, rfc3339};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::kernel::{LIFETIME, Place, Shared};
use crate::request_queue::RequestQueue;
use crate::spec::Kind;

/// A kernel to create.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKernel {
    /// One of `GET /jupyter/api/kernelspecs`; `python3` by default.
    name: Option<String>,
    /// Path of the notebook. Without effect: its directory is not here.
    #[serde(rename = "path")]
    #[expect(dead_code, reason = "clients of Jupyter send it")]
    notebook: Option<String>,
    /// Environment of the sandbox's programs.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// A kernel, as Jupyter describes it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KernelInfo {
    /// The id of its sandbox, with a dash behind every fourth character.
    pub id: String,
    pub name: &'static str,
    /// Time of the last message (RFC 3339).
    pub last_activity: String,
    /// `starting`, `idle`, `busy`, `restarting` or `dead`.
    pub execution_state: &'static str,
    pub connections: usize,
}

/// A kernel: a sandbox with an interpreter, and the requests that wait for it.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) shared: Arc<Shared>,
    pub(crate) requests: RequestQueue,
}

impl Kernel {
    /// Describes the kernel.
    pub fn info(&self) -> KernelInfo {
        let shared = &self.shared;
        KernelInfo {
            id: shared.id.clone(),
            name: shared.kind.name,
            last_activity: rfc3339(shared.activity()),
            execution_state: shared.status().as_str(),
            connections: shared.connections(),
        }
    }

    /// Interrupts the code that runs, if any does.
    ///
    /// # Errors
    /// If its sandbox has ended or is paused.
    pub fn interrupt(&self) -> Result<(), Error> {
        self.shared.interrupt()
    }

    /// Ends the interpreter, and starts another one. Requests that wait are not carried out; files stay.
    ///
    /// # Errors
    /// If its sandbox has ended, or the other one cannot be started.
    pub async fn restart(&self) -> Result<(), Error> {
        self.shared.restart().await
    }
}

/// The kernels of a server. Each has a sandbox, and ends with it.
#[derive(Debug)]
pub struct Service {
    sandboxes: Arc<Sandboxes>,
    kernels: Mutex<BTreeMap<String, Arc<Kernel>>>,
}

impl Service {
    /// Creates a service that creates its kernels among these sandboxes.
    pub fn new(sandboxes: Arc<Sandboxes>) -> Self {
        Self {
            sandboxes,
            kernels: Mutex::default(),
        }
    }

    fn kernels(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Kernel>>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_alive(&self, kernel: &Kernel) -> bool {
        let shared = &kernel.shared;
        self.sandboxes
            .get(&shared.scope, shared.sandbox.id().as_str())
            .is_ok()
    }

    /// Creates a kernel with a sandbox of its own, and starts its interpreter. Its owner may have at most so many sandboxes.
    ///
    /// # Errors
    /// If there is no such kind, or the sandbox or the interpreter cannot be made.
    pub async fn create(
        &self,
        scope: &Scope,
        most: Option<usize>,
        new: NewKernel,
    ) -> Result<Arc<Kernel>, Error> {
        let kind = Kind::find(new.name.as_deref());
        let kind = kind.ok_or_else(|| {
            let name = new.name.unwrap_or_default();
            Error::NoSpec(name.chars().take(80).collect())
        })?;
        let variable = |(name, value): (String, String)| {
            let name = name.parse::<EnvName>();
            let name = name.map_err(|error| SandboxError::Invalid(format!("`env`: {error}")));
            Ok::<_, SandboxError>((name?, value))
        };
        let sandbox = NewSandbox {
            env: new.env.into_iter().map(variable).collect::<Result<_, _>>()?,
            metadata: BTreeMap::from([("kernel".to_owned(), kind.name.to_owned())]),
            timeout: Some(LIFETIME),
            most,
            ..NewSandbox::default()
        };
        let sandbox = self.sandboxes.create(scope, sandbox).await?;
        // A client that leaves meanwhile does not know the kernel.
        let unclaimed = Unclaimed::new(&self.sandboxes, scope, &sandbox);
        let id = kernel_id(sandbox.id().as_str());
        let place = Place {
            scope: scope.clone(),
            sandbox,
            sandboxes: Arc::clone(&self.sandboxes),
        };
        let shared = Arc::new(Shared::new(id.clone(), kind, place));
        shared.interpreter().await?;
        unclaimed.keep();
        shared.set_idle();
        let kernel = Arc::new(Kernel {
            requests: RequestQueue::start(Arc::clone(&shared)),
            shared,
        });
        let mut kernels = self.kernels();
        kernels.retain(|_, kernel| self.is_alive(kernel));
        kernels.insert(id, Arc::clone(&kernel));
        Ok(kernel)
    }

    /// Returns the kernels of a scope, in the order of their ids.
    pub fn list(&self, scope: &Scope) -> Vec<KernelInfo> {
        let kernels = self.kernels();
        let own = kernels.values().filter(|kernel| kernel.shared.scope == *scope);
        own.filter(|kernel| self.is_alive(kernel))
            .map(|kernel| kernel.info())
            .collect()
    }

    /// Returns a kernel of a scope.
    ///
    /// # Errors
    /// If it has none of this id, or its sandbox has ended.
    pub fn get(&self, scope: &Scope, id: &str) -> Result<Arc<Kernel>, Error> {
        let mut kernels = self.kernels();
        let found = kernels
            .get(id)
            .filter(|kernel| kernel.shared.scope == *scope)
            .cloned();
        let alive = found.filter(|kernel| {
            let is_alive = self.is_alive(kernel);
            if !is_alive {
                kernel.shared.end();
                kernels.remove(id);
            }
            is_alive
        });
        alive.ok_or_else(|| Error::NoKernel(id.chars().take(80).collect()))
    }

    /// Ends a kernel and its sandbox, and waits for that.
    ///
    /// # Errors
    /// If the scope has none of this id.
    pub async fn remove(&self, scope: &Scope, id: &str) -> Result<(), Error> {
        let kernel = self.get(scope, id)?;
        self.kernels().remove(id);
        let removed = self
            .sandboxes
            .remove(scope, kernel.shared.sandbox.id().as_str())
            .await;
        kernel.shared.end();
        // It may have ended by itself meanwhile.
        drop(removed);
        Ok(())
    }

    /// Removes the kernels of an owner. The caller ends their sandboxes.
    pub fn clear(&self, scope: &Scope) {
        self.end(|kernel| kernel.shared.scope == *scope);
    }

    /// Removes all kernels. The caller ends their sandboxes.
    pub fn close(&self) {
        self.end(|_| true);
    }

    fn end(&self, is_over: impl Fn(&Kernel) -> bool) {
        self.kernels().retain(|_, kernel| {
            let is_over = is_over(kernel);
            if is_over {
                kernel.shared.end();
            }
            !is_over
        });
    }
}

/// Returns the id of the kernel of a sandbox: five words with dashes, as Jupyter's own servers expect ids.
fn kernel_id(sandbox: &str) -> String {
    let characters: Vec<char> = sandbox.chars().collect();
    let words = characters.chunks(4).map(|word| word.iter().collect::<String>());
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_five_words() {
        assert_eq!(kernel_id("abcdefghij0123456789"), "abcd-efgh-ij01-2345-6789");
    }

    #[test]
    fn a_request_for_a_kernel_has_known_members_alone() {
        let parsed = |text: &str| serde_json::from_str::<NewKernel>(text);
        assert!(parsed(r#"{"name": "python3", "path": null, "env": {"KERNEL_USERNAME": "a"}}"#).is_ok());
        assert!(parsed("{}").is_ok());
        assert!(parsed(r#"{"cwd": "/"}"#).is_err());
    }
}
