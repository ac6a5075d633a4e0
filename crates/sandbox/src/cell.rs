//! The cell of a sandbox on this machine, with the connection to its init.

use ringfence_container::init::{self, Greeting, InitClient, InitLost};
use ringfence_exec::local::{Fence, Local, NoSockets, PauseControl, SandboxCell, SandboxRequest};
use ringfence_policy::{EgressPolicy, Isolation, Language, Scope};

use super::error::Error;
use super::spec::{NewSandbox, Resources};

/// A cell with the connection to its init.
#[derive(Debug)]
pub(crate) struct ConnectedCell {
    cell: SandboxCell,
    pub(crate) init: InitClient,
    /// Name or path of its Python.
    pub(crate) python: String,
}

impl ConnectedCell {
    /// Opens a cell. The second part, which must be driven, resolves when it has ended.
    pub(crate) async fn open(
        local: &Local,
        fence: Fence,
        scope: &Scope,
        new: &NewSandbox,
    ) -> Result<(Self, impl Future<Output = InitLost> + Send + use<>), Error> {
        let mut request = SandboxRequest {
            scope: scope.clone(),
            limits: new.limits(),
            network: new.network(),
            env: new.env.clone(),
            mounts: Vec::new(),
            account: new.account,
            image: new.image.as_ref().map(|image| image.root()),
        };
        new.packages.add_to(&mut request.mounts, &mut request.env);
        let (cell, reports, requests) = local.open_sandbox(&request, fence).await?;
        // On an image it is the image's.
        let own = local
            .interpreter(Language::Python)
            .filter(|_| new.image.is_none());
        let own = own.and_then(|python| python.into_os_string().into_string().ok());
        let python = own.unwrap_or_else(|| "python3".to_owned());
        match init::connect(reports, requests, Greeting::of_sandbox()).await {
            Ok((init, carrier)) => Ok((Self { cell, init, python }, carrier.carry())),
            Err(lost) => {
                let (_, words) = cell.close().await;
                Err(Error::Broken(format!("{lost} {words}").trim_end().to_owned()))
            }
        }
    }

    pub(crate) fn pause_control(&self) -> PauseControl {
        self.cell.pause_control()
    }

    pub(crate) fn isolation(&self) -> Isolation {
        self.cell.isolation.clone()
    }

    pub(crate) fn resources(&self) -> Resources {
        let (limits, usage) = (self.cell.limits, self.cell.usage());
        Resources {
            memory_limit: limits.memory_bytes,
            cpu_limit: limits.cpus,
            pids_limit: limits.pids,
            // A cell's file system always has its size.
            disk_limit: limits.disk_bytes.unwrap_or_default(),
            memory_bytes: usage.memory_bytes,
            peak_memory_bytes: usage.peak_memory_bytes,
            cpu_seconds: usage.cpu_seconds,
            pids: usage.pids,
            disk_bytes: usage.disk_bytes,
        }
    }

    /// Replaces the hosts that its programs may reach. Those that start from now on find the proxy.
    pub(crate) fn replace_egress(&self, policy: &EgressPolicy) -> Result<(), NoSockets> {
        self.cell.replace_egress(policy)?;
        if !policy.allowed.is_empty() {
            let variables = self.cell.proxy_variables().iter();
            let texts = variables.map(|(name, value)| (name.as_str().to_owned(), value.clone()));
            self.init.equip(texts);
        }
        Ok(())
    }

    pub(crate) fn egress_bytes(&self) -> u64 {
        self.cell.egress_bytes()
    }

    /// Returns the number of processes that the kernel has killed for lack of memory.
    pub(crate) fn memory_kills(&self) -> u64 {
        self.cell.usage().memory_kills
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.cell.warnings.clone()
    }

    /// Ends the cell with all processes, and waits for it.
    pub(crate) async fn close(self) {
        self.init.release();
        drop(self.cell.close().await);
    }
}
