//! Validates the configuration and converts it to the types of the other crates.
//!
//! [`validate`] is the one place that decides whether a configuration can be used. Every command that reads
//! the configuration gets it from [`Context`](crate::context::Context), which calls it first: a mistake is
//! the same error everywhere, before anything starts.

mod amounts;
mod checks;
mod containers;
mod egress;
mod files;
mod gateways;
mod host;
mod packages;
mod programs;
mod servers;
mod skills;
mod tools;

pub use containers::{Containers, image};
pub use egress::Egress;
pub use files::absolute;
pub use host::{HostCommands, missing_key};
pub use packages::Packages;
pub use programs::{Interpreters, interpreter, is_bare};
pub use skills::Skills;
pub use tools::Tools;

use ringfence_exec::trust::NamedPaths;
use ringfence_policy::EgressPolicy;

use crate::config::{Loaded, Problem, Problems};
use crate::env::Environment;
use crate::paths::Paths;
use checks::Checks;

/// The configuration in the types of the other crates.
#[derive(Debug)]
pub struct Parts {
    pub interpreters: Interpreters,
    pub egress: Egress,
    pub packages: Packages,
    /// Hosts that sandboxes of API keys may reach.
    pub key_hosts: EgressPolicy,
    pub host: HostCommands,
    pub tools: Tools,
    pub skills: Skills,
    pub containers: Containers,
    /// Warnings about a valid configuration; one sentence each.
    pub warnings: Vec<String>,
}

/// Validates a configuration as a whole.
///
/// # Errors
/// Reports every mistake with its key and its position.
pub fn validate(
    loaded: &Loaded,
    environment: &Environment,
    paths: &Paths,
    named: NamedPaths,
) -> Result<Parts, Problems> {
    let mut checks = Checks::new(loaded, environment, paths, named);
    amounts::check(&mut checks);
    let interpreters = programs::interpreters(&mut checks);
    files::check(&mut checks);
    let egress = egress::egress(&mut checks);
    let packages = packages::packages(&mut checks);
    let key_hosts = match (&egress, &packages) {
        (Some(egress), Some(packages)) => egress::key_hosts(&mut checks, egress, packages),
        _ => None,
    };
    let host = host::host(&mut checks);
    let tools = tools::tools(&mut checks);
    let skills = skills::skills(&mut checks);
    let containers = containers::containers(&mut checks);
    gateways::check(&mut checks);
    let warnings = checks.finish()?;
    let parts = || {
        Some(Parts {
            interpreters: interpreters?,
            egress: egress?,
            packages: packages?,
            key_hosts: key_hosts?,
            host: host?,
            tools: tools?,
            skills: skills?,
            containers: containers?,
            warnings,
        })
    };
    parts().ok_or_else(|| {
        let message = "a part of the configuration is missing without a reason".to_owned();
        Problems(vec![Problem::new(
            message,
            "this is a fault of Ringfence; please report it",
        )])
    })
}

#[cfg(test)]
mod tests;
