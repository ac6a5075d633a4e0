//! The questions that somebody may see and answer.

use ringfence_policy::Scope;
use ringfence_records::approval::{Audience, Request};

/// The questions that somebody may see and answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    All,
    /// Those of one scope.
    Of(Scope),
}

impl Reach {
    /// Returns `true` for a question within reach.
    pub(crate) fn has(&self, request: &Request) -> bool {
        match self {
            Self::All => true,
            Self::Of(scope) => request.scope == scope.as_str(),
        }
    }

    /// Returns the questions that wait for somebody with this reach, who listens.
    pub(crate) fn audience(&self) -> Audience {
        match self {
            Self::All => Audience::All,
            Self::Of(scope) => Audience::Of(scope.clone()),
        }
    }
}
