//! Persistent command approvals, in a TOML file that a person can read, edit and revoke.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringfence_exec::clock::rfc3339;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::{Error, Kind, MAX_TEXT};

/// Maximum file size, in bytes.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// Maximum number of entries.
const MAX_ENTRIES: usize = 1_000;

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

    /// Appends an entry after the existing content, unless it is there already.
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

    fn read(&self, file: File) -> Result<Vec<Entry>, Error> {
        let meta = file.metadata().map_err(|error| self.file(error))?;
        if !meta.is_file() {
            return Err(self.wrong("it is no file".to_owned()));
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
