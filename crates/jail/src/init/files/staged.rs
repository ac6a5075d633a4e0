//! Entries under construction, which get their name when they are complete.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};

use super::directory::Directory;
use super::remove::remove_entry;

/// Maximum number of temporary names to try. Processes that were killed for lack of memory, or by a program of the sandbox,
/// may have had the same process id.
const MAX_NAMES: u32 = 1_000;

/// Beginning of temporary names; digits and hyphens follow.
pub(super) const PREFIX: &str = ".ringfence-";

/// Returns `true` for a name that entries under construction have.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    rest.is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    })
}

/// An entry under a temporary name; removed when dropped unfinished.
#[derive(Debug)]
pub(super) struct Staged<'a> {
    parent: &'a Directory,
    /// `None` once it has its final name.
    name: Option<OsString>,
}

impl<'a> Staged<'a> {
    /// Creates an entry under a free name.
    pub(super) fn create<T>(
        parent: &'a Directory,
        make: impl Fn(&OsStr) -> io::Result<T>,
    ) -> io::Result<(Self, T)> {
        for number in 0..MAX_NAMES {
            let name = OsString::from(format!("{PREFIX}{}-{number}", std::process::id()));
            match make(&name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                // The directory is open, so it is not what is missing.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let message =
                        "no file can be made in this directory, as in those of /proc or one that was removed";
                    return Err(io::Error::new(ErrorKind::InvalidInput, message));
                }
                made => {
                    return made.map(|made| {
                        (
                            Self {
                                parent,
                                name: Some(name),
                            },
                            made,
                        )
                    });
                }
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Returns the temporary name.
    pub(super) fn name(&self) -> &OsStr {
        self.name.as_deref().unwrap_or_default()
    }

    /// Gives the entry its name, in the same directory.
    pub(super) fn finish(mut self, name: &OsStr) -> io::Result<()> {
        if let Some(staged) = &self.name {
            self.parent.rename(staged, self.parent, name)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = remove_entry(self.parent, name);
        }
    }
}
