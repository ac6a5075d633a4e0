//! Audit records, approval prompts and warnings of the skill calls of a run.

mod person;

use std::path::Path;

use ringfence_network::redact::Redactor;
use ringfence_policy::shell::quote;
use ringfence_policy::{Remedy, remedy};
use ringfence_records::audit::Log;
use ringfence_tools::skills::CallInfo;
use ringfence_tools::toolbox::{Approvals, Caller};

use crate::context::Context;
pub(crate) use person::{Notifier, Person, attended};
use ringfence::toolbox;

/// Recorder and prompts of skill calls from the command line: audit log, redactor, approvals, notices.
pub(crate) struct SkillCalls {
    audit: Log,
    redactor: Redactor,
    approvals: Approvals,
    notifier: Notifier,
}

impl SkillCalls {
    /// Creates the recorder for this user, with the receiver that prints its prompts.
    ///
    /// # Errors
    /// If the configuration, or the state directory, cannot be used.
    pub(crate) fn new(context: &Context) -> anyhow::Result<(Self, Person)> {
        let (notifier, person) = Person::new();
        let keeper = Self {
            audit: toolbox::audit_log(context)?,
            redactor: Redactor::from_environment(context.environment.lossy_pairs()),
            approvals: toolbox::asked(context)?,
            notifier,
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
            questions: Some(&self.notifier.questions),
            notices: Some(&self.notifier.notices),
        }
    }
}

/// Returns a complete command of `ringfence skills` for a hint, with the directory and the configuration of
/// this command line.
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
    let remedy = |command| Remedy::from(remedy::Tool::AcceptSkills { command });
    let problem = match problem.strip_suffix(&*remedy(None).person()) {
        Some(fact) => format!(
            "{fact}{}",
            remedy(Some(command(&["accept"], named, context))).person()
        ),
        None => problem.to_owned(),
    };
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
