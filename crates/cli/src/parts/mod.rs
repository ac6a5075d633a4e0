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
mod programs;
mod servers;
mod skills;
mod tools;

pub(crate) use containers::{Containers, image};
pub(crate) use egress::Egress;
pub(crate) use files::absolute;
pub(crate) use host::{HostCommands, missing_key};
pub(crate) use programs::{Interpreters, interpreter, is_bare};
pub(crate) use skills::Skills;
pub(crate) use tools::Tools;

use ringfence_exec::trust::NamedPaths;

use crate::config::{Loaded, Problem, Problems};
use crate::env::Environment;
use crate::paths::Paths;
use checks::Checks;

/// The configuration in the types of the other crates.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) interpreters: Interpreters,
    pub(crate) egress: Egress,
    pub(crate) host: HostCommands,
    pub(crate) tools: Tools,
    pub(crate) skills: Skills,
    pub(crate) containers: Containers,
    /// Warnings about a valid configuration; one sentence each.
    pub(crate) warnings: Vec<String>,
}

/// Validates a configuration as a whole.
///
/// # Errors
/// Reports every mistake with its key and its position.
pub(crate) fn validate(
    loaded: &Loaded,
    (environment, paths): (&Environment, &Paths),
    named: NamedPaths,
) -> Result<Parts, Problems> {
    let mut checks = Checks::new(loaded, (environment, paths), named);
    amounts::check(&mut checks);
    let interpreters = programs::interpreters(&mut checks);
    files::check(&mut checks);
    let egress = egress::egress(&mut checks);
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
