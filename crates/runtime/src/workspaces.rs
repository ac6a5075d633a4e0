//! Which directory each caller works in, and where its code runs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_policy::{Scope, SessionId, Trusted, UserRoot, UserRootError};

use crate::files::{self, Owner, Root, Rules};
use crate::local::{NOBODY, is_root, owner_for_guests};

/// How many users' directories are held open.
const MAX_OPEN: usize = 256;

/// Which directory each caller works in.
#[derive(Debug)]
pub struct Workspaces {
    choice: Choice,
    rules: Rules,
    /// Whether runs may write no more to it than to a directory of their own.
    measured: bool,
    /// Work that goes on keeps the directory that it began with, whatever takes its name meanwhile.
    open: Mutex<HashMap<Key, Arc<Root>>>,
}

/// Whose directory it is.
type Key = (Scope, Option<SessionId>);

/// Who chose.
#[derive(Debug)]
enum Choice {
    /// Nobody: there is none.
    Nobody,
    /// The person, for everybody.
    One(Arc<Root>),
    /// The configuration, for each user or session; relative ones lie below the directory.
    Each(UserRoot, PathBuf),
}

/// Why a caller has no workspace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration does not say which.
    #[error(transparent)]
    Which(#[from] UserRootError),
    /// It cannot be opened or made.
    #[error(transparent)]
    Open(#[from] files::Error),
}

/// The owner of directories that are made for callers, if not ours. No program in a container is the host's root, and one
/// in a cell is whoever owns the directory.
fn owner() -> Option<Owner> {
    let of = |user, comes_by_path| Owner { user, comes_by_path };
    owner_for_guests()
        .map(|user| of(user, true))
        .or_else(|| is_root().then_some(of(NOBODY, false)))
}

impl Workspaces {
    /// No workspace: each run has a private directory, and file tools have no file to work on.
    pub fn none(rules: Rules) -> Self {
        Self::new(Choice::Nobody, rules)
    }

    /// All work in one directory.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn one(path: &std::path::Path, rules: Rules) -> Result<Self, files::Error> {
        let root = Arc::new(Root::open(path, rules.clone())?);
        Ok(Self::new(Choice::One(root), rules))
    }

    /// Each user, or each session, has a directory of its own, which is made when it is first needed.
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

    /// The same, held to the disk limit of runs: for a directory that no person has chosen.
    #[must_use]
    pub fn measured(self) -> Self {
        Self {
            measured: true,
            ..self
        }
    }

    /// The same, where file tools must leave this as it is. Nobody works in it yet.
    #[must_use]
    pub fn keeping(mut self, trusted: Trusted) -> Self {
        self.rules.trusted = trusted;
        if let Choice::One(root) = self.choice {
            let root = Arc::into_inner(root).map(|root| Arc::new(root.under(self.rules.clone())));
            self.choice = root.map_or(Choice::Nobody, Choice::One);
        }
        self
    }

    /// The directory of the host that all of this lies in, if there is one.
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

    /// What file tools may do.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whether nobody has chosen, so that a client may.
    pub fn is_open_to_choice(&self) -> bool {
        matches!(self.choice, Choice::Nobody)
    }

    /// The directory of a caller. Looks at the disk when it is first asked.
    ///
    /// # Errors
    /// If there is one, and it cannot be used.
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
            // A project that we work in may have chosen it, and may hold links.
            Root::create_below(below, &path, rules, owner)
        };
        let root = Arc::new(root?);
        if open.len() >= MAX_OPEN {
            // Those at work hold theirs by themselves.
            open.clear();
        }
        open.insert(key, Arc::clone(&root));
        Ok(Some(root))
    }
}
