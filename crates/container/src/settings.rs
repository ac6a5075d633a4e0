//! Settings of request containers.

use std::path::PathBuf;

use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::Ledger;
use ringfence_network::egress::NetworkSettings;
use ringfence_policy::{EngineKind, NetworkMode};
use serde::Serialize;

use super::endpoint::Surroundings;
use super::init;
use super::outputs::Outputs;
use super::pins::Pins;
use super::run_error::RunError;
use super::spec::{Image, OciRuntime, User};

/// Settings of request containers. Backends with equal ones create equal containers for a request.
#[derive(Debug, Clone, Serialize)]
pub struct Settings {
    /// Endpoint candidates of the engines.
    pub surroundings: Surroundings,
    /// Image of the containers.
    pub image: Image,
    /// File with the digests of images that were set up on this host.
    pub pins: PathBuf,
    /// Network mode.
    pub network: NetworkMode,
    pub oci_runtime: OciRuntime,
    /// Name of the seccomp filter.
    pub filter: String,
    /// Host paths that no program may see.
    pub hidden: DeniedPaths,
    /// Host directories that programs were allowed to write.
    pub ledger: Ledger,
    /// Workspace paths that are read-only for programs: those that the host would execute.
    pub protected: Vec<String>,
    /// Parent of the runs' working directories.
    pub scratch: PathBuf,
    /// Private directory for the init program of warm containers; created if necessary.
    pub init: PathBuf,
    /// Output directories of reused containers.
    pub outputs: Outputs,
    /// Our own user.
    pub user: User,
    /// Egress settings of programs that may reach some hosts.
    pub egress: NetworkSettings,
}

impl Settings {
    /// Returns the path of the init program, as a file that containers can mount.
    pub(super) fn init_program(&self) -> Result<PathBuf, RunError> {
        init::file(&self.init).map_err(RunError::InitFile)
    }

    /// Resolves an image to its pinned digest, if it was set up on this host.
    pub(super) fn pinned(&self, engine_kind: EngineKind, image: &Image) -> Result<Image, RunError> {
        let pins = Pins::read(&self.pins)?;
        Ok(pins.get(engine_kind, image).unwrap_or_else(|| image.clone()))
    }
}
