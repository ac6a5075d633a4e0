//! Skills, built from the configuration.

mod person;
mod servers;

use std::path::Path;
use std::sync::Arc;

use ringfence_exec::local::{Local, Warmth};
use ringfence_network::redact::Redactor;
use ringfence_policy::shell::quote;
use ringfence_records::audit::Log;
use ringfence_tools::kernel::{Approvals, Caller};
use ringfence_tools::skills::{CallInfo, HostLimits, Skill, SkillFiles, Skills, manifest_problems};

use crate::context::Context;
use crate::exit::Failure;
use crate::{kernel, local, plan, trust};
pub(crate) use person::{Ears, Person, attended};

/// Recorder and prompts of skill calls from the command line: audit log, redactor, approvals, notices.
pub(crate) struct SkillCalls {
    audit: Log,
    redactor: Redactor,
    approvals: Approvals,
    ears: Ears,
}

impl SkillCalls {
    /// Creates the recorder for this user, with the receiver that prints its prompts.
    ///
    /// # Errors
    /// If the configuration, or the state directory, cannot be used.
    pub(crate) fn new(context: &Context) -> anyhow::Result<(Self, Person)> {
        let (ears, person) = Person::new();
        let keeper = Self {
            audit: kernel::audit_log(context)?,
            redactor: Redactor::from_environment(context.environment.lossy_pairs()),
            approvals: kernel::asked(context)?,
            ears,
        };
        Ok((keeper, person))
    }

    /// Returns the call information of a caller on the command line.
    pub(crate) fn visitor<'a>(&'a self, caller: &'a Caller) -> CallInfo<'a> {
        CallInfo {
            caller,
            audit: Some(&self.audit),
            redactor: &self.redactor,
            approvals: Some(&self.approvals),
            questions: Some(&self.ears.questions),
            notices: Some(&self.ears.notices),
        }
    }
}

/// Returns a command of `ringfence skills` for a hint, runnable as it stands: with the directory and the
/// configuration that this command line named.
pub(crate) fn command(words: &[&str], named: Option<&Path>, context: &Context) -> String {
    let mut all = vec!["ringfence".to_owned(), "skills".to_owned()];
    all.extend(words.iter().map(|&word| word.to_owned()));
    for (option, path) in [("--skills", named), ("--config", context.explicit_config())] {
        let path = path.map(|path| path.display().to_string());
        all.extend(path.into_iter().flat_map(|path| [option.to_owned(), path]));
    }
    quote(&all)
}

/// Returns a problem with files of skills for the person who named their directory. Programs see such texts,
/// too, so the runtime leaves the directory out.
pub(crate) fn explained(problem: &str, named: Option<&Path>, context: &Context) -> anyhow::Result<String> {
    let accept = format!("`{}`", command(&["accept"], named, context));
    let problem = problem.replace("`ringfence skills accept`", &accept);
    let configured = context
        .config()?
        .skills
        .path
        .as_deref()
        .filter(|_| named.is_none());
    Ok(match (configured, problem.split_once(": ")) {
        (Some(directory), Some((file, _))) if directory.join(file).is_file() => {
            format!("{}/{problem}", directory.display())
        }
        _ => problem,
    })
}

/// Maximum number of skill processes; each serves one file, or is one server.
const MAX_PROCESSES: usize = 64;

/// Returns the skills of the named directory, else of the configured one, and of the configured servers;
/// `None` if there are none.
///
/// # Errors
/// If a directory, or the configuration, cannot be used.
pub(crate) fn all(named: Option<&Path>, context: &Context) -> anyhow::Result<Option<Skills>> {
    // Unresolved, so that the links on the way to it are checked again.
    let configured = context.config()?.skills.path.as_deref();
    skills(named.or(configured), true, context)
}

/// Rejects a directory of skills with a manifest that cannot be used: its file of skills would be left out.
///
/// # Errors
/// If a manifest cannot be used, or the directory does not exist.
pub(crate) fn check_manifests(named: Option<&Path>, context: &Context) -> anyhow::Result<()> {
    let configured = context.config()?.skills.path.as_deref();
    let Some(directory) = named.or(configured) else {
        return Ok(());
    };
    let resolved = plan::workspace(directory, context)?;
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

/// Records the user's consent to the manifests of a directory of skills, and returns what they ask for.
///
/// # Errors
/// If the directory does not exist, or the consent cannot be stored.
pub(crate) fn accept(
    named: Option<&Path>,
    context: &Context,
) -> anyhow::Result<Option<Vec<(String, String)>>> {
    let configured = context.config()?.skills.path.as_deref();
    let Some(directory) = named.or(configured) else {
        return Ok(None);
    };
    let directory = plan::workspace(directory, context)?;
    let asked = trust::consent(context).give(&directory);
    let asked = asked.map_err(|error| {
        Failure::refused(
            format!("cannot write down what you agree to: {error}"),
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
pub(crate) fn skills(
    directory: Option<&Path>,
    with_servers: bool,
    context: &Context,
) -> anyhow::Result<Option<Skills>> {
    let config = context.config()?;
    let mut sources: Vec<Arc<dyn Skill>> = Vec::new();
    if let Some(directory) = directory {
        // It is mounted in the skills' processes.
        let directory = plan::workspace(directory, context)?;
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
            fence: plan::default_fence(config).into(),
            trusted,
            consent: trust::consent(context),
            patience: config.skills.start_timeout,
            private_networks: context.parts()?.egress.policy.private_networks.clone(),
            // Keeping their output is optional.
            journals: context.paths.make_state().ok().map(|state| state.join("skills")),
        };
        let files = SkillFiles::new(directory, local(context)?, limits, plan::hidden(context)?);
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
fn local(context: &Context) -> anyhow::Result<Local> {
    let settings = local::settings(&plan::settings(None, context)?, Warmth::Cold, context)?;
    Ok(Local::new(ringfence_exec::local::Settings {
        max_concurrent: MAX_PROCESSES,
        ..settings
    }))
}
