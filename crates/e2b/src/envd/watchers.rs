//! The watchers of a sandbox.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_sandbox::files::Operating;

use super::paths::User;

/// Maximum number of watchers per sandbox. Each takes a process inside.
pub(super) const MAX: usize = 16;

/// The watchers of a sandbox, by id. Whoever fetches nothing makes the kernel drop events, which the next fetch says.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Watcher>>>>);

/// A directory that is being watched.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(super) operating: Operating,
    /// User whose rights it has.
    pub(super) user: User,
    pub(super) path: String,
    pub(super) include_entry: bool,
    /// Bytes of lines that have arrived.
    pub(super) lines: Vec<u8>,
}

impl Watchers {
    pub(super) fn count(&self) -> usize {
        self.all().len()
    }

    /// Adds a watcher. `false` if there are too many.
    pub(super) fn add(&self, id: String, watcher: Watcher) -> bool {
        let mut all = self.all();
        let has_room = all.len() < MAX;
        if has_room {
            all.insert(id, Arc::new(tokio::sync::Mutex::new(watcher)));
        }
        has_room
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<tokio::sync::Mutex<Watcher>>> {
        self.all().get(id).cloned()
    }

    pub(super) fn remove(&self, id: &str) -> bool {
        self.all().remove(id).is_some()
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<tokio::sync::Mutex<Watcher>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
