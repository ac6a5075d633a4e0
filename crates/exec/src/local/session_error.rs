//! Errors of sessions.

use std::path::PathBuf;

use ringfence_policy::{Remedy, SessionId, remedy};

/// `EBUSY` from `errno.h`.
const EBUSY: i32 = 16;

/// An error of using a session. [`Error::hint`] returns advice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The language is not Python.
    #[error("a session is a Python interpreter; it cannot run {0}")]
    Language(ringfence_policy::Language),
    /// Nothing would confine it for its whole lifetime.
    #[error("a session cannot be unfenced")]
    Unfenced,
    /// The session limit is reached.
    #[error("limit_exceeded: session limit reached ({0})")]
    TooMany(usize),
    /// No session has this name.
    #[error("there is no session `{0}`")]
    Unknown(SessionId),
    /// Another session has the name.
    #[error("the session `{0}` already exists")]
    Taken(SessionId),
    /// Other evaluations were queued before.
    #[error("busy: the session `{0}` is evaluating, and the queue for it is full")]
    Busy(SessionId),
    /// The request needs something else than the session was created with.
    #[error("the session `{id}` was created with another {what}, which cannot be changed")]
    Fixed {
        id: SessionId,
        /// Differing property.
        what: &'static str,
    },
    /// The session lacks a layer of the fence that this request requires.
    #[error("the session `{0}` lacks a layer of the fence that this request requires")]
    Weaker(SessionId),
    /// A path must be kept from programs that its view of the host does not keep from it.
    #[error(
        "the session `{id}` could write {}, a protected path that was created or replaced after the session began",
        path.display()
    )]
    Outdated { id: SessionId, path: PathBuf },
    /// The caller cancelled the request before it began.
    #[error("the request was cancelled while it waited for the session `{0}`")]
    Cancelled(SessionId),
    /// The session was not created in a way that can be forked.
    #[error("the session `{id}` cannot be forked: {why}")]
    NotForkable {
        id: SessionId,
        /// Missing precondition.
        why: &'static str,
    },
    /// Forking the session failed.
    #[error("cannot fork the session `{id}`: {step} failed: {}", std::io::Error::from_raw_os_error(*errno))]
    Fork {
        id: SessionId,
        /// Failed step.
        step: String,
        errno: i32,
    },
    /// The server shuts down.
    #[error("the server is closing")]
    Closing,
}

impl Error {
    /// Returns advice for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::Language(_) => "leave the session out, or write Python".into(),
            Self::Unfenced => remedy::Session::Fence.into(),
            Self::TooMany(_) => remedy::Session::EndOne.into(),
            Self::Unknown(_) => remedy::Session::List.into(),
            Self::Taken(_) => remedy::Session::Rename.into(),
            Self::Busy(_) => "try again later, or use another session: different sessions run at once".into(),
            Self::Fixed { .. } => "leave the option out, use another session, or end this one".into(),
            Self::Weaker(_) => {
                "use another session, or end this one and make it anew with the isolation you need".into()
            }
            Self::Outdated { .. } => remedy::Session::Replace.into(),
            Self::Cancelled(_) => "ask again".into(),
            Self::NotForkable { .. } => remedy::Session::Remake.into(),
            Self::Fork { errno: EBUSY, .. } => {
                "only an interpreter with a single thread can be forked: let its threads end first".into()
            }
            Self::Fork { .. } => remedy::Run::Retry.into(),
            Self::Closing => "start the server again".into(),
        }
    }
}
