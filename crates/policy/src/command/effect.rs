//! What a command does to the machine, from nothing to ruin.

use std::sync::Arc;

use super::confine::{Confinement, Forced};
use super::fetch::Host;
use super::secrets::Opened;

/// What a command does; a later one is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Reads files or the state of the machine.
    Read,
    /// Asks a service that is configured already, and changes nothing there.
    Remote,
    /// Takes over the terminal, or waits for a person.
    Terminal,
    /// Changes what later commands mean: the directory, variables, functions.
    Shell,
    /// Shows what ought to stay secret.
    Secret,
    /// Talks to a host that the command names.
    Network,
    /// Nothing is known about it.
    Unknown,
    /// Changes files, settings, or a service's state.
    Write,
    /// Starts, stops or changes processes, services or containers.
    Process,
    /// Runs code that it is given.
    Code,
    /// Acts with more rights.
    Privilege,
    /// Deletes or overwrites what may be nowhere else.
    Destroy,
    /// Deletes one whole tree.
    Raze,
    /// Deletes much at once, or whole disks.
    Ruin,
}

impl Effect {
    /// The floor of a command that nobody knows, unless it is configured.
    pub const UNKNOWN_FLOOR: u8 = 5;

    /// The lowest risk, of 0 to 10, that anything with this effect can have.
    pub fn floor(self, unknown: u8) -> u8 {
        match self {
            Self::Read => 0,
            Self::Remote => 1,
            // What runs in a terminal can run anything: no model alone may let it.
            Self::Terminal | Self::Shell | Self::Secret | Self::Network => 5,
            Self::Unknown => unknown,
            Self::Write | Self::Process => 6,
            Self::Code => 7,
            Self::Privilege => 8,
            Self::Destroy | Self::Raze => 9,
            Self::Ruin => 10,
        }
    }

    /// Whether it leaves files, processes, the terminal and foreign hosts alone.
    pub fn is_read_only(self) -> bool {
        self <= Self::Remote
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "read" => Self::Read,
            "remote" => Self::Remote,
            "terminal" => Self::Terminal,
            "shell" => Self::Shell,
            "secret" => Self::Secret,
            "network" => Self::Network,
            "unknown" => Self::Unknown,
            "write" => Self::Write,
            "process" => Self::Process,
            "code" => Self::Code,
            "privilege" => Self::Privilege,
            "destroy" => Self::Destroy,
            "raze" => Self::Raze,
            "ruin" => Self::Ruin,
            _ => return None,
        })
    }

    /// What is said of it if the table has no words of its own.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Remote => "asks a configured service",
            Self::Terminal => "takes over the terminal",
            Self::Shell => "changes what later commands mean",
            Self::Secret => "may show secrets",
            Self::Network => "talks to the network",
            Self::Unknown => "is not in the table of commands",
            Self::Write => "changes something",
            Self::Process => "starts, stops or changes processes",
            Self::Code => "runs code that it is given",
            Self::Privilege => "acts with more rights",
            Self::Destroy => "deletes or overwrites",
            Self::Raze => "deletes a whole tree",
            Self::Ruin => "deletes whole trees or disks",
        }
    }
}

/// One thing that a part of a line does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it does.
    pub effect: Effect,
    /// The rule that says so, with the name of the part.
    pub reason: String,
}

/// A line of a thousand odd options needs no thousand reasons.
const MAX_FINDINGS: usize = 50;

/// What has been found so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) findings: Vec<Finding>,
    /// How many commands stand around this one: wrappers, shells, `find -exec`.
    pub(super) depth: usize,
    /// Whether one of them is a wrapper.
    pub(super) wraps: bool,
    /// Whether text that is not known is put into the words, by `find -exec` or `xargs`.
    pub(super) templated: bool,
    /// Whether what is printed becomes somebody's arguments.
    pub(super) feeds: bool,
    /// Whether the names that are put into the words are those of sources alone.
    pub(super) sources_only: bool,
    /// What is opened for its contents.
    pub(super) opens: Vec<Opened>,
    /// Where it may run instead of where the line begins.
    pub(super) directory: Option<String>,
    /// The command stands in a text that a shell takes apart a second time.
    pub(super) quoted: bool,
    /// How programs of several makes are confined on this machine.
    pub(super) confinements: Arc<[Confinement]>,
    /// Options that it gets if it is let run.
    pub(super) forced: Vec<Forced>,
    /// Hosts that it asks if it is let run.
    pub(super) hosts: Vec<Host>,
    /// The place behind the name of the program that is judged.
    pub(super) at: Option<usize>,
}

impl Found {
    /// Adds what must be known even where something worse is found.
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
