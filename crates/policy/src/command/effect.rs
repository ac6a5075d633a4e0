//! Effects of a command on the machine, from none to ruin.

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

    /// Returns `true` if the effect changes neither files, processes nor the terminal, and reaches no other
    /// host.
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

    /// Returns the default reason, for table entries without one.
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
