//! Secrets: the key of a server, which debug output does not show.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::trust::{NamedPathError, NamedPaths};

/// The source of a key.
#[derive(Debug, Clone)]
pub enum Key {
    /// The environment.
    Known(Secret),
    /// A file, found by these rules and read for each request, as keys are rotated.
    File(PathBuf, NamedPaths),
    /// None: the server needs no key.
    Needless,
    /// An environment variable that is not set.
    Missing(String),
}

/// A secret that is redacted in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The reason why a key is not available. Omits everything that was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The variable is not set.
    #[error("there is no key for it: the variable `{0}` is not set")]
    Missing(String),
    /// The file cannot be read.
    #[error("the file of its key cannot be read: {0}")]
    Unreadable(io::ErrorKind),
    /// A program may have made a link on the way to the file.
    #[error("the file of its key is reached by a link that a program may have made")]
    Planted,
    /// Other users have permissions on the file.
    #[error("the file of its key is open to others (mode {0:03o})")]
    Open(u32),
    /// The content is no valid key.
    #[error("its key is empty, too long, or holds characters that no key has")]
    Malformed,
}

impl KeyError {
    /// Returns a hint for the user.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Missing(_) => {
                "set the variable, or name a file with the key in `hostExecution.preValidation.apiKeyFile`"
            }
            Self::Unreadable(_) => {
                "name a file that you can read in `hostExecution.preValidation.apiKeyFile`"
            }
            Self::Planted => "look at what the link leads to, and name that if you trust it",
            Self::Open(_) => {
                "take the others' rights away with `chmod 600`, and have the key replaced if they could read it"
            }
            Self::Malformed => {
                "the key is one word of letters, digits and signs, and the file holds nothing else"
            }
        }
    }
}

/// Length limit, far above any provider's keys.
const MAX_KEY: usize = 1024;

/// The key for servers that need none: the formats require one.
const NONE: &str = "none";

impl Key {
    /// Returns the current key.
    ///
    /// # Errors
    /// If it is not available.
    pub async fn read(&self) -> Result<Secret, KeyError> {
        match self {
            Self::Known(secret) => Ok(secret.clone()),
            Self::File(path, paths) => {
                let (path, paths) = (path.clone(), paths.clone());
                let reading = tokio::task::spawn_blocking(move || Secret::of_file(&path, &paths));
                let broken = |_| KeyError::Unreadable(io::ErrorKind::Other);
                reading.await.map_err(broken)?
            }
            Self::Needless => Ok(Secret(NONE.to_owned())),
            Self::Missing(variable) => Err(KeyError::Missing(variable.clone())),
        }
    }
}

impl Secret {
    /// Creates a secret from a text, without surrounding white space.
    ///
    /// # Errors
    /// If the text is no valid key.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        let key = text.trim();
        let fits = (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(key.to_owned())).ok_or(KeyError::Malformed)
    }

    /// Reads the key from a file that only its owner may access.
    ///
    /// # Errors
    /// If the file is unreadable, reached by a link that a program may have made, open to others, or contains
    /// no valid key.
    pub fn of_file(path: &Path, paths: &NamedPaths) -> Result<Self, KeyError> {
        let unreadable = |error: io::Error| KeyError::Unreadable(error.kind());
        let (file, _) = paths.open_file(path).map_err(|error| match error {
            NamedPathError::Planted { .. } => KeyError::Planted,
            NamedPathError::Unusable(_) | NamedPathError::Unknown(_) => KeyError::Unreadable(error.kind()),
        })?;
        let found = file.metadata().map_err(unreadable)?;
        if found.mode() & 0o077 != 0 {
            return Err(KeyError::Open(found.mode() & 0o777));
        }
        let mut text = String::new();
        let limit = MAX_KEY as u64 + 16;
        file.take(limit).read_to_string(&mut text).map_err(unreadable)?;
        Self::new(&text)
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KEY: &str = "sk-ant-0123456789";

    #[test]
    fn it_is_shown_nowhere() {
        let known = Key::Known(Secret::new(KEY).unwrap());
        assert_eq!(format!("{known:?}"), "Known(Secret)");
        for wrong in ["", " \n", "two words", "a\nb", "k\u{e9}y", &"k".repeat(1025)] {
            assert_eq!(Secret::new(wrong), Err(KeyError::Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, format!("{KEY}\n")).unwrap();
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                Secret::of_file(&file, &NamedPaths::default()),
                Err(KeyError::Open(mode))
            );
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(Secret::of_file(&file, &NamedPaths::default()), Secret::new(KEY));
        }
    }

    #[test]
    fn what_is_no_file_with_a_key_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Secret::of_file(&folder.path().join("key"), &NamedPaths::default());
        assert_eq!(missing, Err(KeyError::Unreadable(io::ErrorKind::NotFound)));
        let directory = Secret::of_file(folder.path(), &NamedPaths::default());
        assert_eq!(directory, Err(KeyError::Unreadable(io::ErrorKind::InvalidInput)));
        let long = folder.path().join("long");
        fs::write(&long, "k".repeat(1 << 20)).unwrap();
        fs::set_permissions(&long, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(
            Secret::of_file(&long, &NamedPaths::default()),
            Err(KeyError::Malformed)
        );
    }
}
