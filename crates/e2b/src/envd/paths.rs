//! Users and paths: a sandbox has one user, with one home.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringfence_policy::Account;

use crate::error::Error;
use crate::rpc::{Code, RpcError};
use crate::token::header;

/// The account of sandboxes: E2B's clients know its user and home directory.
pub(crate) const ACCOUNT: Account = Account::User;
/// The user of a sandbox.
pub(crate) const USER: &str = ACCOUNT.name();
/// Its home directory.
pub(crate) const HOME: &str = ACCOUNT.home();

/// A user that a sandbox does not have.
enum NoUser {
    /// `root`, which E2B has.
    Root,
    Unknown(String),
}

impl NoUser {
    const ROOT: &str = "not supported: user `root` (a sandbox has one user, `user`, without privileges)";

    fn message(self) -> String {
        match self {
            Self::Root => Self::ROOT.to_owned(),
            Self::Unknown(name) => format!("invalid username: `{name}` (a sandbox has one user, `user`)"),
        }
    }
}

fn check(user: &str) -> Result<(), NoUser> {
    match user {
        "" | USER => Ok(()),
        "root" => Err(NoUser::Root),
        other => Err(NoUser::Unknown(other.chars().take(80).collect())),
    }
}

/// Checks the user that a request for a file names.
pub(super) fn check_user(user: &str) -> Result<(), Error> {
    check(user).map_err(|no_user| match no_user {
        NoUser::Root => Error::not_supported(
            "user `root`",
            "a sandbox has one user, `user`, without privileges",
        ),
        unknown @ NoUser::Unknown(_) => Error::unauthenticated(&unknown.message()),
    })
}

/// Checks the user that a call names as `Authorization: Basic`.
pub(super) fn check_user_of_call(headers: &HeaderMap) -> Result<(), RpcError> {
    if !headers.contains_key("authorization") {
        return Ok(());
    }
    let value = header(headers, "authorization").and_then(|value| value.strip_prefix("Basic "));
    let decoded = value.and_then(|value| STANDARD.decode(value.trim()).ok());
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(text) = text else {
        let message = "expected `Authorization: Basic` with a user's name";
        return Err(RpcError::new(Code::Unauthenticated, message));
    };
    let user = text.split(':').next().unwrap_or_default();
    check(user).map_err(|no_user| {
        let code = match no_user {
            NoUser::Root => Code::Unimplemented,
            NoUser::Unknown(_) => Code::Unauthenticated,
        };
        RpcError::new(code, no_user.message())
    })
}

/// Returns the absolute path of what a client names: `~` is the home, and relative paths begin there.
pub(crate) fn absolute(path: &str) -> String {
    match path {
        "" | "~" => HOME.to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => {
            let below = path.strip_prefix("~/").unwrap_or(path);
            let below = below.strip_prefix("./").unwrap_or(below);
            format!("{HOME}/{below}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_begin_at_home() {
        for (path, expected) in [
            ("", HOME.to_owned()),
            ("~", HOME.to_owned()),
            ("~/a", format!("{HOME}/a")),
            ("a/b", format!("{HOME}/a/b")),
            ("./a", format!("{HOME}/a")),
            ("/etc", "/etc".to_owned()),
            ("~user", format!("{HOME}/~user")),
        ] {
            assert_eq!(absolute(path), expected);
        }
    }

    #[test]
    fn root_is_refused_by_name() {
        let call = |user: &str| {
            let mut headers = HeaderMap::new();
            let value = format!("Basic {}", STANDARD.encode(user));
            headers.insert("authorization", value.parse().unwrap());
            check_user_of_call(&headers)
        };
        assert!(call("user:").is_ok() && call(":").is_ok());
        assert!(check_user_of_call(&HeaderMap::new()).is_ok());
        assert_eq!(
            call("root:"),
            Err(RpcError::new(Code::Unimplemented, NoUser::ROOT))
        );
        assert!(call("other:").is_err());
        assert!(check_user("root").is_err() && check_user("user").is_ok() && check_user("x").is_err());
    }
}
