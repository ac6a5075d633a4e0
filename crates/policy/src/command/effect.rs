//! Effects of a command on the machine, from none to ruin.

use std::sync::Arc;

use super::confine::{Confinement, Forced};
use super::fetch::Host;
use super::secrets::Opened;

/// The effect of a command, in ascending order of harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Reads files or the state of the machine.
    Read,
    /// Queries a configured service and changes nothing there.
    Remote,
    /// Takes over the terminal, or waits for a person.
    Terminal,
    /// Changes the meaning of later commands: the directory, variables, functions.
    Shell,
    /// May show secrets.
    Secret,
    /// Contacts a host that the command names.
    Network,
    /// Not in the table.
    Unknown,
    /// Changes files, settings or a service's state.
    Write,
    /// Starts, stops or changes processes, services or containers.
    Process,
    /// Runs code from its arguments or input.
    Code,
    /// Uses higher privileges.
    Privilege,
    /// Deletes or overwrites data of which there may be no copy.
    Destroy,
    /// Deletes one whole tree.
    Raze,
    /// Deletes in bulk, or wipes disks.
    Ruin,
}

impl Effect {
    /// Default floor of an unknown command.
    pub const UNKNOWN_FLOOR: u8 = 5;

    /// Returns the risk floor of the effect, 0 to 10.
    pub fn floor(self, unknown: u8) -> u8 {
        match self {
            Self::Read => 0,
            Self::Remote => 1,
            // A terminal program can run anything: no model alone may allow it.
            Self::Terminal | Self::Shell | Self::Secret | Self::Network => 5,
            Self::Unknown => unknown,
            Self::Write | Self::Process => 6,
            Self::Code => 7,
            Self::Privilege => 8,
            Self::Destroy | Self::Raze => 9,
            Self::Ruin => 10,
        }
    }

    /// Returns `true` if it leaves files, processes, the terminal and foreign hosts alone.
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

    /// Default reason, for table entries without one.
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

/// One effect of a part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub effect: Effect,
    /// The rule behind it, with the name of the part.
    pub reason: String,
}

/// Bounds the reasons of a line with a thousand odd options.
const MAX_FINDINGS: usize = 50;

/// Findings collected so far, and the context in which they arise.
#[derive(Debug, Default)]
pub(super) struct Found {
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
    /// Set if an option before the subcommand names an account, which may be anybody's.
    pub(super) account: bool,
    /// Position after the name of the program being judged.
    pub(super) at: Option<usize>,
}

impl Found {
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
