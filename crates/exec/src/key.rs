//! Keys of servers, read from the environment or from files that a person names.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringfence_network::secret::{KeyError, MAX_KEY, Secret};

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
                let reading = tokio::task::spawn_blocking(move || read_file(&path, &paths));
                let broken = |_| KeyError::Unreadable(io::ErrorKind::Other);
                reading.await.map_err(broken)?
            }
            Self::Needless => Secret::new(NONE),
            Self::Missing(variable) => Err(KeyError::Missing(variable.clone())),
        }
    }
}

/// Reads the key from a file that only its owner may access.
///
/// # Errors
/// If the file is unreadable, reached by a link that a program may have made, open to others, or contains
/// no valid key.
pub fn read_file(path: &Path, paths: &NamedPaths) -> Result<Secret, KeyError> {
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
    Secret::new(&text)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KEY: &str = "sk-ant-0123456789";

    #[test]
    fn a_file_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, format!("{KEY}\n")).unwrap();
        for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                read_file(&file, &NamedPaths::default()),
                Err(KeyError::Open(mode))
            );
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_file(&file, &NamedPaths::default()), Secret::new(KEY));
        }
    }

    #[test]
    fn what_is_no_file_with_a_key_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let missing = read_file(&folder.path().join("key"), &NamedPaths::default());
        assert_eq!(missing, Err(KeyError::Unreadable(io::ErrorKind::NotFound)));
        let directory = read_file(folder.path(), &NamedPaths::default());
        assert_eq!(directory, Err(KeyError::Unreadable(io::ErrorKind::InvalidInput)));
        let long = folder.path().join("long");
        fs::write(&long, "k".repeat(1 << 20)).unwrap();
        fs::set_permissions(&long, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_file(&long, &NamedPaths::default()), Err(KeyError::Malformed));
    }
}
