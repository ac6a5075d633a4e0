//! Judges one command by its words.

mod analysis;
mod awk;
mod cloud;
mod confine;
mod effect;
mod fetch;
mod files;
mod find;
mod git;
mod jq;
mod judge;
mod kubernetes;
mod modes;
mod nested;
mod operands;
mod options;
mod place;
mod processes;
mod secrets;
mod sed;
mod special;
mod sql;
mod table;
mod test;

pub(crate) use analysis::INPUT;
pub use analysis::{Confinement, Destination, Finding, Forced, Host, Opened, Reach, Source};
pub(crate) use confine::with as with_forced;
pub use effect::Effect;
pub use files::is_obeyed;
pub(crate) use find::{feeds_sources, takes_zeros};
pub(crate) use judge::unwrapped;
pub(crate) use place::{directory, prints_ids, prints_names};
pub use secrets::{is_broad_place, is_secret_path};
pub(crate) use table::within_word;

use std::sync::Arc;

use analysis::Analysis;

use crate::shell::{Redirect, Simple};

/// The judgement on a simple command.
pub(crate) struct Judged {
    /// Effects, without redirections and without the commands in its words.
    pub(crate) findings: Vec<Finding>,
    /// Set if the command runs another command, so that a pattern with its name would match anything.
    pub(crate) wraps: bool,
    /// Set if the command sets variables that could change its effect.
    pub(crate) assigns: bool,
    /// Options to insert if it is allowed.
    pub(crate) forced: Vec<Forced>,
    /// Files and directories opened for their contents.
    pub(crate) opens: Vec<Opened>,
    /// Files and directories made or replaced.
    pub(crate) destinations: Vec<Destination>,
    /// Set if links or trees may be made, with names that the line does not tell.
    pub(crate) makes_trees: bool,
    /// Hosts contacted.
    pub(crate) hosts: Vec<Host>,
}

/// The context of a command within the line.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineContext {
    /// Set if printed names become arguments.
    pub(crate) feeds: bool,
    /// Directory in which the command may run instead of the line's start.
    pub(crate) directory: Option<String>,
    /// This machine's confining options for programs with several implementations.
    pub(crate) confinements: Arc<[Confinement]>,
    /// Set if only names of source files are fed to the command.
    pub(crate) sources_only: bool,
}

impl LineContext {
    fn analysis(&self) -> Analysis {
        Analysis {
            feeds: self.feeds,
            directory: self.directory.clone(),
            sources_only: self.sources_only,
            confinements: Arc::clone(&self.confinements),
            ..Analysis::new(judge::judge)
        }
    }
}

/// Judges a simple command.
pub(crate) fn simple_findings(simple: &Simple, around: &LineContext) -> Judged {
    let mut analysis = around.analysis();
    nested::assignments(simple, &mut analysis);
    let assigns = !analysis.findings.is_empty();
    judge::judge(&nested::unquoted(&simple.words), &mut analysis);
    Judged {
        findings: analysis.findings,
        wraps: analysis.wraps,
        assigns,
        forced: analysis.forced,
        opens: analysis.opens,
        destinations: analysis.destinations,
        makes_trees: analysis.makes_trees,
        hosts: analysis.hosts,
    }
}

/// Returns the effects of setting a variable in the shell, beyond storing a value.
pub(crate) fn variable_findings(name: &str) -> Vec<Finding> {
    let mut analysis = Analysis::new(judge::judge);
    if !nested::is_own(name) {
        nested::variable(name, &mut analysis);
    }
    analysis.findings
}

/// Returns the effects of a redirection, and the files it opens.
pub(crate) fn redirect_findings(redirect: &Redirect, around: &LineContext) -> (Vec<Finding>, Vec<Opened>) {
    let mut analysis = around.analysis();
    nested::redirection(redirect, &mut analysis);
    (analysis.findings, analysis.opens)
}

#[cfg(test)]
mod tests;
