//! Accounts of guests.

/// The account of a guest: the name of its user, and its home directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Account {
    /// `sandbox`, whose home is the workspace.
    #[default]
    Sandbox,
    /// `root`, over the users of its own cell: the fence `box`. It changes the whole root file system, which is its own.
    Root,
    /// `user`, as programs written for E2B expect: its home, `/home/user`, is the workspace by another path.
    User,
    /// `sandbox`, whose home, `/mnt/data`, is the workspace by another path: the place of files that programs for code interpreters of
    /// chats expect.
    Data,
}

impl Account {
    /// Returns the name of the account's user.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sandbox | Self::Data => "sandbox",
            Self::User => "user",
            Self::Root => "root",
        }
    }

    /// Returns the account's home directory.
    pub const fn home(self) -> &'static str {
        match self {
            Self::Sandbox => "/workspace",
            Self::User => "/home/user",
            Self::Data => "/mnt/data",
            Self::Root => "/root",
        }
    }

    /// Returns the other mount point of `/workspace`, if there is one.
    pub const fn workspace_alias(self) -> Option<&'static str> {
        match self {
            Self::Sandbox | Self::Root => None,
            Self::User | Self::Data => Some(self.home()),
        }
    }

    /// Returns `true` if the account is the root of its cell.
    pub const fn is_root(self) -> bool {
        matches!(self, Self::Root)
    }
}
