//! Forking a session: done by the launcher, with the cooperation of the session's interpreter.

use std::time::Duration;

use ringfence_policy::SessionId;

use super::super::error::Error as LocalError;
use super::super::guest::Guest;
use super::super::launcher_state::SessionOrigin;
use super::super::session_error::Error;
use super::interpreter::Interpreter;
use super::messages::{self, Answer};

/// Timeout for a session to let itself be forked.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Number that no evaluation has.
const NUMBER: u32 = u32::MAX;

/// The result of forking a session.
pub(super) struct Forked {
    pub(super) guest: Result<Guest, LocalError>,
    /// Set if the session violated the protocol and must end.
    pub(super) broken: bool,
}

/// Forks a session in which no evaluation runs.
pub(super) async fn fork(interpreter: &mut Interpreter, id: &SessionId) -> Forked {
    if interpreter.origin == SessionOrigin::Started {
        let error = Error::NotForkable {
            id: id.clone(),
            why: "its interpreter was not forked from a warm one",
        };
        return Forked {
            guest: Err(error.into()),
            broken: false,
        };
    }
    let (served, limits) = (&interpreter.served, &interpreter.made_for.limits);
    let guest = &mut interpreter.guest;
    // The launcher first: it completes or cancels the request, and either wakes the session.
    let begun = match served.begin_fork(guest.id, limits).await {
        Ok(begun) => begun,
        Err(error) => {
            return Forked {
                guest: Err(error),
                broken: false,
            };
        }
    };
    let forked = begun.forked_by(guest, &messages::fork(NUMBER), TIMEOUT).await;
    let answer = tokio::time::timeout(TIMEOUT, Answer::receive(&mut guest.control, NUMBER, 0)).await;
    Forked {
        guest: forked.map_err(|error| fork_error(error, id)),
        broken: !matches!(answer, Ok(Ok(_))),
    }
}

fn fork_error(error: LocalError, id: &SessionId) -> LocalError {
    match error {
        LocalError::Fence { step, errno } => Error::Fork {
            id: id.clone(),
            step,
            errno,
        }
        .into(),
        other => other,
    }
}
