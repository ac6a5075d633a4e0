//! A request's container but for its program and its own directories: requests that agree in it could have had the same one.

use std::fs;
use std::os::unix::fs::MetadataExt;

use ringfence_policy::{self as policy, Request};

use super::manager::Manager;
use super::places;
use super::spec::{Bind, Filter, Image, Network, OciRuntime, Resources, User};
use super::{Containers, RunError};
use crate::filter::STANDARD_TCP;

/// All of a container that a request decides before it runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub(super) image: Image,
    pub(super) user: User,
    pub(super) resources: Resources,
    pub(super) network: Network,
    pub(super) filter: Filter,
    pub(super) oci_runtime: OciRuntime,
    pub(super) scope: String,
    /// The workspace, if it is given one, and what else it sees of the host.
    pub(super) shown: Vec<Bind>,
    /// Which files these are: a container goes on seeing what lay there when it was made.
    identities: Vec<Option<(u64, u64)>>,
    pub(super) has_workspace: bool,
}

impl Frame {
    pub(super) fn of(
        containers: &Containers,
        manager: &Manager,
        request: &Request,
    ) -> Result<Self, RunError> {
        let settings = &containers.settings;
        let mut shown = match &request.workspace {
            Some(path) => places::workspace(path, settings)?,
            None => Vec::new(),
        };
        for mount in &request.mounts {
            shown.push(Bind::new(mount, &settings.hidden)?);
        }
        let limits = &request.limits;
        let (network, filter) = reach(&request.network, (settings.network, &settings.filter));
        Ok(Self {
            image: containers.image(manager.engine().flavor())?,
            user: places::user(containers, manager),
            resources: Resources {
                memory: limits.memory,
                cpus: limits.cpus,
                pids: limits.pids,
                tmp: limits.disk,
            },
            network,
            filter: Filter::named(filter).map_err(RunError::Filter)?,
            oci_runtime: manager.oci_runtime(settings.oci_runtime)?,
            scope: request.scope.as_str().to_owned(),
            identities: shown.iter().map(identity).collect(),
            shown,
            has_workspace: request.workspace.is_some(),
        })
    }
}

/// What a container may reach, and the filter for that. Named hosts are reached through our agent, and not from a
/// network of the container's.
pub(super) fn reach<'a>(wanted: &policy::Network, otherwise: (Network, &'a str)) -> (Network, &'a str) {
    match wanted {
        policy::Network::None => otherwise,
        policy::Network::Allowlist(_) => (Network::None, STANDARD_TCP),
    }
}

fn identity(bind: &Bind) -> Option<(u64, u64)> {
    let found = fs::metadata(bind.host()).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::testing::open_to_all;
    use crate::exposure::Hidden;
    use ringfence_policy::Access;
    use std::path::Path;

    #[test]
    fn what_was_replaced_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        let bind = || Bind::at(&place, Path::new("/x"), Access::ReadOnly, &Hidden::default()).unwrap();
        fs::create_dir(&place).unwrap();
        let first = identity(&bind());
        assert_eq!(first, identity(&bind()));
        open_to_all(&place);
        assert_eq!(first, identity(&bind()));
        fs::rename(&place, dir.path().join("old")).unwrap();
        fs::create_dir(&place).unwrap();
        assert_ne!(first, identity(&bind()));
    }
}
