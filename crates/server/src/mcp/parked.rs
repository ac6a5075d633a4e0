//! Invocations whose question is with the client, where it answers by another request.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use ringfence_runtime::approval::{Asked, Request};

use super::calls::RUNNING;
use super::invocation::{Invocation, Named};

/// Invocations that are kept at once. No more than so many run, so that there is room for every one that does.
const MAX_PARKED: usize = RUNNING;

/// The invocations of one connection that wait for the client to come back.
#[derive(Debug, Default)]
pub(super) struct Parked(Mutex<VecDeque<Waiting>>);

/// An invocation, and what was asked.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) invocation: Invocation,
    pub(super) asked: Asked,
}

/// What the client sends back to go on: the question's id, which nobody can guess, and the digest of its text.
pub(super) fn state(request: &Request) -> String {
    format!("{}.{}", request.id, request.digest())
}

impl Parked {
    /// Keeps an invocation until the client comes back.
    pub(super) fn put(&self, waiting: Waiting) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_PARKED {
            // A client that does not come back loses the oldest answer that nobody has fetched.
            let ended = all.iter().position(|waiting| waiting.invocation.has_ended());
            all.remove(ended.unwrap_or_default());
        }
        all.push_back(waiting);
    }

    /// Gives back the invocation of a state, once, and only to a request for the same.
    pub(super) fn take(&self, wanted: &str, named: &Named) -> Option<Waiting> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = all.iter().position(|waiting| {
            waiting.invocation.named == *named && state(waiting.asked.request()) == wanted
        })?;
        all.remove(place)
    }
}
