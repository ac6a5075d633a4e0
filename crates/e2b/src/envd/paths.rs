//! Users of requests, and paths that begin at their homes.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringfence_policy::Account;
use ringfence_sandbox::files::{FileRange, Files};
use ringfence_sandbox::{Error as SandboxError, Sandbox};

use crate::error::Error;
use crate::rpc::{Code, RpcError};
use crate::token::header;

/// The account of sandboxes: E2B's clients know its user and home directory.
pub(crate) const ACCOUNT: Account = Account::User;
/// The user of a sandbox.
pub(crate) const USER: &str = ACCOUNT.name();
/// Home directory of the user.
pub(crate) const HOME: &str = ACCOUNT.home();

/// File of a sandbox with its users, and most bytes of it that are read.
const USERS: &str = "/etc/passwd";
const MAX_USERS: u64 = 1 << 20;

/// A user of a sandbox, as a request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum User {
    /// The only one of the sandbox, or the one that its programs are of by default and that its template does not name.
    Own,
    /// One of several. The sandbox says whether it has it.
    Named(String),
}

/// A user that a sandbox does not have.
#[derive(Debug, PartialEq, Eq)]
enum NoUser {
    /// `root`, which E2B has.
    Root,
    Unknown {
        name: String,
        known: &'static str,
    },
}

impl NoUser {
    const ROOT: &str = "not supported: user `root` (a sandbox has one user, `user`, without privileges; those of templates have root)";

    fn message(self) -> String {
        match self {
            Self::Root => Self::ROOT.to_owned(),
            Self::Unknown { name, known } => {
                format!("invalid username: `{name}` (the sandbox has one user, `{known}`)")
            }
        }
    }
}

impl User {
    /// Returns the user of a name, which may be empty. `default` is the one of programs that name none.
    fn new(name: &str, account: Account, default: Option<&str>) -> Result<Self, NoUser> {
        let own = || Ok(default.map_or(Self::Own, |name| Self::Named(name.to_owned())));
        match name {
            "" => own(),
            name if account.is_root() => Ok(Self::Named(name.to_owned())),
            name if name == account.name() => own(),
            "root" => Err(NoUser::Root),
            other => Err(NoUser::Unknown {
                name: shortened(other),
                known: account.name(),
            }),
        }
    }

    fn of(name: &str, sandbox: &Sandbox) -> Result<Self, NoUser> {
        Self::new(name, sandbox.account(), sandbox.default_user())
    }

    /// Returns the user that a request for a file names.
    pub(super) fn of_file(name: &str, sandbox: &Sandbox) -> Result<Self, Error> {
        Self::of(name, sandbox).map_err(|no_user| match no_user {
            NoUser::Root => Error::not_supported(
                "user `root`",
                "a sandbox has one user, `user`, without privileges; those of templates have root",
            ),
            unknown @ NoUser::Unknown { .. } => Error::unauthenticated(&unknown.message()),
        })
    }

    /// Returns the user that a call names as `Authorization: Basic`.
    pub(super) fn of_call(headers: &HeaderMap, sandbox: &Sandbox) -> Result<Self, RpcError> {
        let name = name_of_call(headers)?;
        Self::of(&name, sandbox).map_err(|no_user| {
            let code = match no_user {
                NoUser::Root => Code::Unimplemented,
                NoUser::Unknown { .. } => Code::Unauthenticated,
            };
            RpcError::new(code, no_user.message())
        })
    }

    /// Returns the name, unless it is the sandbox's own user.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Own => None,
            Self::Named(name) => Some(name),
        }
    }

    /// Returns the files of a sandbox, with this user's rights.
    pub(super) fn files<'a>(&'a self, sandbox: &'a Sandbox) -> Files<'a> {
        sandbox.files_of(self.name())
    }

    /// Returns the absolute path of what a client names: `~` is the user's home, and relative paths begin there.
    pub(super) async fn absolute(&self, sandbox: &Sandbox, path: &str) -> Result<String, SandboxError> {
        match below_home(path) {
            None => Ok(path.to_owned()),
            Some(below) => {
                let home = self.home(sandbox).await?;
                let path = format!("{}/{below}", home.trim_end_matches('/'));
                Ok(match path.trim_end_matches('/') {
                    "" => "/".to_owned(),
                    path => path.to_owned(),
                })
            }
        }
    }

    /// Returns the home directory, for a named user as the sandbox's own file has it.
    async fn home(&self, sandbox: &Sandbox) -> Result<String, SandboxError> {
        let Self::Named(name) = self else {
            return Ok(HOME.to_owned());
        };
        let range = FileRange {
            offset: 0,
            length: Some(MAX_USERS),
        };
        let mut users = Vec::new();
        match sandbox.read_file(USERS.to_owned(), range).await {
            Err(SandboxError::File(_)) => {}
            reader => {
                let mut reader = reader?;
                while let Some(piece) = reader.next().await? {
                    users.extend(piece);
                }
            }
        }
        let home = home_of(name, &String::from_utf8_lossy(&users));
        home.ok_or_else(|| SandboxError::NoUser(shortened(name)))
    }
}

/// Returns the home of a user by name or number (passwd(5)). A number that is not in the file has the root directory.
fn home_of(wanted: &str, users: &str) -> Option<String> {
    let entry = |position: usize| {
        users
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.len() == 7 && fields[position] == wanted)
            .map(|fields| fields[5].to_owned())
    };
    let is_number = || !wanted.is_empty() && wanted.bytes().all(|byte| byte.is_ascii_digit());
    let found = match (entry(0), wanted) {
        (Some(home), _) => Some(home),
        (None, "root") => Some("/root".to_owned()),
        (None, _) if is_number() => Some(entry(2).unwrap_or_default()),
        (None, _) => None,
    };
    // What is no absolute path is no path at all.
    found.map(|home| {
        if home.starts_with('/') {
            home
        } else {
            "/".to_owned()
        }
    })
}

/// Returns what follows the home in a path that begins there.
fn below_home(path: &str) -> Option<&str> {
    match path {
        "" | "~" => Some(""),
        path if path.starts_with('/') => None,
        path => {
            let below = path.strip_prefix("~/").unwrap_or(path);
            Some(below.strip_prefix("./").unwrap_or(below))
        }
    }
}

fn shortened(name: &str) -> String {
    name.chars().take(80).collect()
}

/// Returns the name of `Authorization: Basic`; an empty one without that header.
fn name_of_call(headers: &HeaderMap) -> Result<String, RpcError> {
    if !headers.contains_key("authorization") {
        return Ok(String::new());
    }
    let value = header(headers, "authorization").and_then(|value| value.strip_prefix("Basic "));
    let decoded = value.and_then(|value| STANDARD.decode(value.trim()).ok());
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let Some(text) = text else {
        let message = "expected `Authorization: Basic` with a user's name";
        return Err(RpcError::new(Code::Unauthenticated, message));
    };
    Ok(text.split(':').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_begin_at_home() {
        for (path, expected) in [
            ("", Some("")),
            ("~", Some("")),
            ("~/a", Some("a")),
            ("a/b", Some("a/b")),
            ("./a", Some("a")),
            ("/etc", None),
            ("~user", Some("~user")),
        ] {
            assert_eq!(below_home(path), expected);
        }
    }

    #[test]
    fn homes_are_those_of_the_file() {
        let users = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1001:,,:/home/ada:\nbad:x:5:5::relative:\nshort:x:6\n9:x:8:8::/nine:\n";
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(home_of(name, users).as_deref(), expected, "{name}");
        };
        check("ada", Some("/home/ada"));
        check("1000", Some("/home/ada"));
        check("9", Some("/nine"));
        check("8", Some("/nine"));
        check("7", Some("/"));
        check("bad", Some("/"));
        check("short", None);
        check("", None);
        assert_eq!(home_of("root", "").as_deref(), Some("/root"));
    }

    #[test]
    fn a_sandbox_without_root_refuses_it_by_name() {
        let name = |user: &str| {
            let mut headers = HeaderMap::new();
            let value = format!("Basic {}", STANDARD.encode(user));
            headers.insert("authorization", value.parse().unwrap());
            name_of_call(&headers).unwrap()
        };
        assert_eq!([name("user:"), name(":"), name("root:x")], ["user", "", "root"]);
        assert_eq!(name_of_call(&HeaderMap::new()).unwrap(), "");
        let check = |name: &str, expected: Result<User, NoUser>| {
            assert_eq!(User::new(name, ACCOUNT, None), expected, "{name}");
        };
        check("", Ok(User::Own));
        check("user", Ok(User::Own));
        check("root", Err(NoUser::Root));
        let unknown = NoUser::Unknown {
            name: "x".to_owned(),
            known: USER,
        };
        check("x", Err(unknown));
    }

    #[test]
    fn a_sandbox_with_root_has_any_user() {
        let check = |name: &str, default: Option<&str>, expected: Option<&str>| {
            let user = User::new(name, Account::Root, default).unwrap();
            assert_eq!(user.name(), expected, "{name}");
        };
        check("", None, None);
        check("", Some("ada"), Some("ada"));
        check("root", None, Some("root"));
        check("root", Some("ada"), Some("root"));
        check("x", None, Some("x"));
    }
}
