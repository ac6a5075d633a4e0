//! Remedies for sessions.

use serde::{Deserialize, Serialize};

use super::Remedy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Session {
    Fence,
    /// Of as many as there may be.
    EndOne,
    List,
    Rename,
    Replace,
    /// For one that cannot be forked.
    Remake,
}

impl Session {
    pub(super) fn person(self) -> &'static str {
        match self {
            Self::Fence => "leave `--unfenced` out",
            Self::EndOne => {
                "end one with `ringfence session rm ID` (`ringfence session ls` lists them), or raise `engine.max_sessions`"
            }
            Self::List => {
                "`ringfence session ls` lists the sessions; one that was idle for long has been ended"
            }
            Self::Rename => "choose another name, or end that one with `ringfence session rm ID`",
            Self::Replace => {
                "end it with `ringfence session rm ID`, which loses its variables, and start a new one"
            }
            Self::Remake => {
                "make it anew once the server is warm; forking needs namespaces (see `ringfence doctor`)"
            }
        }
    }
}

impl From<Session> for Remedy {
    fn from(remedy: Session) -> Self {
        Self::Session(remedy)
    }
}
