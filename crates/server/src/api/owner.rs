//! The owner of what a client makes.

use ringfence_policy::Scope;
use ringfence_sandbox::Error as SandboxError;
use serde::Deserialize;

use super::error::{ApiError, Reason};
use super::keys::Grant;

/// The owner of what a request asks for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Owner {
    /// User on whose behalf the server's own user asks. Holders of keys have no others.
    user: Option<Scope>,
}

impl Owner {
    /// Returns the scope of what a client makes.
    pub(super) fn scope(&self, grant: &Grant) -> Result<Scope, ApiError> {
        match (grant.is_owner(), &self.user) {
            (true, Some(user)) => Ok(user.clone()),
            (true, None) => Ok(Scope::local()),
            (false, None) => {
                let scope = grant.scope();
                scope.ok_or_else(|| SandboxError::Broken("its key has no scope".to_owned()).into())
            }
            (false, Some(_)) => Err(ApiError::new(
                Reason::PermissionDenied,
                "a key has its own sandboxes and no others",
                "leave `user` out",
            )),
        }
    }
}
