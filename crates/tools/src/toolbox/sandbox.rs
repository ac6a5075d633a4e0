//! Runs programs of the tool `sandbox_exec` in a persistent container of the caller.

use std::path::Path;

use ringfence_container::outputs::{OpenOutput, Outputs};
use ringfence_exec::local::Usage;
use ringfence_exec::runner::{OutputDirectory, RunSpec};
use ringfence_policy::{
    Access, Bytes, EngineKind, ExecutionResult, Fallback, KeepAlive, Limits, Mount, Network, RemoteRequest,
    Target,
};

use super::{Call, ErrorKind, ToolError};
use crate::files::{self, Root};
use crate::render;

/// Capture limit of each stream: as many characters as the model gets, at up to 4 bytes each.
const KEPT: Bytes = Bytes(render::MOST as u64 * 4);
/// Size of an output directory, beyond which files are discarded with their run.
const MAX_OUTPUT: Bytes = Bytes::mib(256);
/// Path of the output directory for programs.
const OUTPUT: &str = "/output";

/// Settings of the tool `sandbox_exec`.
#[derive(Debug)]
pub struct SandboxSettings {
    pub engine: EngineKind,
    /// Properties of the reused container.
    pub keep_alive: KeepAlive,
    /// Limits of all programs in a container together.
    pub limits: Limits,
    /// Hosts that the programs may reach.
    pub reach: Network,
    /// Host paths that the programs see beside the workspace.
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

impl Call<'_> {
    /// Runs a program in the persistent container of the caller.
    pub(crate) async fn in_sandbox(&self, asked: RemoteRequest) -> Result<ExecutionResult, ToolError> {
        let settings = self.toolbox.sandbox.as_ref().ok_or_else(not_here)?;
        let mut request = self.accept(asked).request;
        request.mounts.clone_from(&settings.mounts);
        request.trusted.clone_from(&self.toolbox.code.trusted);
        request.network.clone_from(&settings.reach);
        request.limits = Limits {
            timeout: request.limits.timeout,
            max_output: KEPT.min(self.toolbox.limits.max_output),
            ..settings.limits
        };
        let Self { caller, toolbox, .. } = self;
        let room = self.private_room(&request);
        let session = caller.session.clone();
        // Locked until the run has ended.
        let output = match settings.fallback {
            Fallback::Local => settings.outputs.open(&caller.scope, session.as_ref()).ok(),
            Fallback::None => None,
        };
        let fallback = (settings.fallback == Fallback::Local).then(|| RunSpec {
            output_directory: output
                .as_ref()
                .map(|output| OutputDirectory::new(output.path().to_path_buf()).showing_earlier()),
            ..RunSpec::new(request.clone(), Target::Local, toolbox.code.fence)
        });
        let target = Target::Container {
            engine: settings.engine,
            keep_alive: Some(KeepAlive {
                session,
                ..settings.keep_alive.clone()
            }),
        };
        let spec = RunSpec {
            fallback: fallback.map(Box::new),
            ..RunSpec::new(request, target, toolbox.code.fence)
        };
        self.run(&spec, room, None).await
    }

    /// Opens the output directory of the conversation, if usable: one for all runtimes and tools. Clients of the HTTP API
    /// have none, as they have no tool that reads it.
    pub(super) async fn output_of(&self) -> Option<OpenOutput> {
        let Self { caller, toolbox, .. } = self;
        if caller.surface.is_remote() {
            return None;
        }
        let outputs = &toolbox.sandbox.as_ref()?.outputs;
        let output = outputs.open(&caller.scope, caller.session.as_ref()).ok()?;
        let most = Usage::at_most(MAX_OUTPUT.0);
        let has_room = Usage::growing(output.path(), MAX_OUTPUT.0).await == most;
        has_room.then_some(output)
    }

    /// Resolves a path of an output file, below `/output` or its directory on the host, to that directory and
    /// the path inside.
    pub(super) fn left_by_programs(&self, path: &str) -> Option<(Result<Root, files::Error>, String)> {
        let settings = self.toolbox.sandbox.as_ref()?;
        let Self { caller, toolbox, .. } = self;
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
        Some((Root::open(&directory, toolbox.workspaces.rules().clone()), below))
    }
}

fn not_here() -> ToolError {
    ToolError::new(
        ErrorKind::PermissionDenied,
        "there are no containers for programs here",
        "use `run_code`",
    )
}
