//! Resolves the workspace of each caller.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_exec::local::{NOBODY, is_root, owner_for_guests};
use ringfence_policy::{Scope, SessionId, Trusted, UserRoot, UserRootError};

use crate::files::{self, Owner, Root, Rules};

/// Maximum number of cached workspaces.
const MAX_OPEN: usize = 256;

/// Resolver of callers' workspaces.
#[derive(Debug)]
pub struct Workspaces {
    choice: Choice,
    rules: Rules,
    /// Set if the disk limit of runs applies to the workspace.
    measured: bool,
    /// Cached workspaces. A call keeps its directory open, even if another one replaces it at its path.
    open: Mutex<HashMap<Key, Arc<Root>>>,
}

/// Cache key: the caller's scope and session.
type Key = (Scope, Option<SessionId>);

/// Source of the workspace.
#[derive(Debug)]
enum Choice {
    /// No workspace is configured.
    Nobody,
    /// One directory for all callers, chosen by the user.
    One(Arc<Root>),
    /// A directory for each user or session, by configuration. Relative ones are below the given directory.
    Each(UserRoot, PathBuf),
}

/// A caller's workspace cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration does not determine a directory.
    #[error(transparent)]
    Which(#[from] UserRootError),
    /// The directory cannot be opened or created.
    #[error(transparent)]
    Open(#[from] files::Error),
}

/// Returns the owner for created workspaces if it is another user: root in a container is not root on the
/// host, and a guest in a cell runs as the owner of the directory.
fn owner() -> Option<Owner> {
    let of = |user, comes_by_path| Owner { user, comes_by_path };
    owner_for_guests()
        .map(|user| of(user, true))
        .or_else(|| is_root().then_some(of(NOBODY, false)))
}

impl Workspaces {
    /// Creates a resolver without a workspace: each run gets a private directory, and file tools have no
    /// files.
    pub fn none(rules: Rules) -> Self {
        Self::new(Choice::Nobody, rules)
    }

    /// Uses one directory for all callers.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn one(path: &std::path::Path, rules: Rules) -> Result<Self, files::Error> {
        let root = Arc::new(Root::open(path, rules.clone())?);
        Ok(Self::new(Choice::One(root), rules))
    }

    /// Uses a directory for each user or session, created on first use.
    pub fn each(root: UserRoot, below: PathBuf, rules: Rules) -> Self {
        Self::new(Choice::Each(root, below), rules)
    }

    fn new(choice: Choice, rules: Rules) -> Self {
        Self {
            choice,
            rules,
            measured: false,
            open: Mutex::default(),
        }
    }

    /// Applies the disk limit of runs to the workspace: for a directory that no user has chosen.
    #[must_use]
    pub fn measured(self) -> Self {
        Self {
            measured: true,
            ..self
        }
    }

    /// Prevents file tools from changing `trusted` paths. Must be called before the workspace is in use.
    #[must_use]
    pub fn keeping(mut self, trusted: Trusted) -> Self {
        self.rules.trusted = trusted;
        if let Choice::One(root) = self.choice {
            let root = Arc::into_inner(root).map(|root| Arc::new(root.under(self.rules.clone())));
            self.choice = root.map_or(Choice::Nobody, Choice::One);
        }
        self
    }

    /// Returns the host directory that contains all workspaces, if there is one.
    pub fn directory(&self) -> Option<PathBuf> {
        match &self.choice {
            Choice::Nobody => None,
            Choice::One(root) => Some(root.real().to_path_buf()),
            Choice::Each(root, below) => Some(below.join(root.common())),
        }
    }

    pub(crate) fn is_measured(&self) -> bool {
        self.measured
    }

    /// Returns the limits and protected paths of file tools.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns `true` if no workspace is configured, so that a client may choose one.
    pub fn is_open_to_choice(&self) -> bool {
        matches!(self.choice, Choice::Nobody)
    }

    /// Returns the caller's workspace. Accesses the disk on the first call.
    ///
    /// # Errors
    /// If there is one, but it cannot be used.
    pub fn of(&self, scope: &Scope, session: Option<&SessionId>) -> Result<Option<Arc<Root>>, Error> {
        let (root, below) = match &self.choice {
            Choice::Nobody => return Ok(None),
            Choice::One(root) => return Ok(Some(Arc::clone(root))),
            Choice::Each(root, below) => (root, below),
        };
        let Some(path) = root.resolve(scope, session)? else {
            return Ok(None);
        };
        let key = (scope.clone(), session.cloned());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = open.get(&key) {
            return Ok(Some(Arc::clone(root)));
        }
        let (rules, owner) = (self.rules.clone(), owner());
        let root = if path.is_absolute() {
            Root::create(&path, rules, owner)
        } else {
            // The project's own configuration may have chosen it, and may hold links.
            Root::create_below(below, &path, rules, owner)
        };
        let root = Arc::new(root?);
        if open.len() >= MAX_OPEN {
            // Running calls have references of their own.
            open.clear();
        }
        open.insert(key, Arc::clone(&root));
        Ok(Some(root))
    }
}
