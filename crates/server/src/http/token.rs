//! The secret that opens the HTTP interface, and the file that keeps it.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::rand::{GetRandomFlags, getrandom};

/// 256 bits that nobody can guess, in hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(String);

const BYTES: usize = 32;

impl Secret {
    /// A new one.
    pub(super) fn random() -> Result<Self, TokenError> {
        let mut bytes = [0; BYTES];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty())
            .map_err(|errno| TokenError::Random(errno.into()))?;
        if filled != BYTES {
            return Err(TokenError::Random(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    fn parse(text: &str) -> Option<Self> {
        let fits =
            text.len() == 2 * BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `given` is this secret, in a time that does not tell how much of it is right.
    pub(super) fn is(&self, given: &str) -> bool {
        if given.len() != self.0.len() {
            return false;
        }
        let pairs = self.0.bytes().zip(given.bytes());
        let difference = pairs.fold(0, |difference, (ours, theirs)| {
            black_box(difference | (ours ^ theirs))
        });
        black_box(difference) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The secret that opens the HTTP interface of every engine of a state directory.
#[derive(Debug, Clone)]
pub struct Token(pub(super) Secret);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Its file.
    #[error("cannot use the console's token {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its file is not one that only we could have written and read.
    #[error("the console's token {path} cannot be trusted: {why}")]
    Untrusted {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The kernel gave no random bytes.
    #[error("no random bytes for the console")]
    Random(#[source] io::Error),
}

impl TokenError {
    /// What the reader can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } => "check the state directory, or set `engine.console = false`",
            Self::Untrusted { .. } => "remove the file; the next `ringfence serve` makes another token",
            Self::Random(_) => "report this as a defect",
        }
    }
}

impl Token {
    /// The token in the file at `path`, which is made if it is not there. The caller must hold the engine's lock.
    ///
    /// # Errors
    /// If the file cannot be made or read, or others could have read it.
    pub fn keep(path: &Path) -> Result<Self, TokenError> {
        match Self::read(path) {
            Err(TokenError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let token = Self(Secret::random()?);
                token.write(path).map_err(failed(path))?;
                Ok(token)
            }
            other => other,
        }
    }

    /// The token in the file at `path`.
    ///
    /// # Errors
    /// If the file cannot be read, or others could have read it.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = file.map_err(failed(path))?;
        let meta = file.metadata().map_err(failed(path))?;
        let untrusted = |why| TokenError::Untrusted {
            path: path.to_owned(),
            why,
        };
        // `/proc/self` belongs to the user that we are.
        let ours = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == meta.uid());
        if !meta.is_file() || !ours {
            return Err(untrusted("it is not a file of ours"));
        }
        if meta.mode() & 0o077 != 0 {
            return Err(untrusted("others may read it"));
        }
        let mut text = String::new();
        let longest = 2 * BYTES as u64 + 1;
        file.take(longest)
            .read_to_string(&mut text)
            .map_err(failed(path))?;
        let secret = Secret::parse(text.trim_end()).ok_or_else(|| untrusted("it holds no token"))?;
        Ok(Self(secret))
    }

    /// As it is written into a link.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whole or not at all: an engine that is killed meanwhile leaves no half of a token.
    fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        writeln!(file, "{}", self.as_str())?;
        file.sync_all()?;
        fs::rename(&new, path)
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> TokenError {
    move |source| TokenError::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn it_is_made_once_for_us_alone_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console.token");
        assert!(matches!(Token::read(&path), Err(TokenError::File { .. })));
        let made = Token::keep(&path).unwrap();
        assert_eq!(made.as_str().len(), 64);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(Token::keep(&path).unwrap().0, made.0);
        assert_eq!(Token::read(&path).unwrap().0, made.0);
        fs::remove_file(&path).unwrap();
        assert_ne!(Token::keep(&path).unwrap().0, made.0);
        assert_eq!(format!("{made:?}"), "Token(Secret)");
    }

    #[test]
    fn a_file_that_others_could_have_read_or_written_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console.token");
        let token = Token::keep(&path).unwrap();
        let refused = |path: &Path| matches!(Token::keep(path), Err(TokenError::Untrusted { .. }));
        assert!(!refused(&path));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(refused(&path));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!refused(&path));
        for text in [
            "",
            "short",
            &token.as_str().to_uppercase(),
            &format!("{}0", token.as_str()),
        ] {
            fs::write(&path, text).unwrap();
            assert!(refused(&path), "{text}");
        }
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(Token::keep(&link), Err(TokenError::File { .. })));
        assert!(refused(dir.path()));
    }

    #[test]
    fn only_the_whole_secret_is_the_secret() {
        let secret = Secret::random().unwrap();
        let text = secret.as_str();
        assert!(secret.is(text));
        assert_ne!(Secret::random().unwrap(), secret);
        for other in [
            "",
            &text[..63],
            &format!("{text}0"),
            &text.replace(&text[63..], "g"),
            &"0".repeat(64),
        ] {
            assert!(!secret.is(other), "{other}");
        }
    }
}
