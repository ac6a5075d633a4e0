//! Settings of request containers.

use std::path::{Path, PathBuf};

use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::Ledger;
use ringfence_network::egress::NetworkSettings;
use ringfence_policy::{Access, EngineKind, NetworkMode};
use serde::Serialize;

use super::endpoint::Surroundings;
use super::init::{self, FixedFile};
use super::outputs::Outputs;
use super::pins::Pins;
use super::run_error::RunError;
use super::spec::{Bind, Binds, Image, OciRuntime, Spec, User};

/// Names of the container itself.
const HOSTS: (&str, FixedFile) = (
    "/etc/hosts",
    FixedFile {
        name: "hosts",
        bytes: b"127.0.0.1 localhost sandbox\n::1 localhost\n",
        mode: 0o444,
    },
);

/// The resolvers of a container without a network.
const RESOLVER: (&str, FixedFile) = (
    "/etc/resolv.conf",
    FixedFile {
        name: "resolv",
        bytes: b"# This container has no network.\n",
        mode: 0o444,
    },
);

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

    /// Gives a container files of names. Engines would give it copies of the host's, with the names that its operator uses.
    pub(super) fn with_hosts_files(&self, spec: Spec) -> Result<Spec, RunError> {
        let names = match spec.network {
            NetworkMode::None => &[HOSTS, RESOLVER][..],
            // The engine says where names are resolved.
            NetworkMode::Bridge => &[HOSTS],
        };
        let mut binds: Vec<Bind> = spec.binds.iter().cloned().collect();
        for (guest, file) in names {
            let path = init::fixed(&self.init, *file).map_err(RunError::InitFile)?;
            // Exempt from the denylist, as the init is.
            let hidden = DeniedPaths::default();
            binds.push(Bind::ours(&path, Path::new(guest), Access::ReadOnly, &hidden)?);
        }
        Ok(Spec {
            binds: Binds::new(binds)?,
            ..spec
        })
    }

    /// Resolves an image to its pinned digest, if it was set up on this host.
    pub(super) fn pinned(&self, engine_kind: EngineKind, image: &Image) -> Result<Image, RunError> {
        let pins = Pins::read(&self.pins)?;
        Ok(pins.get(engine_kind, image).unwrap_or_else(|| image.clone()))
    }
}
