//! Accounts of guests.

/// The account of a guest: the name of its user, and its home directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Account {
    /// `sandbox`, whose home is the workspace.
    #[default]
    Sandbox,
    /// `user`, as programs written for E2B expect: its home, `/home/user`, is the workspace by another path.
    User,
}

impl Account {
    /// Returns the name of its user.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::User => "user",
        }
    }

    /// Returns its home directory.
    pub const fn home(self) -> &'static str {
        match self.own_home() {
            Some(home) => home,
            None => "/workspace",
        }
    }

    /// Returns its home directory, unless that is `/workspace`.
    pub const fn own_home(self) -> Option<&'static str> {
        match self {
            Self::Sandbox => None,
            Self::User => Some("/home/user"),
        }
    }
}
