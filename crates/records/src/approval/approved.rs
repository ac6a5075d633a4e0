//! Persistent command approvals, in a TOML file that a person can read, edit and revoke.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringfence_policy::timestamp::rfc3339;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::{Error, Kind, MAX_TEXT};
use crate::audit::Digest;

/// Maximum file size, in bytes.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Maximum number of entries.
const MAX_ENTRIES: usize = 1_000;

/// Length of an entry's id.
const ID_LENGTH: usize = 12;

const HEADER: &str = "# Commands that run without a question: the exact text, for this scope, in this directory, with these files.\n\
                      # Remove a block to be asked again.\n";

/// The file of persistent approvals.
#[derive(Debug, Clone)]
pub struct Approved {
    path: PathBuf,
}

/// A persistently approved command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub text: String,
    /// Scope that the approval holds for.
    pub scope: String,
    /// Working directory; elsewhere the same text means something else.
    #[serde(default)]
    pub directory: String,
    /// Digest of the contents of the files that the command names; with other contents the same text means
    /// something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// Time of the approval; informational.
    #[serde(default)]
    pub since: String,
    /// Person who approved it; informational.
    #[serde(default)]
    pub by: String,
}

impl Entry {
    /// Returns the id of the entry for people: the start of a digest of the approved command.
    pub fn id(&self) -> String {
        let exact = format!("{:?}", (&self.text, &self.scope, &self.directory, &self.files));
        Digest::of(exact.as_bytes())
            .to_string()
            .chars()
            .take(ID_LENGTH)
            .collect()
    }

    fn is(&self, scope: &str, text: &str, kind: &Kind) -> bool {
        let files = kind.contents().map(|files| files.to_string());
        let same = self.directory == kind.directory() && self.files == files;
        same && self.text == text && self.scope == scope
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    command: Vec<Entry>,
}

impl Approved {
    /// Returns the file `approved.toml` in a directory; it need not exist.
    pub(super) fn at(directory: &Path) -> Self {
        Self {
            path: directory.join("approved.toml"),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all entries; none if the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or parsed as a whole, or if another user may write to it: then no entry
    /// counts.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        // A FIFO in its place must not block us.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Ok(file) => self.read(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(self.file(error)),
        }
    }

    /// Returns `true` if exactly this text is approved in this directory, with files of these contents.
    ///
    /// # Errors
    /// As for [`Approved::entries`].
    pub fn holds(&self, scope: &str, text: &str, kind: &Kind) -> Result<bool, Error> {
        let entries = self.entries()?;
        Ok(entries.iter().any(|entry| entry.is(scope, text, kind)))
    }

    /// Appends an entry after the existing content, unless it exists.
    pub(super) fn add(&self, scope: &str, text: &str, kind: &Kind, by: &str) -> Result<(), Error> {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)
            .map_err(|error| self.file(error))?;
        // Two concurrent writers must not both find room for the last entry.
        file.lock().map_err(|error| self.file(error))?;
        let entries = self.read(file.try_clone().map_err(|error| self.file(error))?)?;
        if entries.iter().any(|entry| entry.is(scope, text, kind)) {
            return Ok(());
        }
        if entries.len() >= MAX_ENTRIES {
            return Err(self.wrong(format!("it holds {MAX_ENTRIES} entries already")));
        }
        let entry = Entry {
            text: text.to_owned(),
            scope: scope.to_owned(),
            directory: kind.directory().to_owned(),
            files: kind.contents().map(|files| files.to_string()),
            since: rfc3339(SystemTime::now()),
            by: by.to_owned(),
        };
        let block = toml::to_string(&Document { command: vec![entry] })
            .map_err(|error| self.wrong(error.to_string()))?;
        let is_new = file.metadata().map_err(|error| self.file(error))?.len() == 0;
        let block = format!("{}\n{block}", if is_new { HEADER } else { "" });
        file.write_all(block.as_bytes()).map_err(|error| self.file(error))
    }

    /// Removes an entry, and keeps everything else in the file. Returns `false` if there is no such entry.
    ///
    /// # Errors
    /// As for [`Approved::entries`], or if the entry is not a block of its own, as a person may write it.
    pub fn revoke(&self, entry: &Entry) -> Result<bool, Error> {
        let opened = OpenOptions::new().read(true).write(true).open(&self.path);
        let mut file = opened.map_err(|error| self.file(error))?;
        file.lock().map_err(|error| self.file(error))?;
        let entries = self.read(file.try_clone().map_err(|error| self.file(error))?)?;
        let Some(at) = entries.iter().position(|other| other == entry) else {
            return Ok(false);
        };
        let text = std::fs::read_to_string(&self.path).map_err(|error| self.file(error))?;
        let rest = without_block(&text, at);
        let parsed = toml::from_str(&rest).map(|document: Document| document.command);
        let mut expected = entries;
        expected.remove(at);
        // An agent's text can look like the start of a block.
        if parsed.ok().as_ref() != Some(&expected) {
            return Err(self.wrong("its entries are not blocks of their own; edit it by hand".to_owned()));
        }
        file.rewind()
            .and_then(|()| file.set_len(0))
            .and_then(|()| file.write_all(rest.as_bytes()))
            .map_err(|error| self.file(error))?;
        Ok(true)
    }

    fn read(&self, file: File) -> Result<Vec<Entry>, Error> {
        let meta = file.metadata().map_err(|error| self.file(error))?;
        if !meta.is_file() {
            return Err(self.wrong("it is not a file".to_owned()));
        }
        let ours = std::fs::metadata("/proc/self").map(|own| own.uid() == meta.uid());
        if !ours.map_err(|error| self.file(error))? || meta.mode() & 0o022 != 0 {
            return Err(self.wrong("somebody else may write to it".to_owned()));
        }
        let mut text = String::new();
        file.take(MAX_FILE + 1)
            .read_to_string(&mut text)
            .map_err(|error| self.file(error))?;
        if text.len() as u64 > MAX_FILE {
            return Err(self.wrong(format!("it is longer than {MAX_FILE} bytes")));
        }
        let document: Document =
            toml::from_str(&text).map_err(|error| self.wrong(error.message().to_owned()))?;
        let fits = |entry: &Entry| (1..=MAX_TEXT).contains(&entry.text.chars().count());
        if document.command.len() > MAX_ENTRIES || !document.command.iter().all(fits) {
            return Err(self.wrong(
                "it has too many entries, or an entry without a text of a fitting length".to_owned(),
            ));
        }
        Ok(document.command)
    }

    fn file(&self, source: io::Error) -> Error {
        let path = self.path.clone();
        Error::File { path, source }
    }

    fn wrong(&self, what: String) -> Error {
        let path = self.path.clone();
        Error::Approved { path, what }
    }
}

/// Returns a document without its block number `at`.
fn without_block(text: &str, at: usize) -> String {
    let mut number = 0;
    let keeps = |line: &&str| {
        number += usize::from(line.trim() == "[[command]]");
        number != at + 1
    };
    text.split_inclusive('\n').filter(keeps).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(text: &str) -> Entry {
        Entry {
            text: text.to_owned(),
            scope: "local".to_owned(),
            directory: "/work".to_owned(),
            files: None,
            since: String::new(),
            by: String::new(),
        }
    }

    fn file(entries: &[Entry]) -> (tempfile::TempDir, Approved) {
        let dir = tempfile::tempdir().unwrap();
        let approved = Approved::at(dir.path());
        let command = entries.to_vec();
        let text = format!("# mine\n{}", toml::to_string(&Document { command }).unwrap());
        fs::write(approved.path(), text).unwrap();
        fs::set_permissions(approved.path(), fs::Permissions::from_mode(0o600)).unwrap();
        (dir, approved)
    }

    #[test]
    fn one_entry_is_revoked_and_the_rest_stays() {
        let all = ["ls -l", "touch a", "docker restart web"].map(entry);
        let (_dir, approved) = file(&all);
        assert!(approved.revoke(&all[1]).unwrap());
        assert!(!approved.revoke(&all[1]).unwrap());
        assert_eq!(approved.entries().unwrap(), [all[0].clone(), all[2].clone()]);
        assert!(
            fs::read_to_string(approved.path())
                .unwrap()
                .starts_with("# mine\n")
        );
        assert_ne!(all[0].id(), all[2].id());
    }

    #[test]
    fn a_text_that_looks_like_a_block_removes_no_other() {
        let all = ["a\n[[command]]\nb", "touch a"].map(entry);
        let (_dir, approved) = file(&all);
        assert!(approved.revoke(&all[1]).is_err());
        assert_eq!(approved.entries().unwrap(), all);
    }
}
