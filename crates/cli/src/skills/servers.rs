//! MCP servers, built from the configuration.

use ringfence_runtime::local::Local;
use ringfence_runtime::skills::{Servers, Surroundings};

use crate::context::Context;
use crate::{high, trust};

/// Returns the configured servers; those started by us run in `local`.
///
/// # Errors
/// If the configuration cannot be used.
pub(super) fn servers(local: Local, context: &Context) -> anyhow::Result<Servers> {
    let (config, parts) = (context.config()?, context.parts()?);
    let around = Surroundings {
        hidden: high::hidden(context)?,
        trusted: trust::trusted(trust::Named::default(), &[], context)?,
        network: parts.egress.network.clone(),
        private_networks: parts.egress.policy.private_networks.clone(),
        patience: config.skills.start_timeout,
        // Keeping their error output is optional.
        journals: context.paths.make_state().ok().map(|state| state.join("servers")),
    };
    Ok(Servers::new(parts.skills.servers.clone(), local, around))
}
