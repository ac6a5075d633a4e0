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
    Unknown {
        name: String,
        known: &'static str,
    },
}

impl NoUser {
    const ROOT: &str = "not supported: user `root` (a sandbox has one user, `user`, without privileges)";

    fn message(self) -> String {
        match self {
            Self::Root => Self::ROOT.to_owned(),
            Self::Unknown { name, known } => {
                format!("invalid username: `{name}` (the sandbox has one user, `{known}`)")
            }
        }
    }
}

fn check(user: &str, account: Account) -> Result<(), NoUser> {
    match user {
        "" => Ok(()),
        user if user == account.name() => Ok(()),
        "root" => Err(NoUser::Root),
        other => Err(NoUser::Unknown {
            name: other.chars().take(80).collect(),
            known: account.name(),
        }),
    }
}

/// Checks the user that a request for a file names.
pub(super) fn check_user(user: &str, account: Account) -> Result<(), Error> {
    check(user, account).map_err(|no_user| match no_user {
        NoUser::Root => Error::not_supported(
            "user `root`",
            "a sandbox has one user, `user`, without privileges",
        ),
        unknown @ NoUser::Unknown { .. } => Error::unauthenticated(&unknown.message()),
    })
}

/// Checks the user that a call names as `Authorization: Basic`.
pub(super) fn check_user_of_call(headers: &HeaderMap, account: Account) -> Result<(), RpcError> {
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
    check(user, account).map_err(|no_user| {
        let code = match no_user {
            NoUser::Root => Code::Unimplemented,
            NoUser::Unknown { .. } => Code::Unauthenticated,
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
            check_user_of_call(&headers, ACCOUNT)
        };
        assert!(call("user:").is_ok() && call(":").is_ok());
        assert!(check_user_of_call(&HeaderMap::new(), ACCOUNT).is_ok());
        assert_eq!(
            call("root:"),
            Err(RpcError::new(Code::Unimplemented, NoUser::ROOT))
        );
        assert!(call("other:").is_err());
        let check = |user: &str| check_user(user, ACCOUNT).is_ok();
        assert!(!check("root") && check("user") && !check("x"));
        let check = |user: &str| check_user(user, Account::Root).is_ok();
        assert!(check("root") && check("") && !check("user") && !check("x"));
    }
}
