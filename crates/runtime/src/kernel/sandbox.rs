//! How programs of the tool `sandbox_exec` run: in a container that is kept for the caller.

use std::path::Path;

use ringfence_policy::{Access, Bytes, ExecutionResult, Language, Limits, Mount, Network, RuntimeKind};

use super::{Call, ErrorKind, ToolError};
use crate::backend::{self, InContainers};
use crate::container::Flavor;
use crate::container::keepalive::Wanted;
use crate::container::outputs::{OpenOutput, Outputs};
use crate::execute::Order;
use crate::files::{self, Root};
use crate::local::Connection;
use crate::told;

/// How much of each stream is kept: as many characters as are told, however long each is.
const KEPT: Bytes = Bytes(told::MOST as u64 * 4);
/// Where programs see what they leave for their caller.
const OUTPUT: &str = "/output";

/// How programs of the tool `sandbox_exec` run.
#[derive(Debug)]
pub struct SandboxSettings {
    /// What their containers are.
    pub wanted: Wanted,
    /// What they may use together.
    pub limits: Limits,
    /// The hosts that they may reach, if some are named.
    pub reach: Network,
    /// What they see of the host beside the workspace.
    pub mounts: Vec<Mount>,
    /// Where they leave files for their caller.
    pub outputs: Outputs,
    /// What happens where there is no container engine.
    pub fallback: Fallback,
}

impl SandboxSettings {
    /// Directories of the host that their programs may write.
    pub fn opened(&self) -> impl Iterator<Item = &Path> {
        let writable = self
            .mounts
            .iter()
            .filter(|mount| mount.access == Access::ReadWrite);
        writable.map(|mount| mount.host.as_path())
    }
}

/// What happens where a container is asked for, and there is no container engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// An error says what is missing.
    None,
    /// The fence of this machine, and the result says so.
    Local,
}

impl Call<'_> {
    /// Runs a program in the container that is kept for the caller.
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

    /// Where programs in containers of their own leave files, if it can be used: where those of kept ones do.
    pub(super) fn output_of(&self, runtime: RuntimeKind) -> Option<OpenOutput> {
        Flavor::of(runtime)?;
        let outputs = &self.kernel.sandbox.as_ref()?.outputs;
        outputs
            .open(&self.caller.scope, self.caller.session.as_ref())
            .ok()
    }

    /// The directory that programs leave files in, and the path there, if it is the path of such a file: below `/output`,
    /// or where that is on the host.
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
            // What can only mean a directory goes on to mean one.
            below if path.ends_with('/') => format!("{below}/"),
            below => below.to_owned(),
        };
        Some((Root::open(&directory, kernel.workspaces.rules().clone()), below))
    }

    /// Runs an order in the container that is wanted.
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

/// Where a program runs that is meant for `runtime`, and what its result says of that. Standard input is still untouched.
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

/// What is said where something else ran a program in place of a container.
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
