//! Stores invocations that wait for an answer in another request, in stateless protocol versions.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use ringfence_records::approval::{PendingApproval, Request};

use crate::calls::RUNNING;
use crate::invocation::{CallIdentity, Invocation};

/// Maximum number of waiting invocations: as many as can run.
const MAX_PARKED: usize = RUNNING;

/// Invocations of a connection that wait for another request.
#[derive(Debug, Default)]
pub(super) struct Parked(Mutex<VecDeque<ParkedInvocation>>);

/// An invocation with its question.
#[derive(Debug)]
pub(super) struct ParkedInvocation {
    pub(super) invocation: Invocation,
    pub(super) asked: PendingApproval,
}

/// Returns the state that the client must send back: the id of the question, which cannot be guessed, and the
/// digest of its text.
pub(super) fn state(request: &Request) -> String {
    format!("{}.{}", request.id, request.digest())
}

impl Parked {
    /// Stores an invocation until the client returns.
    pub(super) fn put(&self, waiting: ParkedInvocation) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_PARKED {
            // A client that does not return loses the oldest finished invocation, or else the oldest.
            let ended = all.iter().position(|waiting| waiting.invocation.has_ended());
            all.remove(ended.unwrap_or_default());
        }
        all.push_back(waiting);
    }

    /// Removes the invocation of a state, if the request has the same tool and arguments.
    pub(super) fn take(&self, wanted: &str, named: &CallIdentity) -> Option<ParkedInvocation> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = all.iter().position(|waiting| {
            waiting.invocation.named == *named && state(waiting.asked.request()) == wanted
        })?;
        all.remove(place)
    }
}
