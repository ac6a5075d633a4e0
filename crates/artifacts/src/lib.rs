//! Artifacts: records of runs, one private file each, written atomically.
#![forbid(unsafe_code)]

mod retention;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

pub use ringfence_policy::StorePolicy;
use ringfence_policy::{ExecutionResult, Language, Outcome, Scope, timestamp};
use ringfence_streams::output;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

pub use retention::Keep;
use retention::StoredRecord;
use ringfence_network::redact::{Redactor, is_secret_name};

/// Maximum length of a record that is read. A record has bounded output and the code.
const MAX_RECORD: u64 = 64 * 1024 * 1024;

/// Maximum number of records with the same name, distinguished by a suffix: more in one millisecond is a bug.
const MAX_SAME_NAME: u32 = 100;

/// A run to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    pub scope: &'a Scope,
    /// Source text of the program.
    pub code: &'a str,
    pub language: Language,
    /// Time of the request.
    pub started: SystemTime,
    pub result: &'a ExecutionResult,
    /// Name of the program.
    pub name: &'a str,
    pub args: &'a [String],
    /// Environment variables set for it.
    pub env: &'a [(String, String)],
    /// Removes credentials from all of these.
    pub redactor: &'a Redactor,
}

/// The content of an artifact file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stored {
    pub code: String,
    pub language: Language,
    /// Time of the request, in UTC.
    pub timestamp: String,
    pub result: ExecutionResult,
    metadata: Metadata,
}

impl Stored {
    /// Returns `true` if it is known to be a scope's: names have but a short mark of it. Records of older versions are nobody's.
    pub fn is_of(&self, scope: &Scope) -> bool {
        self.metadata.scope.as_deref() == Some(scope.as_str())
    }
}

/// Fields beside code and result.
#[derive(Debug, Serialize, Deserialize)]
struct Metadata {
    #[serde(default)]
    scope: Option<String>,
    name: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    version: String,
}

/// An artifact in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// File name, without directory and extension.
    pub name: String,
    /// Length of the file.
    pub bytes: u64,
    /// Summary, or `None` if the file is not a readable record.
    pub summary: Option<Summary>,
}

/// A summary of a readable record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Time of the request, in UTC.
    pub timestamp: String,
    pub language: Language,
    pub outcome: Outcome,
    pub exit_code: i32,
}

/// An error of writing or reading artifacts.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file system operation failed.
    #[error("cannot {step} `{path}`")]
    File {
        /// Failed operation.
        step: &'static str,
        /// File or directory.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The record cannot be serialized.
    #[error("cannot encode the artifact")]
    Encode(#[source] serde_json::Error),
    /// The text is not a valid artifact name.
    #[error("`{0}` is not the name of an artifact")]
    Name(String),
    /// No artifact has this name.
    #[error("no artifact is called `{0}`")]
    NotFound(String),
    /// Several artifacts' names begin like this.
    #[error("`{prefix}` matches {count} artifacts; write more of the name")]
    Ambiguous {
        prefix: String,
        /// Number of matches.
        count: usize,
    },
    /// The file is longer than a record may be.
    #[error("`{0}` is too long for an artifact")]
    TooLong(PathBuf),
}

/// The directory of artifacts.
#[derive(Debug, Clone)]
pub struct Store {
    executions: PathBuf,
    keep: Keep,
}

impl Store {
    /// Returns the store below `dir`, with these retention limits; nothing is created before the first
    /// record.
    pub fn new(dir: &Path, keep: Keep) -> Self {
        Self {
            executions: dir.join("executions"),
            keep,
        }
    }

    /// Records a run if `policy` wants it. Returns the path of the record.
    ///
    /// # Errors
    /// If the record cannot be written; no part of it is left then.
    pub fn store(&self, policy: StorePolicy, record: &Record<'_>) -> Result<Option<PathBuf>, Error> {
        if !policy.wants(record.result) {
            return Ok(None);
        }
        self.make_directory()?;
        let stored = redacted(record);
        let content = serde_json::to_vec_pretty(&stored).map_err(Error::Encode)?;
        let name = format!(
            "{}_{:012x}",
            timestamp::compact(&stored.timestamp),
            hash(&content)
        );
        let path = self.write(&(name + &retention::tag(record.scope)), &content)?;
        self.sweep(Some(&path));
        Ok(Some(path))
    }

    /// Lists the newest records, at most `limit`; none if there is no directory.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self, limit: usize) -> Result<Vec<Entry>, Error> {
        let names = self.names()?;
        Ok(names
            .into_iter()
            .rev()
            .take(limit)
            .map(|name| self.entry(name))
            .collect())
    }

    /// Returns the content of the record whose name is `name`, or the only one whose name begins with it.
    ///
    /// # Errors
    /// If no or several records match, or the record cannot be read.
    pub fn show(&self, name: &str) -> Result<String, Error> {
        let prefix = name.strip_suffix(".json").unwrap_or(name);
        if !is_name(prefix) {
            return Err(Error::Name(name.to_owned()));
        }
        let names = self.names()?;
        let mut matching = names.iter().filter(|name| name.starts_with(prefix));
        let exact = names.iter().find(|name| *name == prefix);
        let found = match (exact, matching.next(), matching.count()) {
            (Some(name), ..) | (None, Some(name), 0) => name,
            (None, Some(_), more) => {
                return Err(Error::Ambiguous {
                    prefix: name.to_owned(),
                    count: more + 1,
                });
            }
            (None, None, _) => return Err(Error::NotFound(name.to_owned())),
        };
        self.read(found)
    }

    /// Returns the names of all records, or of those that have the mark of a scope, newest first.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn newest(&self, scope: Option<&Scope>) -> Result<Vec<String>, Error> {
        let mut names = self.names()?;
        names.retain(|name| scope.is_none_or(|scope| retention::is_of(name, scope)));
        names.reverse();
        Ok(names)
    }

    /// Returns the record of this name, with its length; `None` if there is none that is readable.
    pub fn open(&self, name: &str) -> Option<(Stored, usize)> {
        let text = is_name(name).then(|| self.read(name).ok()).flatten()?;
        Some((serde_json::from_str(&text).ok()?, text.len()))
    }

    fn make_directory(&self) -> Result<(), Error> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.executions)
            .map_err(failed("make", &self.executions))
    }

    /// Writes a temporary file and links it to its name, so that no reader sees a partial record and none is
    /// replaced.
    fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf, Error> {
        // Two threads may record equal runs in one millisecond.
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let unique = format!(
            "{}-{}",
            std::process::id(),
            WRITES.fetch_add(1, Ordering::Relaxed)
        );
        let temporary = Temporary::create(self.executions.join(format!(".{name}.{unique}.tmp")))?;
        temporary.fill(content)?;
        for number in 0..MAX_SAME_NAME {
            let suffix = if number == 0 {
                String::new()
            } else {
                format!("-{number}")
            };
            let path = self.executions.join(format!("{name}{suffix}.json"));
            // Unlike a rename, a hard link never replaces an existing file or symbolic link.
            match fs::hard_link(&temporary.path, &path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("write", &path)(error)),
            }
        }
        let path = self.executions.join(format!("{name}.json"));
        Err(failed("write", &path)(io::ErrorKind::AlreadyExists.into()))
    }

    /// Removes records that are too old, and surplus ones other than `newest`. Failures are ignored: the next run tries again.
    pub fn sweep(&self, newest: Option<&Path>) {
        let Ok(mut names) = self.names() else { return };
        let young = names.split_off(self.keep.expired(&names, SystemTime::now()));
        let bytes = |name: &String| fs::symlink_metadata(self.path(name)).map_or(0, |meta| meta.len());
        let kept = young.iter().map(|name| StoredRecord {
            name,
            bytes: bytes(name),
        });
        let surplus = retention::surplus(kept.collect(), self.keep);
        for name in names.iter().map(String::as_str).chain(surplus) {
            let path = self.path(name);
            if Some(path.as_path()) != newest {
                _ = fs::remove_file(path);
            }
        }
    }

    /// Removes all records of a scope other than the local one, whose records have no mark.
    ///
    /// # Errors
    /// If the records cannot be listed, or one cannot be removed.
    pub fn remove_of(&self, scope: &Scope) -> Result<(), Error> {
        let names = self.names()?;
        for name in names.iter().filter(|name| retention::is_of(name, scope)) {
            let path = self.path(name);
            // Another process may have removed it.
            if let Err(error) = fs::remove_file(&path)
                && path.exists()
            {
                return Err(failed("remove", &path)(error));
            }
        }
        Ok(())
    }

    /// Returns all names, oldest first.
    fn names(&self) -> Result<Vec<String>, Error> {
        let entries = match fs::read_dir(&self.executions) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("list", &self.executions)(error)),
        };
        let name = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".json")?.to_owned());
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(name)
            .filter(|name| is_name(name))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn entry(&self, name: String) -> Entry {
        let bytes = fs::symlink_metadata(self.path(&name)).map_or(0, |metadata| metadata.len());
        let text = self.read(&name).ok();
        let stored = text.and_then(|text| serde_json::from_str::<Stored>(&text).ok());
        let summary = stored.map(|stored| Summary {
            timestamp: stored.timestamp,
            language: stored.language,
            outcome: stored.result.meta.outcome,
            exit_code: stored.result.exit_code,
        });
        Entry { name, bytes, summary }
    }

    fn read(&self, name: &str) -> Result<String, Error> {
        let path = self.path(name);
        // A FIFO in its place must not block, nor a symbolic link lead elsewhere.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&path)
            .map_err(failed("open", &path))?;
        let mut bytes = Vec::new();
        file.take(MAX_RECORD + 1)
            .read_to_end(&mut bytes)
            .map_err(failed("read", &path))?;
        if bytes.len() as u64 > MAX_RECORD {
            return Err(Error::TooLong(path));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.executions.join(format!("{name}.json"))
    }
}

/// A file that is unlinked on drop; its content stays if it was linked elsewhere before.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    fn create(path: PathBuf) -> Result<Self, Error> {
        // A leftover of a crash may have this name; if it cannot be removed, the next call fails.
        _ = fs::remove_file(&path);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match file {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(failed("create", &path)(error)),
        }
    }

    fn fill(&self, content: &[u8]) -> Result<(), Error> {
        (&self.file)
            .write_all(content)
            .map_err(failed("write", &self.path))?;
        self.file.sync_all().map_err(failed("write", &self.path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

fn redacted(record: &Record<'_>) -> Stored {
    let redactor = record.redactor.with_environment(record.env.iter().cloned());
    let clean = |text: &str| redactor.redact(text).into_owned();
    let mut result = record.result.clone();
    result.stdout = redactor
        .redact_cut(&result.stdout, &output::gaps(&result.stdout))
        .into_owned();
    result.stderr = redactor
        .redact_cut(&result.stderr, &stderr_gaps(&result))
        .into_owned();
    for text in &mut result.meta.warnings {
        *text = clean(text);
    }
    for rich in &mut result.meta.results {
        rich.keep_text();
        for value in rich.data.values_mut() {
            *value = clean(value.as_str().unwrap_or_default()).into();
        }
    }
    if let Some(session) = &mut result.meta.session {
        session.value = session.value.as_deref().map(clean);
    }
    for file in &mut result.meta.output_files {
        file.path = clean(&file.path);
    }
    let variable = |(name, value): &(String, String)| {
        let value = if is_secret_name(name) {
            format!("[redacted:{name}]")
        } else {
            clean(value)
        };
        (name.clone(), value)
    };
    Stored {
        code: clean(record.code),
        language: record.language,
        timestamp: timestamp::rfc3339(record.started),
        result,
        metadata: Metadata {
            scope: Some(record.scope.as_str().to_owned()),
            name: clean(record.name),
            args: record.args.iter().map(|arg| clean(arg)).collect(),
            env: record.env.iter().map(variable).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
    }
}

/// Returns the ranges of standard error that the program did not write: notices of omitted output, and our
/// last line about its kill.
fn stderr_gaps(result: &ExecutionResult) -> Vec<Range<usize>> {
    let text = &result.stderr;
    let mut gaps = output::gaps(text);
    let killed = !matches!(
        result.meta.outcome,
        Outcome::Exited | Outcome::Signalled | Outcome::Blocked
    );
    let end = gaps.last().map_or(0, |gap| gap.end);
    if killed && let Some(line) = text.strip_suffix('\n') {
        gaps.push(line.rfind('\n').unwrap_or(0).max(end)..text.len());
    }
    gaps
}

/// Distinguishes records of one millisecond; not a defence against collisions on purpose. 48 bits, twelve
/// digits.
fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish() >> 16
}

/// Returns `true` for a file name of the form that records have. It cannot be outside the directory or
/// hidden.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with('.')
        && !name.contains("..")
        && name.bytes().all(plain)
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::File { step, path, source }
}

#[cfg(test)]
mod tests;
