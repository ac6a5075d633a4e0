//! Making a copy of a session: the launcher does it, and the session's interpreter has to let it.

use std::time::Duration;

use ringfence_policy::SessionId;
use tokio::io::AsyncWriteExt;

use super::super::Error as LocalError;
use super::super::guest::Guest;
use super::Error;
use super::interpreter::{Interpreter, Origin};
use super::words::{self, Answer};

/// How long a session may take to let itself be forked. One that takes longer does something else.
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of what is no evaluation.
const NUMBER: u32 = u32::MAX;

/// What came of forking a session.
pub(super) struct Forked {
    pub(super) guest: Result<Guest, LocalError>,
    /// Whether the session did not keep to what was agreed, and has to end.
    pub(super) broken: bool,
}

/// Makes a copy of a session that does not evaluate.
pub(super) async fn fork(interpreter: &mut Interpreter, id: &SessionId) -> Forked {
    if interpreter.origin != Origin::Forked {
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
    // The launcher first: what it has been asked for it does or cancels, and either wakes the session.
    let begun = match served.begin_fork(guest.id, limits).await {
        Ok(begun) => begun,
        Err(error) => {
            return Forked {
                guest: Err(error),
                broken: false,
            };
        }
    };
    let (lane, number) = (&guest.lane, guest.id);
    let (hearing, mut saying) = guest.control.split();
    // Of one that has gone the launcher tells.
    let _ = saying.write_all(&words::fork(NUMBER)).await;
    let forking = begun.running();
    tokio::pin!(forking);
    let forked = match tokio::time::timeout(PATIENCE, &mut forking).await {
        Ok(forked) => forked,
        Err(_) => {
            // Without the session the launcher gives up.
            lane.kill(number).await;
            forking.await
        }
    };
    let answer = tokio::time::timeout(PATIENCE, Answer::receive(hearing, NUMBER, 0)).await;
    Forked {
        guest: forked.map_err(|error| told(error, id)),
        broken: !matches!(answer, Ok(Ok(_))),
    }
}

fn told(error: LocalError, id: &SessionId) -> LocalError {
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
