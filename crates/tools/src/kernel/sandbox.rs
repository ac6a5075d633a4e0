//! Runs programs of the tool `sandbox_exec` in a persistent container of the caller.

use std::path::Path;

use ringfence_container::Flavor;
use ringfence_container::keepalive::Wanted;
use ringfence_container::outputs::{OpenOutput, Outputs};
use ringfence_container::runner::InContainers;
use ringfence_exec::backend;
use ringfence_exec::execute::Order;
use ringfence_exec::local::Connection;
use ringfence_policy::{Access, Bytes, ExecutionResult, Language, Limits, Mount, Network, RuntimeKind};

use super::{Call, ErrorKind, ToolError};
use crate::files::{self, Root};
use crate::render;

/// Capture limit of each stream: as many characters as the model gets, at up to 4 bytes each.
const KEPT: Bytes = Bytes(render::MOST as u64 * 4);
/// Path of the output directory inside containers.
const OUTPUT: &str = "/output";

/// Settings of the tool `sandbox_exec`.
#[derive(Debug)]
pub struct SandboxSettings {
    /// Kind of container.
    pub wanted: Wanted,
    /// Limits of all programs in a container together.
    pub limits: Limits,
    /// Hosts that they may reach.
    pub reach: Network,
    /// Host paths that they see beside the workspace.
    pub mounts: Vec<Mount>,
    /// Output directories of programs.
    pub outputs: Outputs,
    /// Fallback if there is no container engine.
    pub fallback: Fallback,
}

impl SandboxSettings {
    /// Returns the host directories that programs may write to.
    pub fn opened(&self) -> impl Iterator<Item = &Path> {
        let writable = self
            .mounts
            .iter()
            .filter(|mount| mount.access == Access::ReadWrite);
        writable.map(|mount| mount.host.as_path())
    }
}

/// Fallback if a container is requested and there is no container engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    None,
    /// The fence of this machine, with a warning in the result.
    Local,
}

impl Call<'_> {
    /// Runs a program in the persistent container of the caller.
    pub(crate) async fn in_sandbox(
        &self,
        language: Language,
        code: String,
    ) -> Result<ExecutionResult, ToolError> {
        let settings = self.kernel.sandbox.as_ref().ok_or_else(not_here)?;
        let mut request = self.request(language);
        request.code = code;
        request.mounts.clone_from(&settings.mounts);
        request.trusted.clone_from(&self.kernel.code.trusted);
        request.network.clone_from(&settings.reach);
        request.limits = Limits {
            timeout: request.limits.timeout,
            max_output: KEPT.min(self.kernel.limits.max_output),
            ..settings.limits
        };
        let wanted = Wanted {
            session: self.caller.session.clone(),
            ..settings.wanted.clone()
        };
        let room = self.private_room(&request);
        let order = Order {
            request,
            runtime: wanted.engine.runtime(),
            fence: self.kernel.code.fence,
            output_directory: None,
        };
        self.order((&order, Some(&wanted)), room, None).await
    }

    /// Opens the output directory for programs in containers of their own, if usable: the same as for
    /// persistent ones.
    pub(super) fn output_of(&self, runtime: RuntimeKind) -> Option<OpenOutput> {
        Flavor::of(runtime)?;
        let outputs = &self.kernel.sandbox.as_ref()?.outputs;
        outputs
            .open(&self.caller.scope, self.caller.session.as_ref())
            .ok()
    }

    /// Resolves a path of an output file, below `/output` or its directory on the host, to that directory and
    /// the path inside.
    pub(super) fn left_by_programs(&self, path: &str) -> Option<(Result<Root, files::Error>, String)> {
        let settings = self.kernel.sandbox.as_ref()?;
        let Self { caller, kernel, .. } = self;
        let directory = settings.outputs.path(&caller.scope, caller.session.as_ref());
        let inside = Path::new(path).strip_prefix(OUTPUT);
        let below = inside
            .or_else(|_| Path::new(path).strip_prefix(&directory))
            .ok()?;
        let below = match below.to_str()? {
            "" => ".".to_owned(),
            // Keeps a trailing slash, which means a directory.
            below if path.ends_with('/') => format!("{below}/"),
            below => below.to_owned(),
        };
        Some((Root::open(&directory, kernel.workspaces.rules().clone()), below))
    }

    /// Runs an order in the persistent container `wanted`.
    pub(super) async fn run_in_sandbox(
        &self,
        order: &Order,
        wanted: &Wanted,
        connection: Connection,
    ) -> Result<ExecutionResult, backend::Error> {
        let kernel = self.kernel;
        let containers = kernel.containers.as_ref().ok_or_else(|| backend::Error {
            reason: backend::Reason::Unavailable,
            message: "there are no containers here".to_owned(),
            hint: "use `run_code`".to_owned(),
        })?;
        let again = Connection {
            stdin: None,
            output: connection.output.clone(),
            cancelled: connection.cancelled.clone(),
            bridge: None,
        };
        let (request, fence) = (&order.request, order.fence);
        let calling = async |connection| containers.call_in(wanted, (request, fence), connection).await;
        let error = match self.bridged(order, connection, calling).await {
            Err(error) if error.reason == backend::Reason::Unavailable => error,
            ran => return ran,
        };
        let settings = kernel.sandbox.as_ref();
        match settings.map(|settings| (settings.fallback, &settings.outputs)) {
            Some((Fallback::Local, outputs)) => {
                let output = outputs.open(&request.scope, wanted.session.as_ref()).ok();
                let running = async |connection| {
                    let directory = output.as_ref().map(|output| output.path().to_path_buf());
                    let running = kernel.backend.run(request, fence, directory, connection);
                    running.await
                };
                let mut result = self.bridged(order, again, running).await?;
                result.meta.warnings.push(instead(&error.message, "fenced"));
                Ok(result)
            }
            Some((Fallback::None, _)) | None => Err(error),
        }
    }
}

/// Returns the runtime of a program requested for `runtime`, with a warning if it is the fallback. Does not
/// consume standard input.
pub async fn place(
    runtime: RuntimeKind,
    fallback: Fallback,
    containers: &dyn InContainers,
) -> (RuntimeKind, Option<String>) {
    let missing = match (Flavor::of(runtime), fallback) {
        (Some(flavor), Fallback::Local) => containers.missing(flavor).await,
        (Some(_), Fallback::None) | (None, _) => None,
    };
    match missing {
        Some(error) => (RuntimeKind::Local, Some(instead(&error.message, "fenced"))),
        None => (runtime, None),
    }
}

/// Renders the warning that a fallback replaced a container.
pub(super) fn instead(why: &str, what: &str) -> String {
    format!("there was no container ({why}); as configured, the {what} runner ran it instead")
}

fn not_here() -> ToolError {
    ToolError::new(
        ErrorKind::PermissionDenied,
        "there are no containers for programs here",
        "use `run_code`",
    )
}
