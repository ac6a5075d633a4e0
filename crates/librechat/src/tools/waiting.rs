//! The programs that wait for their clients.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_policy::Scope;

use super::running::Running;
use crate::error::Error;

/// Programs of one owner that wait for their client at a time: a new one ends the oldest.
const MAX_WAITING: usize = 16;

/// The programs that wait for their clients, by their tokens. `None` for one whose client has come back.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<BTreeMap<String, Place>>);

#[derive(Debug)]
struct Place {
    scope: Scope,
    running: Option<Box<Running>>,
}

impl Waiting {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the programs of an owner.
    pub(crate) fn clear(&self, scope: &Scope) {
        self.all().retain(|_, place| place.scope != *scope);
    }

    pub(crate) fn close(&self) {
        self.all().clear();
    }

    /// Takes a program out, whose place stays for the length of the request.
    pub(super) fn take(&self, scope: &Scope, token: &str) -> Result<Box<Running>, Error> {
        let mut all = self.all();
        let place = all.get_mut(token).filter(|place| place.scope == *scope);
        let running = place.ok_or(Error::NoContinuation)?.running.take();
        running.ok_or(Error::Continued)
    }

    /// Lets a program wait. The oldest that waits ends if there are too many of its owner.
    pub(super) fn put(&self, scope: &Scope, token: String, running: Box<Running>) {
        let mut all = self.all();
        all.retain(|_, place| place.running.as_ref().is_none_or(|running| running.is_alive()));
        let own = all
            .iter()
            .filter(|(other, place)| place.scope == *scope && **other != token);
        let waiting = own.filter_map(|(token, place)| Some((place.running.as_ref()?.begun, token.clone())));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort();
        let many = (waiting.len() + 1).saturating_sub(MAX_WAITING);
        for (_, oldest) in waiting.into_iter().take(many) {
            all.remove(&oldest);
        }
        let place = Place {
            scope: scope.clone(),
            running: Some(running),
        };
        all.insert(token, place);
    }

    pub(super) fn forget(&self, token: &str) {
        self.all().remove(token);
    }
}
