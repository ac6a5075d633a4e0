//! Builds the pool key of a request: requests with equal keys can share a pre-started container.

use std::path::{Path, PathBuf};

use ringfence_exec::filter::STANDARD_TCP;
use ringfence_jail::FileIdentity;
use ringfence_policy::{self as policy, Access, Bytes, Mount, NetworkMode, Request};

use super::guest_paths::{OUTPUT, WORKSPACE};
use super::mounts;
use super::run_error::RunError;
use super::settings::Settings;
use super::spec::{Bind, Filter, Image, Name, OciRuntime, Resources, User, Volume};
use super::supervisor::ContainerSupervisor;

/// Destination of a program's output files.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Output {
    /// Files are collected from the container's own directory. It is also mounted at this path, their
    /// destination on the host, so that paths printed by the program are valid there.
    Taken(Option<PathBuf>),
    /// Files stay in this host directory of the conversation, which is also mounted at its own path.
    Kept(PathBuf),
}

/// Container defaults; requests may override them.
#[derive(Debug)]
pub(super) struct Making<'a> {
    pub(super) image: Image,
    pub(super) network: NetworkMode,
    pub(super) filter: &'a str,
}

/// Pool key: the properties of a container that a request determines before it runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PoolKey {
    pub(super) image: Image,
    pub(super) user: User,
    pub(super) resources: Resources,
    pub(super) network: NetworkMode,
    pub(super) filter: Filter,
    pub(super) oci_runtime: OciRuntime,
    pub(super) scope: String,
    /// Bind mounts: the workspace, if any, and further host paths, with the identities of their sources: a container
    /// keeps the files that were there when it was created.
    pub(super) shown: Vec<Bind>,
    pub(super) has_workspace: bool,
    pub(super) output: Output,
    /// Identity of the conversation's directory for output files, if they stay there.
    output_identity: Option<FileIdentity>,
}

impl PoolKey {
    pub(super) fn of(
        settings: &Settings,
        supervisor: &ContainerSupervisor,
        making: Making<'_>,
        request: &Request,
        output: Option<&Path>,
    ) -> Result<Self, RunError> {
        let shown = mounts::shown(request, settings)?;
        let limits = &request.limits;
        let (network, filter) = reach(&request.network, making.network, making.filter);
        let kept = output.filter(|output| settings.outputs.holds(output, &request.scope));
        Ok(Self {
            image: making.image,
            user: mounts::user(settings, supervisor),
            resources: Resources {
                memory: limits.memory,
                cpus: limits.cpus,
                pids: limits.pids,
                disk: limits.disk,
            },
            network,
            filter: Filter::named(filter).map_err(RunError::Filter)?,
            oci_runtime: supervisor.oci_runtime(settings.oci_runtime)?,
            scope: request.scope.as_str().to_owned(),
            output_identity: kept.and_then(FileIdentity::at),
            output: match (kept, output) {
                (Some(kept), _) => Output::Kept(kept.to_path_buf()),
                (None, output) => Output::Taken(
                    output
                        .filter(|output| is_free(output, &shown))
                        .map(Path::to_path_buf),
                ),
            },
            has_workspace: shown.iter().any(|bind| bind.guest() == Path::new(WORKSPACE)),
            shown,
        })
    }

    /// Returns the tmpfs volumes of a container with this name: for output files, and for a workspace if none
    /// is mounted.
    pub(super) fn volumes(&self, name: &Name) -> Vec<Volume> {
        let alias = match &self.output {
            Output::Taken(alias) => alias.clone(),
            Output::Kept(path) => Some(path.clone()),
        };
        let output = std::iter::once(PathBuf::from(OUTPUT)).chain(alias).collect();
        volumes(name, self.resources.volume(), output, !self.has_workspace)
    }
}

/// Returns a volume for output files, mounted at these paths, and one for the workspace if requested.
pub(super) fn volumes(name: &Name, size: Bytes, output: Vec<PathBuf>, workspace: bool) -> Vec<Volume> {
    let volume = |part: &str, places| Volume {
        name: name.part(part),
        places,
        size,
    };
    let workspace = workspace.then(|| volume("workspace", vec![PathBuf::from(WORKSPACE)]));
    std::iter::once(volume("output", output))
        .chain(workspace)
        .collect()
}

/// Chooses network mode and seccomp filter. Allowed hosts are reached through our init and its proxy, not
/// through a network of the container.
pub(super) fn reach<'a>(
    wanted: &policy::Network,
    network: NetworkMode,
    filter: &'a str,
) -> (NetworkMode, &'a str) {
    match wanted {
        policy::Network::None => (network, filter),
        policy::Network::Allowlist(_) => (NetworkMode::None, STANDARD_TCP),
    }
}

/// Returns `true` if no mount of a container overlaps a path.
fn is_free(path: &Path, shown: &[Bind]) -> bool {
    let own = ["/code", OUTPUT, WORKSPACE].map(Path::new);
    let mut places = own.into_iter().chain(shown.iter().map(Bind::guest));
    let text = path.to_str().filter(|text| *text != "/tmp");
    let mountable = text.is_some_and(|text| Mount::new(path.to_path_buf(), text, Access::ReadWrite).is_ok());
    mountable && !places.any(|place| place.starts_with(path) || path.starts_with(place))
}

#[cfg(test)]
mod tests {
    use ringfence_exec::mount_guard::DeniedPaths;

    use super::*;

    #[test]
    fn files_are_seen_by_their_path_of_the_host_where_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let shown = [Bind::at(
            dir.path(),
            Path::new("/data/in"),
            Access::ReadOnly,
            &DeniedPaths::default(),
        )
        .unwrap()];
        let check = |path: &str, expected| assert_eq!(is_free(Path::new(path), &shown), expected, "{path}");
        check("/home/ann/out", true);
        check("/tmp/out", true);
        check("/data/out", true);
        for taken in [
            "/",
            "/tmp",
            "/usr/out",
            "/data",
            "/data/in",
            "/data/in/out",
            "/workspace/out",
            "/output",
        ] {
            check(taken, false);
        }
    }
}
