//! The directory layout of the file tools: shared, per user or per session.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Scope, SessionId};

/// The owner of a separate directory of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UserScope {
    /// Nobody: all callers share one directory.
    #[default]
    None,
    /// Each user.
    User,
    /// Each session of each user.
    Session,
}

/// Template of the directory of a user or a session, such as `data/users/{user_id}`.
///
/// Two users never get the same directory, nor do two sessions that each have their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct UserRoot {
    scope: UserScope,
    template: String,
}

/// The configuration's two keys.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    #[serde(default)]
    user_scope: UserScope,
    #[serde(default = "standard")]
    user_root: String,
}

/// The error of an invalid template, or of one that cannot be resolved for a caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserRootError {
    /// Empty text, or one with NUL.
    #[error(
        "the root of user files is empty or holds NUL; write it like `{}`",
        standard()
    )]
    Unusable,
    /// A path with `..`.
    #[error("the root of user files `{0}` holds `..`; write the directory itself")]
    GoesUp(String),
    /// A brace outside the known placeholders.
    #[error("the root of user files `{0}` holds a placeholder other than `{{user_id}}` and `{{session_id}}`")]
    UnknownPlaceholder(String),
    /// Adjacent ids: `ab` + `c` and `a` + `bc` would be one directory.
    #[error("the root of user files `{0}` has two placeholders in one name; put a `/` between them")]
    RunTogether(String),
    /// A missing placeholder: callers would share one directory.
    #[error(
        "the root of user files `{template}` needs `{{{missing}}}`; without it callers would share one directory"
    )]
    Shared {
        template: String,
        /// The missing placeholder.
        missing: &'static str,
    },
    /// A call without a session where each session has its own files.
    #[error("each session has files of its own, and this call names no session; pass a session id")]
    NoSession,
}

const USER: &str = "user_id";
const SESSION: &str = "session_id";

fn standard() -> String {
    format!("data/users/{{{USER}}}")
}

impl UserRoot {
    /// Returns the part of the template that all callers share.
    pub fn common(&self) -> PathBuf {
        let names = Path::new(&self.template).components();
        names
            .take_while(|name| !name.as_os_str().as_encoded_bytes().contains(&b'{'))
            .collect()
    }

    /// Parses a template for the given scope.
    ///
    /// # Errors
    /// If it is not a path, could lead upwards, or would let two callers share a directory.
    pub fn new(scope: UserScope, template: &str) -> Result<Self, UserRootError> {
        if template.is_empty() || template.contains('\0') {
            return Err(UserRootError::Unusable);
        }
        let mut found = Vec::new();
        for name in Path::new(template).components() {
            if name == Component::ParentDir {
                return Err(UserRootError::GoesUp(template.to_owned()));
            }
            let here = placeholders(&name.as_os_str().to_string_lossy())
                .ok_or_else(|| UserRootError::UnknownPlaceholder(template.to_owned()))?;
            if here.len() > 1 {
                return Err(UserRootError::RunTogether(template.to_owned()));
            }
            found.extend(here);
        }
        // The user chooses the session id: on its own it would let one user name another's session.
        let needed: &[&'static str] = match scope {
            UserScope::None => &[],
            UserScope::User => &[USER],
            UserScope::Session => &[USER, SESSION],
        };
        if let Some(missing) = needed.iter().find(|needed| !found.contains(needed)) {
            return Err(UserRootError::Shared {
                template: template.to_owned(),
                missing,
            });
        }
        Ok(Self {
            scope,
            template: template.to_owned(),
        })
    }

    /// Returns the scope.
    pub const fn scope(&self) -> UserScope {
        self.scope
    }

    /// Returns the caller's directory, relative or absolute like the template; `None` without separate
    /// directories.
    ///
    /// # Errors
    /// If the template names the session and there is none.
    pub fn resolve(
        &self,
        user: &Scope,
        session: Option<&SessionId>,
    ) -> Result<Option<PathBuf>, UserRootError> {
        if self.scope == UserScope::None {
            return Ok(None);
        }
        // Neither id can contain a brace.
        let filled = self.template.replace("{user_id}", user.as_str());
        match session {
            Some(session) => Ok(Some(filled.replace("{session_id}", session.as_str()).into())),
            None if filled.contains('{') => Err(UserRootError::NoSession),
            None => Ok(Some(filled.into())),
        }
    }
}

impl Default for UserRoot {
    fn default() -> Self {
        Self {
            scope: UserScope::None,
            template: standard(),
        }
    }
}

/// Returns the placeholders in one path component; `None` if it has another brace.
fn placeholders(name: &str) -> Option<Vec<&'static str>> {
    let mut found = Vec::new();
    let mut rest = name;
    while let Some(start) = rest.find(['{', '}']) {
        let (word, after) = rest[start..].strip_prefix('{')?.split_once('}')?;
        found.push([USER, SESSION].into_iter().find(|known| *known == word)?);
        rest = after;
    }
    Some(found)
}

impl FromStr for UserScope {
    type Err = crate::UnknownName;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "none" => Ok(Self::None),
            "user" => Ok(Self::User),
            "session" => Ok(Self::Session),
            _ => Err(crate::UnknownName {
                what: "user scope",
                name: name.chars().take(80).collect(),
                known: "none, user and session".into(),
            }),
        }
    }
}

impl TryFrom<Fields> for UserRoot {
    type Error = UserRootError;
    fn try_from(fields: Fields) -> Result<Self, Self::Error> {
        Self::new(fields.user_scope, &fields.user_root)
    }
}

impl From<UserRoot> for Fields {
    fn from(root: UserRoot) -> Self {
        Self {
            user_scope: root.scope,
            user_root: root.template,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resolved(scope: UserScope, template: &str, user: &str, session: Option<&str>) -> Option<PathBuf> {
        let session = session.map(|id| id.parse::<SessionId>().unwrap());
        UserRoot::new(scope, template)
            .unwrap()
            .resolve(&user.parse().unwrap(), session.as_ref())
            .unwrap()
    }

    #[test]
    fn a_template_is_filled_in() {
        use UserScope::{None as Nobody, Session, User};
        for (scope, template, session, expected) in [
            (User, "data/users/{user_id}", None, Some("data/users/ann")),
            (
                User,
                "/srv/u-{user_id}/files",
                Some("s1"),
                Some("/srv/u-ann/files"),
            ),
            (Session, "d/{user_id}/{session_id}", Some("s1"), Some("d/ann/s1")),
            (User, "d/{session_id}/{user_id}", Some("s1"), Some("d/s1/ann")),
            (Nobody, "data/users/{user_id}", None, None),
        ] {
            assert_eq!(
                resolved(scope, template, "ann", session),
                expected.map(PathBuf::from),
                "{template}"
            );
        }
    }

    #[test]
    fn what_could_lead_elsewhere_or_be_shared_is_no_template() {
        for (template, expected) in [
            ("", "empty"),
            ("a\0{user_id}", "NUL"),
            ("../{user_id}", "`..`"),
            ("data/{user_id}/..", "`..`"),
            ("data/{user}", "placeholder other than"),
            ("data/{user_id", "placeholder other than"),
            ("data/user_id}", "placeholder other than"),
            ("data/{{user_id}}", "placeholder other than"),
            ("data/{}", "placeholder other than"),
            ("data/{user_id}{session_id}", "two placeholders"),
            ("data/{user_id}-{session_id}", "two placeholders"),
            ("data/users", "needs `{user_id}`"),
            ("/", "needs `{user_id}`"),
        ] {
            let error = UserRoot::new(UserScope::User, template).unwrap_err().to_string();
            assert!(error.contains(expected), "{template:?}: {error}");
        }
        for template in ["data/{user_id}", "data/{session_id}"] {
            let error = UserRoot::new(UserScope::Session, template).unwrap_err();
            assert!(matches!(error, UserRootError::Shared { .. }), "{template}");
        }
    }

    #[test]
    fn files_of_a_session_need_one() {
        for scope in [UserScope::Session, UserScope::User] {
            let root = UserRoot::new(scope, "d/{user_id}/{session_id}").unwrap();
            assert_eq!(root.resolve(&Scope::local(), None), Err(UserRootError::NoSession));
        }
    }

    #[test]
    fn the_configuration_is_checked_as_it_is_read() {
        let root: UserRoot =
            serde_json::from_str(r#"{"user_scope": "user", "user_root": "data/users/{user_id}"}"#).unwrap();
        assert_eq!(root.scope(), UserScope::User);
        assert_eq!(
            serde_json::to_string(&root).unwrap(),
            r#"{"user_scope":"user","user_root":"data/users/{user_id}"}"#
        );
        assert_eq!(
            serde_json::from_str::<UserRoot>("{}").unwrap(),
            UserRoot::default()
        );
        assert!(serde_json::from_str::<UserRoot>(r#"{"user_scope": "user", "user_root": "../x"}"#).is_err());
        assert_eq!("session".parse(), Ok(UserScope::Session));
        assert!("everybody".parse::<UserScope>().is_err());
    }

    #[test]
    fn ids_that_would_escape_are_none() {
        for id in [
            "",
            "..",
            ".",
            "../bob",
            "a/b",
            "/etc",
            "a\0b",
            ".hidden",
            "{user_id}",
            "a b",
            "ä",
        ] {
            assert!(id.parse::<Scope>().is_err(), "{id:?}");
            assert!(id.parse::<SessionId>().is_err(), "{id:?}");
        }
    }

    proptest! {
        #[test]
        fn two_callers_have_two_directories(
            a in "[A-Za-z0-9_-][A-Za-z0-9._-]{0,5}", b in "[A-Za-z0-9_-][A-Za-z0-9._-]{0,5}",
            s in "[A-Za-z0-9_-][A-Za-z0-9._-]{0,5}", t in "[A-Za-z0-9_-][A-Za-z0-9._-]{0,5}",
        ) {
            let template = "data/u-{user_id}/x/{session_id}";
            let one = resolved(UserScope::Session, template, &a, Some(&s)).unwrap();
            let other = resolved(UserScope::Session, template, &b, Some(&t)).unwrap();
            prop_assert_eq!(one == other, a == b && s == t);
            prop_assert!(!one.starts_with(&other) || one == other);
            prop_assert!(one.starts_with("data"));
            prop_assert!(one.components().all(|name| matches!(name, Component::Normal(_))));
        }

        #[test]
        fn no_text_makes_a_path_that_goes_up(
            pieces in prop::collection::vec(
                prop::sample::select(vec!["a", ".", "..", "/", "{user_id}", "{session_id}", "{", "}"]), 0..8)
        ) {
            let template = pieces.concat();
            if let Ok(root) = UserRoot::new(UserScope::User, &template) {
                let session = "s".parse().unwrap();
                let path = root.resolve(&Scope::local(), Some(&session)).unwrap().unwrap();
                prop_assert!(path.components().all(|name| name != Component::ParentDir), "{}", template);
                prop_assert!(!path.to_string_lossy().contains(['{', '}']), "{}", template);
            }
        }
    }
}
