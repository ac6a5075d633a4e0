//! Credentials of registries, in the files where Docker and Podman keep them.
//!
//! The programs that these files may name (`credHelpers`, `credsStore`) are not started.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::bounds::read_at_most;
use crate::document::nullable;
use crate::reference::{DEFAULT_ALIAS, DEFAULT_HOST, DEFAULT_REGISTRY, Reference};

/// Maximum size of a file, in bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// Maximum length of a password or token with its user name, below that of a request's head.
const MAX_SECRET: usize = 8 * 1024;
/// Maximum number of characters of a helper's name in errors.
const MAX_SHOWN: usize = 40;

/// Opens a file as its user trusts it.
pub type OpenFile = Arc<dyn Fn(&Path) -> io::Result<File> + Send + Sync>;

/// The files in which credentials are looked for, in this order.
#[derive(Clone)]
pub struct CredentialFiles {
    /// Files, of which those that do not exist are passed over.
    pub customary: Vec<PathBuf>,
    /// The only file, if the user named one.
    pub named: Option<PathBuf>,
    pub open: OpenFile,
}

/// An error of reading credentials. Omits all content of the file.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("cannot read the credentials in {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("expected a JSON object with credentials of at most 1 MiB in {}, found {found}", path.display())]
    Malformed { path: PathBuf, found: String },
    #[error(
        "expected `auth` of {key:?} in {} to be a name and a password, with a colon between them, in Base64",
        path.display()
    )]
    Entry { path: PathBuf, key: String },
}

/// The search for credentials of a registry without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoCredentials {
    registry: String,
    /// Files without an entry.
    read: Vec<PathBuf>,
    /// Files that do not exist.
    missing: Vec<PathBuf>,
    /// File that leaves them to a program, and its name.
    helper: Option<(PathBuf, String)>,
}

/// Credentials of a registry. They are not shown.
#[derive(Clone)]
pub(crate) struct Login {
    /// The file that has them.
    pub(crate) file: PathBuf,
    pub(crate) secret: LoginSecret,
}

#[derive(Clone)]
pub(crate) enum LoginSecret {
    /// Name, colon and password in Base64, as the scheme `Basic` sends them.
    Password(String),
    /// A token of the token server for others.
    Identity(String),
}

pub(crate) type Lookup = Result<Login, NoCredentials>;

#[derive(Deserialize)]
struct Document {
    #[serde(default, deserialize_with = "nullable")]
    auths: BTreeMap<String, Entry>,
    #[serde(default, rename = "credHelpers", deserialize_with = "nullable")]
    helpers: BTreeMap<String, String>,
    #[serde(default, rename = "credsStore", deserialize_with = "nullable")]
    store: String,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default, deserialize_with = "nullable")]
    auth: String,
    #[serde(default, rename = "identitytoken", deserialize_with = "nullable")]
    identity: String,
}

impl CredentialFiles {
    /// Returns files of which none exists.
    pub fn none() -> Self {
        Self {
            customary: Vec::new(),
            named: None,
            open: Arc::new(|_| Err(io::ErrorKind::NotFound.into())),
        }
    }

    /// Looks for credentials of an image's registry.
    ///
    /// # Errors
    /// If a file cannot be used: it may have those that are needed.
    pub(crate) fn find(&self, reference: &Reference) -> Result<Lookup, CredentialError> {
        let mut failed = NoCredentials {
            registry: reference.registry().to_owned(),
            read: Vec::new(),
            missing: Vec::new(),
            helper: None,
        };
        let paths = match &self.named {
            Some(named) => std::slice::from_ref(named),
            None => &self.customary,
        };
        for path in paths {
            let Some(document) = self.read(path)? else {
                failed.missing.push(path.clone());
                continue;
            };
            if let Some(helper) = document.helper(reference) {
                failed.helper = Some((path.clone(), helper));
                break;
            }
            if let Some(login) = document.login(path, reference)? {
                return Ok(Ok(login));
            }
            if !document.store.is_empty() && failed.helper.is_none() {
                failed.helper = Some((path.clone(), shown(&document.store)));
            }
            failed.read.push(path.clone());
        }
        Ok(Err(failed))
    }

    /// Reads a file; `None` if it is customary and does not exist.
    fn read(&self, path: &Path) -> Result<Option<Document>, CredentialError> {
        let failed = |source| CredentialError::Read {
            path: path.to_owned(),
            source,
        };
        let malformed = |found: String| CredentialError::Malformed {
            path: path.to_owned(),
            found,
        };
        let file = match (self.open)(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.named.is_none() => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let bytes = read_at_most(file, MAX_FILE).map_err(failed)?;
        let bytes = bytes.ok_or_else(|| malformed("a longer file".to_owned()))?;
        // The error's own text may quote a password.
        let at = |error: serde_json::Error| {
            malformed(format!(
                "something else in line {}, column {}",
                error.line(),
                error.column()
            ))
        };
        serde_json::from_slice(&bytes).map(Some).map_err(at)
    }
}

impl Document {
    /// Returns the name of the program that has the credentials of a registry, if the file names one for it.
    fn helper(&self, reference: &Reference) -> Option<String> {
        let names = [Some(reference.registry()), aliases(reference.registry())];
        let mut found = names
            .into_iter()
            .flatten()
            .filter_map(|name| self.helpers.get(name));
        found
            .find(|helper| !helper.is_empty())
            .map(|helper| shown(helper))
    }

    /// Returns the credentials whose key is the longest prefix of a name, else those of the registry in another
    /// spelling.
    fn login(&self, path: &Path, reference: &Reference) -> Result<Option<Login>, CredentialError> {
        let whole = format!("{}/{}", reference.registry(), reference.name());
        let shorter = whole.rmatch_indices('/').map(|(end, _)| &whole[..end]);
        let mut prefixes = std::iter::once(whole.as_str()).chain(shorter);
        let exact = prefixes.find_map(|prefix| self.auths.get_key_value(prefix));
        let spelled = || {
            let mut all = self.auths.iter();
            all.find(|(key, _)| host(key) == canonical(reference.registry()))
        };
        match exact.or_else(spelled) {
            Some((key, entry)) => entry.login(path, key),
            None => Ok(None),
        }
    }
}

impl Entry {
    /// Returns the credentials; `None` if a program has them.
    fn login(&self, path: &Path, key: &str) -> Result<Option<Login>, CredentialError> {
        let secret = match (self.identity.is_empty(), self.auth.is_empty()) {
            (false, _) if self.is_token() => LoginSecret::Identity(self.identity.clone()),
            (true, false) => {
                let password = self.password().ok_or_else(|| CredentialError::Entry {
                    path: path.to_owned(),
                    key: key.chars().take(300).collect(),
                })?;
                LoginSecret::Password(password)
            }
            (true, true) => return Ok(None),
            (false, _) => {
                return Err(CredentialError::Malformed {
                    path: path.to_owned(),
                    found: "an identity token of another form".to_owned(),
                });
            }
        };
        Ok(Some(Login {
            file: path.to_owned(),
            secret,
        }))
    }

    fn is_token(&self) -> bool {
        self.identity.len() <= MAX_SECRET && self.identity.bytes().all(|byte| byte.is_ascii_graphic())
    }

    /// Returns name and password as they are sent. Docker has padded passwords with zeros.
    fn password(&self) -> Option<String> {
        let decoded = STANDARD.decode(&self.auth).ok()?;
        let pair = String::from_utf8(decoded).ok()?;
        let pair = pair.trim_end_matches('\0');
        let (name, _) = pair.split_once(':')?;
        let is_sound = !name.is_empty() && pair.len() <= MAX_SECRET && !pair.chars().any(char::is_control);
        is_sound.then(|| STANDARD.encode(pair))
    }
}

/// Returns the host in the key of an entry, which may be a URL, in one spelling.
fn host(key: &str) -> &str {
    let stripped = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    canonical(match stripped {
        Some(rest) => rest.split('/').next().unwrap_or(rest),
        None => key,
    })
}

fn canonical(registry: &str) -> &str {
    match registry {
        DEFAULT_ALIAS | DEFAULT_HOST => DEFAULT_REGISTRY,
        other => other,
    }
}

/// Returns the key by which Docker knows the default registry.
fn aliases(registry: &str) -> Option<&'static str> {
    (registry == DEFAULT_REGISTRY).then_some("https://index.docker.io/v1/")
}

/// Returns the name of a program for an error.
fn shown(helper: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    helper.chars().filter(is_plain).take(MAX_SHOWN).collect()
}

impl NoCredentials {
    /// Returns a hint for the user.
    pub(crate) fn hint(&self) -> String {
        let registry = &self.registry;
        match self.helper {
            Some(_) => format!(
                "store them in a file of their own with `podman login --authfile FILE {registry}` or `skopeo login \
                 --authfile FILE {registry}`, and name it in REGISTRY_AUTH_FILE"
            ),
            None => format!(
                "check the name; if the image is private, store credentials with `docker login {registry}` or `podman \
                 login {registry}`, or name a file that has them in REGISTRY_AUTH_FILE"
            ),
        }
    }
}

impl fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |paths: &[PathBuf]| {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            paths.join(", ")
        };
        if let Some((path, helper)) = &self.helper {
            let path = path.display();
            return write!(
                f,
                "{path} leaves those of {} to the program docker-credential-{helper}, which is not started",
                self.registry
            );
        }
        write!(f, "found none for {}", self.registry)?;
        if !self.read.is_empty() {
            write!(f, " in {}", list(&self.read))?;
        }
        match self.missing.as_slice() {
            [] => Ok(()),
            missing => write!(f, "; not there: {}", list(missing)),
        }
    }
}

impl fmt::Debug for CredentialFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CredentialFiles");
        shown
            .field("customary", &self.customary)
            .field("named", &self.named);
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Searches files with these contents for the image of a reference.
    fn search(contents: &[&str], reference: &str) -> Result<Lookup, CredentialError> {
        let directory = tempfile::tempdir().unwrap();
        let paths = contents.iter().enumerate().map(|(number, content)| {
            let path = directory.path().join(number.to_string());
            fs::write(&path, content).unwrap();
            path
        });
        let files = CredentialFiles {
            customary: paths.collect(),
            named: None,
            open: Arc::new(|path| File::open(path)),
        };
        files.find(&reference.parse().unwrap())
    }

    /// Returns the name and password that are found.
    fn found(contents: &[&str], reference: &str) -> Option<String> {
        match search(contents, reference).unwrap().ok()?.secret {
            LoginSecret::Password(pair) => String::from_utf8(STANDARD.decode(pair).unwrap()).ok(),
            LoginSecret::Identity(token) => Some(token),
        }
    }

    fn entry(key: &str, pair: &str) -> String {
        let auth = STANDARD.encode(pair);
        format!(r#"{{"auths": {{"{key}": {{"auth": "{auth}"}}}}}}"#)
    }

    #[test]
    fn the_longest_prefix_of_the_first_file_decides() {
        let pair = |pair: &str| STANDARD.encode(pair);
        let all = format!(
            r#"{{"auths": {{"reg.test": {{"auth": "{}"}}, "reg.test/team": {{"auth": "{}"}}, "reg.test/team/app": {{"auth": "{}"}}}}}}"#,
            pair("a:1"),
            pair("b:2:x"),
            pair("c:3\0\0"),
        );
        for (reference, expected) in [
            ("reg.test/team/app:1", Some("c:3")),
            ("reg.test/team/app2", Some("b:2:x")),
            ("reg.test/team/app/more", Some("c:3")),
            ("reg.test/teams/app", Some("a:1")),
            ("reg.test:5000/team/app", None),
            ("other.reg.test/team", None),
            ("reg.test.evil.test/team", None),
        ] {
            assert_eq!(found(&[&all], reference).as_deref(), expected, "{reference}");
        }
        let (first, second) = (entry("reg.test", "first:1"), entry("reg.test/a", "second:2"));
        assert_eq!(found(&["{}", &first, &second], "reg.test/a").unwrap(), "first:1");
        let identity =
            r#"{"auths": {"reg.test": {"auth": "eDo=", "identitytoken": "t0"}}, "credHelpers": null}"#;
        assert_eq!(found(&[identity], "reg.test/a").unwrap(), "t0");
    }

    #[test]
    fn docker_spells_registries_in_several_ways() {
        for (key, reference) in [
            ("https://index.docker.io/v1/", "python"),
            ("docker.io", "python:3"),
            ("registry-1.docker.io", "team/app"),
            ("docker.io/library", "python"),
            ("https://reg.test", "reg.test/a"),
            ("http://reg.test:5000/v2/", "reg.test:5000/a"),
        ] {
            assert!(
                found(&[&entry(key, "a:b")], reference).is_some(),
                "{key} {reference}"
            );
        }
    }

    #[test]
    fn programs_are_named_and_not_started() {
        let own = r#"{"auths": {"reg.test": {"auth": "YTpi"}}, "credHelpers": {"reg.test": "own;sh"}}"#;
        let store = r#"{"auths": {"reg.test": {}}, "credsStore": "desktop"}"#;
        for (content, program) in [
            (own, "docker-credential-ownsh,"),
            (store, "docker-credential-desktop,"),
        ] {
            let failed = search(&[content], "reg.test/a").unwrap().err().unwrap();
            assert!(failed.to_string().contains(program), "{failed}");
            assert!(
                failed.hint().contains("podman login --authfile"),
                "{}",
                failed.hint()
            );
        }
        // The next file may have what the store of the first has.
        assert_eq!(
            found(&[store, &entry("reg.test", "a:b")], "reg.test/a").unwrap(),
            "a:b"
        );
        assert_eq!(found(&[own], "other.test/a"), None);
    }

    #[test]
    fn an_unusable_file_is_an_error_that_quotes_nothing() {
        let no_colon = STANDARD.encode("s3cret");
        let line = STANDARD.encode("s3cret:a\r\nHost: evil");
        let nameless = STANDARD.encode(":s3cret");
        let of = |auth: &str| format!(r#"{{"auths": {{"reg.test": {{"auth": "{auth}"}}}}}}"#);
        for content in [
            r#"{"auths": {"reg.test": {"auth": 1, "s3cret"#.to_owned(),
            r#"{"auths": {"reg.test": "s3cret"}}"#.to_owned(),
            r#"{"auths": {"reg.test": {"identitytoken": "s3cret \n"}}}"#.to_owned(),
            format!("{{}}{}", " ".repeat(MAX_FILE as usize)),
            of("s3cret"),
            of(&no_colon),
            of(&line),
            of(&nameless),
        ] {
            let error = search(&[&content], "reg.test/a").err().unwrap();
            let error = format!("{error} {error:?}");
            assert!(!error.contains("s3cret") && !error.contains(&no_colon), "{error}");
        }
    }

    #[test]
    fn a_named_file_is_the_only_one_and_must_exist() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("customary");
        fs::write(&path, entry("reg.test", "a:b")).unwrap();
        let files = |named: Option<&str>| CredentialFiles {
            customary: vec![directory.path().join("none"), path.clone()],
            named: named.map(|name| directory.path().join(name)),
            open: Arc::new(|path| File::open(path)),
        };
        let reference: Reference = "reg.test/a".parse().unwrap();
        assert!(files(None).find(&reference).unwrap().is_ok());
        let error = files(Some("named")).find(&reference).err().unwrap();
        assert!(matches!(error, CredentialError::Read { .. }), "{error}");
        fs::write(directory.path().join("named"), "{}").unwrap();
        let failed = files(Some("named")).find(&reference).unwrap().err().unwrap();
        assert!(failed.to_string().ends_with("/named"), "{failed}");
    }
}
