//! Why a session could not be used.

use ringfence_policy::SessionId;

/// The error number of what is in use.
const EBUSY: i32 = 16;

/// Why a session could not be used. Each says what to do in [`Error::hint`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Only Python is kept.
    #[error("a session is a Python interpreter; it cannot run {0}")]
    Language(ringfence_policy::Language),
    /// Nobody would hold it for so long.
    #[error("a session cannot be unfenced")]
    Unfenced,
    /// No room for another one.
    #[error("limit_exceeded: there are {0} sessions, as many as `engine.max_sessions` lets be")]
    TooMany(usize),
    /// There is none of this name.
    #[error("there is no session `{0}`")]
    Unknown(SessionId),
    /// There is one of this name already.
    #[error("there is a session `{0}` already")]
    Taken(SessionId),
    /// Others were there before.
    #[error("busy: the session `{0}` is evaluating, and others wait for it")]
    Busy(SessionId),
    /// What it was made with does not fit.
    #[error("the session `{id}` was made with another {what}, which cannot be changed")]
    Fixed {
        /// Which.
        id: SessionId,
        /// What differs.
        what: &'static str,
    },
    /// It lacks a layer of the fence that this request wants.
    #[error("the session `{0}` was made with a weaker fence than this request asks for")]
    Weaker(SessionId),
    /// The caller took the request back before it began.
    #[error("the request was taken back while it waited for the session `{0}`")]
    TakenBack(SessionId),
    /// It was not made in a way that can be copied.
    #[error("the session `{id}` cannot be forked: {why}")]
    NotForkable {
        /// Which.
        id: SessionId,
        /// What it lacks.
        why: &'static str,
    },
    /// Copying it did not work.
    #[error("cannot fork the session `{id}`: {step} failed: {}", std::io::Error::from_raw_os_error(*errno))]
    Fork {
        /// Which.
        id: SessionId,
        /// What was being done.
        step: String,
        /// The system's error number.
        errno: i32,
    },
    /// The engine ends.
    #[error("the engine is closing")]
    Closing,
}

impl Error {
    /// What the reader can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Language(_) => "leave the session out, or write Python",
            Self::Unfenced => "leave `--unfenced` out",
            Self::TooMany(_) => {
                "end one with `ringfence session rm ID` (`ringfence session ls` lists them), or raise `engine.max_sessions`"
            }
            Self::Unknown(_) => {
                "`ringfence session ls` lists the sessions; one that was idle for long has been ended"
            }
            Self::Taken(_) => "choose another name, or end that one with `ringfence session rm ID`",
            Self::Busy(_) => "try again later, or use another session: different sessions run at once",
            Self::Fixed { .. } => "leave the option out, use another session, or end this one",
            Self::Weaker(_) => {
                "use another session, or end this one and make it anew with the isolation you need"
            }
            Self::TakenBack(_) => "ask again",
            Self::NotForkable { .. } => {
                "make it anew once the engine is warm; forking needs namespaces (see `ringfence doctor`)"
            }
            Self::Fork { errno: EBUSY, .. } => {
                "only an interpreter with a single thread can be forked: let its threads end first"
            }
            Self::Fork { .. } => {
                "try again; if it happens again, report it with the output of `ringfence doctor`"
            }
            Self::Closing => "start the engine again",
        }
    }
}
