//! A session: files that stay, in one file of the server's disk that no name leads to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ringfence_policy::Scope;
use ringfence_sandbox::{SandboxId, rfc3339};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Directory of a program's files.
pub(crate) const DIRECTORY: &str = "/mnt/data";

/// Beginning of the names of programs' own files, which are beside theirs.
pub(crate) const PROGRAM: &str = ".main.";

/// Maximum age: as long as LibreChat believes in its files.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum number of files of one request, and of those that a program leaves.
pub(crate) const MAX_FILES: usize = 200;

/// Maximum length of a name, and of its parts.
const MAX_NAME: usize = 255;
const MAX_PARTS: usize = 10;

/// Bytes that are read at a time.
const PIECE: u64 = 256 * 1024;

/// A reference to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LibreChatFileRef")]
pub struct FileRef {
    pub id: String,
    /// Path below `/mnt/data`.
    pub name: String,
    /// Session that has it.
    pub storage_session_id: String,
    /// The same, for older clients.
    pub session_id: String,
    /// Set for a file that came with the request and was not changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inherited: bool,
}

/// A file that comes with a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "LibreChatInputFile")]
pub struct InputFile {
    pub(crate) id: String,
    /// Path below `/mnt/data`.
    pub(crate) name: String,
    /// Session that has it.
    #[serde(default)]
    storage_session_id: Option<String>,
    /// The same, of older clients.
    #[serde(default)]
    session_id: Option<String>,
}

impl InputFile {
    /// Returns the id of its session.
    pub(crate) fn session(&self) -> &str {
        let session = self.storage_session_id.as_deref();
        session.or(self.session_id.as_deref()).unwrap_or_default()
    }
}

/// A description of a file.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "LibreChatFile")]
pub struct FileInfo {
    /// `SESSION/FILE`.
    pub name: String,
    pub id: String,
    pub storage_session_id: String,
    pub session_id: String,
    /// Length in bytes.
    pub size: u64,
    /// Time at which it was stored (RFC 3339).
    #[serde(rename = "lastModified")]
    pub last_modified: String,
    /// `original-filename`, the path below `/mnt/data`.
    pub metadata: BTreeMap<&'static str, String>,
    #[serde(rename = "contentType")]
    pub content_type: &'static str,
}

/// A file of a session.
#[derive(Debug, Clone)]
pub(crate) struct StoredFile {
    pub(crate) name: String,
    pub(crate) size: u64,
    /// Offset of the content in the session's file.
    at: u64,
    stored: SystemTime,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) created: SystemTime,
    disk: Arc<Disk>,
    files: Mutex<BTreeMap<String, StoredFile>>,
}

/// The unnamed file of a session. It is there while somebody reads it, also when its session has ended.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) scope: Scope,
    file: File,
    length: AtomicU64,
}

impl Disk {
    /// Returns the bytes that it takes, or will take.
    pub(crate) fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }
}

/// A file that is read.
#[derive(Debug)]
pub struct Download {
    pub name: String,
    /// Length in bytes.
    pub size: u64,
    disk: Arc<Disk>,
    at: u64,
    left: u64,
}

/// Returns an id of the form that LibreChat takes, 21 letters and digits, which cannot be guessed.
pub(crate) fn new_id(kind: char) -> Result<String, Error> {
    Ok(format!("{kind}{}", SandboxId::random()?))
}

impl Session {
    /// Creates a session without files. Nobody can find it before it is published.
    pub(crate) fn new(scope: &Scope, disk: File) -> Result<Self, Error> {
        Ok(Self {
            id: new_id('s')?,
            created: SystemTime::now(),
            disk: Arc::new(Disk {
                scope: scope.clone(),
                file: disk,
                length: AtomicU64::new(0),
            }),
            files: Mutex::default(),
        })
    }

    /// Returns its owner.
    pub(crate) fn scope(&self) -> &Scope {
        &self.disk.scope
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, StoredFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files().is_empty()
    }

    pub(crate) fn is_old(&self) -> bool {
        self.created.elapsed().is_ok_and(|age| age > LIFETIME)
    }

    /// Returns the file of the session.
    pub(crate) fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Stores a file in a reserved place, and returns its id. Blocks on the disk.
    pub(crate) fn store(&self, name: &str, bytes: &[u8], at: u64) -> Result<String, Error> {
        self.disk.file.write_all_at(bytes, at)?;
        self.add(name, at, bytes.len() as u64)
    }

    /// Returns the place of bytes that are about to be written, for which [`Sessions::reserve`] has found room.
    ///
    /// [`Sessions::reserve`]: crate::sessions::Sessions::reserve
    pub(crate) fn reserve(&self, size: u64) -> u64 {
        self.disk.length.fetch_add(size, Ordering::Relaxed)
    }

    /// Writes bytes to a reserved place.
    pub(crate) async fn write(&self, bytes: Vec<u8>, at: u64) -> Result<(), Error> {
        let disk = Arc::clone(&self.disk);
        Ok(blocking(move || disk.file.write_all_at(&bytes, at)).await?)
    }

    /// Frees everything from the newest reserved place on, which nothing was added for.
    pub(crate) async fn give_back(&self, at: u64) -> Result<(), Error> {
        let disk = Arc::clone(&self.disk);
        Ok(blocking(move || {
            disk.file.set_len(at)?;
            disk.length.store(at, Ordering::Relaxed);
            io::Result::Ok(())
        })
        .await?)
    }

    /// Adds a file that was written, and returns its id.
    pub(crate) fn add(&self, name: &str, at: u64, size: u64) -> Result<String, Error> {
        let id = new_id('f')?;
        let file = StoredFile {
            name: name.to_owned(),
            size,
            at,
            stored: SystemTime::now(),
        };
        self.files().insert(id.clone(), file);
        Ok(id)
    }

    /// Opens a file.
    pub(crate) fn open(&self, file: &str) -> Result<Download, Error> {
        let found = self.find(file)?;
        Ok(Download {
            name: found.name,
            size: found.size,
            disk: Arc::clone(&self.disk),
            at: found.at,
            left: found.size,
        })
    }

    fn find(&self, file: &str) -> Result<StoredFile, Error> {
        let found = self.files().get(file).cloned();
        found.ok_or_else(|| Error::NoFile(shown(file)))
    }

    /// Removes a file. Its bytes go with the session.
    pub(crate) fn remove(&self, file: &str) -> Result<(), Error> {
        let removed = self.files().remove(file);
        removed.map(drop).ok_or_else(|| Error::NoFile(shown(file)))
    }

    pub(crate) fn reference(&self, id: String, name: &str, inherited: bool) -> FileRef {
        FileRef {
            id,
            name: name.to_owned(),
            storage_session_id: self.id.clone(),
            session_id: self.id.clone(),
            inherited,
        }
    }

    pub(crate) fn info(&self, file: &str) -> Result<FileInfo, Error> {
        self.find(file).map(|found| self.describe(file, &found))
    }

    pub(crate) fn list(&self) -> Vec<FileInfo> {
        let files = self.files();
        let files = files.iter();
        files.map(|(id, file)| self.describe(id, file)).collect()
    }

    fn describe(&self, id: &str, file: &StoredFile) -> FileInfo {
        FileInfo {
            name: format!("{}/{id}", self.id),
            id: id.to_owned(),
            storage_session_id: self.id.clone(),
            session_id: self.id.clone(),
            size: file.size,
            last_modified: rfc3339(file.stored),
            metadata: BTreeMap::from([("original-filename", file.name.clone())]),
            content_type: "application/octet-stream",
        }
    }
}

impl Download {
    /// Returns the next bytes; `None` at the end.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let (disk, at, length) = (Arc::clone(&self.disk), self.at, self.left.min(PIECE));
        if length == 0 {
            return Ok(None);
        }
        let read = blocking(move || {
            let mut piece = vec![0; usize::try_from(length).unwrap_or_default()];
            disk.file.read_exact_at(&mut piece, at).map(|()| piece)
        });
        let piece = read.await?;
        self.at += length;
        self.left -= length;
        Ok(Some(piece))
    }
}

/// Acts on the disk beside the threads that serve.
pub(crate) async fn blocking<T: Send + 'static, E: From<io::Error> + Send + 'static>(
    act: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let done = tokio::task::spawn_blocking(act).await;
    done.map_err(|error| E::from(io::Error::other(error)))?
}

/// Returns a name that leads nowhere but below the directory of files. Whatever it is, the sandbox's own rights hold.
pub(crate) fn checked(name: &str) -> Result<&str, Error> {
    let relative = name.strip_prefix("/mnt/data/").unwrap_or(name);
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let is_name = relative.len() <= MAX_NAME
        && relative.split('/').all(is_plain)
        && relative.split('/').count() <= MAX_PARTS
        && !relative.contains(|character: char| character.is_control() || character == '\\')
        && !relative.starts_with(PROGRAM);
    is_name
        .then_some(relative)
        .ok_or_else(|| Error::Name(shown(name)))
}

/// Returns the beginning of a client's text.
pub(crate) fn shown(text: &str) -> String {
    text.escape_debug().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        for (name, expected) in [
            ("a.csv", "a.csv"),
            ("pptx/a b.md", "pptx/a b.md"),
            ("/mnt/data/a", "a"),
            ("..a", "..a"),
        ] {
            assert_eq!(checked(name).unwrap(), expected);
        }
        let (long, deep) = ("a".repeat(256), "a/".repeat(10) + "a");
        for wrong in [
            "",
            "/etc/passwd",
            "../a",
            "a/../b",
            "a/..",
            "a//b",
            "a/",
            "./a",
            "a\nb",
            "a\\b",
            ".main.py",
            &long,
            &deep,
        ] {
            assert!(checked(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn files_lie_one_behind_the_other() {
        let disk = tempfile::tempfile().unwrap();
        let session = Session::new(&Scope::local(), disk).unwrap();
        let first = session.store("a", b"one", session.reserve(3)).unwrap();
        let second = session.store("b/c", b"second", session.reserve(6)).unwrap();
        for (id, name, expected) in [(&first, "a", &b"one"[..]), (&second, "b/c", b"second")] {
            let mut download = session.open(id).unwrap();
            let content = download.next().await.unwrap().unwrap();
            assert_eq!((&*download.name, content), (name, expected.to_vec()));
            assert!(download.next().await.unwrap().is_none());
        }
        assert_eq!(
            (first.len(), session.disk().length(), session.list().len()),
            (21, 9, 2)
        );
        session.give_back(session.reserve(4)).await.unwrap();
        assert_eq!(session.disk().length(), 9);
        session.remove(&first).unwrap();
        assert!(session.open(&first).is_err() && session.info(&second).is_ok());
    }

    #[tokio::test]
    async fn a_full_disk_is_no_room() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let session = Session::new(&Scope::local(), full).unwrap();
        let stored = session.store("a", b"one", 0);
        let written = session.write(b"one".to_vec(), 0).await;
        assert!(
            matches!((&stored, &written), (Err(Error::NoSpace), Err(Error::NoSpace))),
            "{stored:?} {written:?}"
        );
        assert!(session.is_empty());
    }
}
