//! MCP servers, built from the configuration.

use std::path::{Path, PathBuf};

use ringfence_exec::local::Local;
use ringfence_policy::{Access, Mount};
use ringfence_tools::skills::{Servers, Surroundings};

use crate::config::Config;
use crate::context::Context;
use crate::failure::Error;
use crate::{settings, trust};

/// Returns the configured servers; those started by us run in `local`.
///
/// # Errors
/// If the configuration cannot be used.
pub(super) fn servers(local: Local, context: &Context) -> Result<Servers, Error> {
    let (config, parts) = (context.config()?, context.parts()?);
    let writable = writable(config);
    let writable: Vec<&Path> = writable.iter().map(PathBuf::as_path).collect();
    trust::note_directories(&writable, None, trust::Named::default(), context)?;
    let around = Surroundings {
        hidden: settings::hidden(context)?,
        trusted: trust::trusted(trust::Named::default(), &[], context)?,
        paths: context.named_paths(),
        network: parts.egress.network.clone(),
        private_networks: parts.egress.policy.private_networks.clone(),
        patience: config.skills.start_timeout,
        // Keeping their error output is optional.
        journals: context.paths.make_state().ok().map(|state| state.join("servers")),
    };
    Ok(Servers::new(parts.skills.servers.clone(), local, around))
}

/// Returns the directories that servers in a fence can write.
fn writable(config: &Config) -> Vec<PathBuf> {
    let texts = config.skills.servers.values().flat_map(|server| &server.mounts);
    let mounts = texts.filter_map(|text| text.parse::<Mount>().ok());
    mounts
        .filter(|mount| mount.access == Access::ReadWrite)
        .map(|mount| mount.host)
        .collect()
}
