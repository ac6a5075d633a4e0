//! Skills, built from the configuration.

mod servers;

use std::path::Path;
use std::sync::Arc;

use ringfence_exec::local::{Local, Warmth};
use ringfence_tools::skills::{HostLimits, Skill, SkillFiles, Skills, manifest_problems};

use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::{local, named_paths, settings, trust};

/// Maximum number of skill processes; each serves one file, or is one server.
const MAX_PROCESSES: usize = 64;

/// Returns the skills of the named directory, else of the configured one, and of the configured servers;
/// `None` if there are none.
///
/// # Errors
/// If a directory, or the configuration, cannot be used.
pub fn all(named: Option<&Path>, context: &Context) -> Result<Option<Skills>, Error> {
    // Unresolved, so that the links on the way to it are checked again.
    skills(named_or_configured(named, context)?, true, context)
}

/// Returns the named directory, or else the configured one if it exists: the configuration has warned otherwise.
fn named_or_configured<'a>(named: Option<&'a Path>, context: &'a Context) -> Result<Option<&'a Path>, Error> {
    let configured = context.config()?.skills.path.as_deref();
    let is_missing = |path: &Path| named_paths::find(path).is_ok_and(|found| !found.exists);
    Ok(named.or(configured.filter(|path| !is_missing(path))))
}

/// Rejects a directory of skills with a manifest that cannot be used: its file of skills would be left out.
///
/// # Errors
/// If a manifest cannot be used, or the directory does not exist.
pub fn check_manifests(named: Option<&Path>, context: &Context) -> Result<(), Error> {
    let Some(directory) = named_or_configured(named, context)? else {
        return Ok(());
    };
    let resolved = settings::workspace(directory, context)?;
    let problems = manifest_problems(&resolved, &context.named_paths());
    if problems.is_empty() {
        return Ok(());
    }
    let problems: Vec<String> = problems
        .iter()
        .map(|problem| format!("{}/{problem}", directory.display()))
        .collect();
    let hint = "correct it, or remove it; until then no function of its file can be called";
    Err(Failure::refused(problems.join("; "), hint).into())
}

/// Records the user's consent to the manifests of a directory of skills, and returns their demands.
///
/// # Errors
/// If the directory does not exist, or the consent cannot be stored.
pub fn accept(named: Option<&Path>, context: &Context) -> Result<Option<Vec<(String, String)>>, Error> {
    let Some(directory) = named_or_configured(named, context)? else {
        return Ok(None);
    };
    let directory = settings::workspace(directory, context)?;
    let asked = trust::consent(context).give(&directory);
    let asked = asked.map_err(|error| {
        Failure::refused(
            format!("cannot record your consent: {error}"),
            "make the state directory yours and writable (`ringfence doctor`)",
        )
    })?;
    Ok(Some(asked))
}

/// Returns the skills of a directory and, if `with_servers`, of the configured servers; `None` if there are
/// none.
///
/// # Errors
/// If the directory, or the configuration, cannot be used.
pub fn skills(
    directory: Option<&Path>,
    with_servers: bool,
    context: &Context,
) -> Result<Option<Skills>, Error> {
    let config = context.config()?;
    let mut sources: Vec<Arc<dyn Skill>> = Vec::new();
    if let Some(directory) = directory {
        // It is mounted in the skills' processes.
        let directory = settings::workspace(directory, context)?;
        let named = trust::Named {
            skills: Some(&directory),
            ..trust::Named::default()
        };
        let mut trusted = trust::trusted(named, &[], context)?;
        // A manifest may give a skill a directory below this one; the entry in `lookups` still protects the
        // rest.
        trusted.paths.retain(|path| *path != directory);
        trusted.lookups.push(directory.clone());
        let limits = HostLimits {
            memory: config.skills.memory,
            fence: config.sandbox.isolation.fence(),
            trusted,
            consent: trust::consent(context),
            patience: config.skills.start_timeout,
            private_networks: context.parts()?.egress.policy.private_networks.clone(),
            // Keeping their output is optional.
            journals: context.paths.make_state().ok().map(|state| state.join("skills")),
        };
        let files = SkillFiles::new(directory, local(context)?, limits, settings::hidden(context)?);
        sources.push(Arc::new(files));
    }
    if with_servers && !config.skills.servers.is_empty() {
        sources.push(Arc::new(servers::servers(local(context)?, context)?));
    }
    match sources.is_empty() {
        true => Ok(None),
        false => Ok(Some(Skills::new(sources, context.parts()?.skills.rules.clone()))),
    }
}

/// Returns the backend of skill processes.
fn local(context: &Context) -> Result<Local, Error> {
    let settings = local::settings(&settings::settings(context)?, Warmth::Cold, context)?;
    Ok(Local::new(ringfence_exec::local::Settings {
        max_concurrent: MAX_PROCESSES,
        ..settings
    }))
}
