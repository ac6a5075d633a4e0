//! Findings about a command, and the context in which they arise.

use std::sync::Arc;

use super::effect::Effect;
use crate::shell::Word;

/// One effect of a part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub effect: Effect,
    /// The rule behind it, with the name of the part.
    pub reason: String,
}

/// A public host name that a command contacts. The caller must check that its address is public, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    /// Position for `--resolve`, which prevents a second lookup.
    pub at: Option<usize>,
}

/// A file or directory that a command opens, as the line names it; only the machine can resolve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The word, below the directory that the line changes to.
    pub path: String,
    /// Extent of the reading.
    pub reach: Reach,
}

/// Files that a program reads when it opens a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The file itself.
    File,
    /// Everything below a directory, without following links.
    Tree,
    /// Everything below a directory, and the targets of the links there.
    Linked,
    /// The settings of the project around a directory, and of its members.
    Project,
}

/// A place where a command makes or replaces a file, as the line names it; only the machine can resolve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The destination: a file, or the directory that gets what is copied or moved.
    pub path: String,
    /// The path that is copied, moved or linked there.
    pub source: Option<Source>,
}

/// A path that a command copies, moves or links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The word.
    pub path: String,
    /// Set if the names below a directory are made one by one, in directories that may be there.
    pub merges: bool,
    /// Set if links below it are followed, and what they lead to is copied.
    pub follows: bool,
}

/// An option inserted into a program's command line when the policy allows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forced {
    /// Position in the line, in characters, after the program or its subcommand.
    pub at: usize,
    /// The words to insert.
    pub words: String,
}

/// The confining options for this machine's implementation of a program that has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// The program's name.
    pub program: &'static str,
    /// The confining options.
    pub words: &'static str,
}

/// Placeholder for words that are read from standard input.
pub(crate) const INPUT: &str = "(input)";

/// Bounds the reasons of a line with a thousand odd options.
const MAX_FINDINGS: usize = 50;

/// A function that judges a command with its arguments.
pub(super) type Judge = fn(&[Word], &mut Analysis);

/// The analysis of a command so far: its findings, and the context in which they arise.
#[derive(Debug)]
pub(super) struct Analysis {
    pub(super) findings: Vec<Finding>,
    /// Number of enclosing commands: wrappers, shells, `find -exec`.
    pub(super) depth: usize,
    /// Set if one of them is a wrapper.
    pub(super) wraps: bool,
    /// Set if `find -exec` or `xargs` inserts unknown text into the words.
    pub(super) templated: bool,
    /// Set if the output becomes arguments of another command.
    pub(super) feeds: bool,
    /// Set if the inserted names are names of source files only.
    pub(super) sources_only: bool,
    /// Files and directories opened for their contents.
    pub(super) opens: Vec<Opened>,
    /// Files and directories made or replaced.
    pub(super) destinations: Vec<Destination>,
    /// Set if links or trees may be made, with names that the line does not tell.
    pub(super) makes_trees: bool,
    /// Directory in which the command may run instead of the line's start.
    pub(super) directory: Option<String>,
    /// Set inside a text that a shell splits a second time.
    pub(super) quoted: bool,
    /// This machine's confining options for programs with several implementations.
    pub(super) confinements: Arc<[Confinement]>,
    /// Options to insert if the command is allowed.
    pub(super) forced: Vec<Forced>,
    /// Hosts contacted if the command is allowed.
    pub(super) hosts: Vec<Host>,
    /// Set if an option before the subcommand names an account, which may be a stranger's.
    pub(super) account: bool,
    /// Position after the name of the program being judged.
    pub(super) at: Option<usize>,
    /// Judges a command. Needed by code that reads arguments, which can contain further commands.
    pub(super) judge: Judge,
}

impl Analysis {
    /// Returns an empty collection for a command at the start of a line.
    pub(super) fn new(judge: Judge) -> Self {
        Self {
            findings: Vec::new(),
            depth: 0,
            wraps: false,
            templated: false,
            feeds: false,
            sources_only: false,
            opens: Vec::new(),
            destinations: Vec::new(),
            makes_trees: false,
            directory: None,
            quoted: false,
            confinements: Arc::default(),
            forced: Vec::new(),
            hosts: Vec::new(),
            account: false,
            at: None,
            judge,
        }
    }

    /// Judges a command nested inside another.
    pub(super) fn inner(&mut self, words: &[Word]) {
        self.depth += 1;
        (self.judge)(words, self);
        self.depth -= 1;
    }

    /// Adds a finding that must be reported even if a worse one exists.
    pub(super) fn insist(&mut self, effect: Effect, reason: impl Into<String>) {
        if !self.findings.iter().any(|finding| finding.effect == effect) {
            let reason = reason.into();
            self.findings.push(Finding { effect, reason });
        }
    }

    pub(super) fn add(&mut self, effect: Effect, reason: impl Into<String>) {
        let reason = reason.into();
        let known = self.findings.iter().any(|finding| finding.reason == reason);
        let worse = self.findings.iter().all(|finding| finding.effect < effect);
        if worse || !known && self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding { effect, reason });
        }
    }
}
