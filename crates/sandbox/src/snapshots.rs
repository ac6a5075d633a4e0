//! Snapshots: stored files of sandboxes, from which other sandboxes are created.
//!
//! A snapshot is two files of the server in one directory: an archive, which the server never unpacks, and a
//! record of its owner and size. The record is written last. Archives without a record are removed when the
//! server starts.

mod tag;
mod tags;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use ringfence_exec::clock::rfc3339;
use ringfence_exec::local::O_NOFOLLOW;
use ringfence_policy::{Bytes, Cpus, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::error::Error;
use super::id::{SandboxId, SandboxName};
use super::lock::lock;
use super::sandbox::Sandbox;
use super::spec::{ImageName, SandboxFence, SandboxLimits};

pub use tag::{Tag, new_tags};

/// Version of the records. One that names no image is of the first version, one without the changes of a root of the second, one
/// whose tags are the default one of the third, and one without a user of the fourth: older servers know them. They would put the files
/// of the others on another root, or without their owners, take a build of a name for another one, or run a user's programs as root.
const VERSION: u32 = 5;
const WITHOUT_USER: u32 = 4;
const WITHOUT_TAGS: u32 = 3;
const WITHOUT_ROOT: u32 = 2;
const WITHOUT_IMAGE: u32 = 1;
/// Maximum length of a record.
const MAX_RECORD: u64 = 64 * 1024;
/// Snapshots of a server, and of one owner.
const MAX: usize = 1024;
const MAX_OF_SCOPE: usize = 64;
/// Bytes of all archives of a server, and of one owner.
const MAX_BYTES: Bytes = Bytes::mib(32 * 1024);
const MAX_BYTES_OF_SCOPE: Bytes = Bytes::mib(8 * 1024);
/// Pieces on their way to or from a file, of at most 64 KiB.
const UNWRITTEN: usize = 8;
const PIECE: usize = 64 * 1024;

/// A description of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotInfo {
    pub id: SandboxId,
    pub name: Option<SandboxName>,
    /// Id of the sandbox that it was made of.
    pub sandbox: SandboxId,
    /// Time of its creation (RFC 3339).
    pub created_at: String,
    /// Length of the archive, in bytes.
    pub size: u64,
    /// Limits of that sandbox, in bytes: a sandbox made of the snapshot has them unless it asks for others.
    pub memory_limit: u64,
    pub disk_limit: u64,
    /// Processor time of that sandbox, in cores, which a sandbox made of the snapshot has unless it asks for other ones. Records of
    /// older servers have none: one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<f64>,
    /// Number of files that could not be archived, such as sockets, as the sandbox tells.
    pub skipped: u64,
    /// Image of that sandbox, which a sandbox made of the snapshot has unless it asks for another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageName>,
    /// `box` if that sandbox had this fence: the snapshot has the changes of its root, and a sandbox made of it has the same fence and
    /// image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<SandboxFence>,
    /// User of programs that name none, in a sandbox that is made of it; the sandbox's own by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Settings of sandboxes that are made of it as a template of E2B's clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
}

/// Settings of the sandboxes of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Template {
    /// Default environment of programs.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Directory where programs begin.
    pub directory: Option<String>,
    /// Command that is started with each sandbox.
    pub start: Option<String>,
    /// Command that succeeds once the start command is ready.
    pub ready: Option<String>,
    /// Id of its build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Tags, with the times of their assignment (RFC 3339). No other build with its name has one of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<Tag, String>,
}

/// A snapshot to make.
#[derive(Debug, Clone, Default)]
pub struct NewSnapshot {
    /// Id of the snapshot, which no other snapshot or sandbox has; random by default.
    pub id: Option<SandboxId>,
    /// Name, unique among the owner's.
    pub name: Option<SandboxName>,
    /// Set to move its tags from the owner's snapshots with this name, once it is complete. Snapshots without
    /// a tag left are removed.
    pub replaces: bool,
    /// Default user of programs; the sandbox's by default.
    pub user: Option<String>,
    pub template: Option<Template>,
}

impl SnapshotInfo {
    /// Returns `true` if the snapshot has the changes of a root.
    pub(crate) fn is_of_root(&self) -> bool {
        self.fence == Some(SandboxFence::Box)
    }

    /// Returns the limits of a sandbox that is made of it and asks for no others.
    pub fn limits(&self) -> SandboxLimits {
        let default = SandboxLimits::default();
        let cpus = self.cpu_limit.and_then(|cores| Cpus::try_from(cores).ok());
        SandboxLimits {
            memory: Bytes(self.memory_limit),
            disk: Bytes(self.disk_limit),
            cpus: cpus.unwrap_or(default.cpus),
            ..default
        }
    }
}

/// The record of a snapshot.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    owner: String,
    snapshot: SnapshotInfo,
}

/// The snapshots of a server.
#[derive(Debug, Clone)]
pub struct SnapshotStore {
    directory: Arc<Path>,
    index: Arc<Mutex<Index>>,
}

#[derive(Debug, Default)]
struct Index {
    kept: BTreeMap<SandboxId, (Scope, SnapshotInfo)>,
    /// Those being written, with the bytes so far.
    writing: BTreeMap<SandboxId, (Scope, SnapshotInfo)>,
}

impl SnapshotStore {
    /// Opens a directory, which exists while there are snapshots, and removes unfinished snapshots of an
    /// interrupted server. One server at a time may have it open.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let mut index = Index::default();
        let mut found = match fs::read_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            entries => entries?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<io::Result<Vec<PathBuf>>>()?,
        };
        // Records first: an archive whose record is wrong goes with it.
        found.sort_by_key(|path| path.extension().is_none_or(|extension| extension != "json"));
        for path in found {
            match read(&path) {
                SnapshotFile::Snapshot(owner, info) => {
                    drop(index.kept.insert(info.id.clone(), (owner, *info)))
                }
                SnapshotFile::Other => {}
                SnapshotFile::Unfinished => drop(fs::remove_file(&path)),
            }
        }
        Ok(Self {
            directory: directory.into(),
            index: Arc::new(Mutex::new(index)),
        })
    }

    /// Returns the snapshots of an owner, the oldest first.
    pub(crate) fn list(&self, scope: &Scope) -> Vec<SnapshotInfo> {
        let index = lock(&self.index);
        let own = index.kept.values().filter(|(owner, _)| owner == scope);
        let mut all: Vec<SnapshotInfo> = own.map(|(_, info)| info.clone()).collect();
        all.sort_by(|one, other| (&one.created_at, &one.id).cmp(&(&other.created_at, &other.id)));
        all
    }

    /// Returns a snapshot by its id, or by its name with or without a tag.
    pub(crate) fn get(&self, scope: &Scope, name: &str) -> Result<SnapshotInfo, Error> {
        let found = lock(&self.index).find(scope, name);
        found.ok_or_else(|| Error::NoSnapshot(name.chars().take(80).collect()))
    }

    /// Removes a snapshot. Open readers can continue.
    pub(crate) fn remove(&self, scope: &Scope, name: &str) -> Result<(), Error> {
        let info = self.get(scope, name)?;
        let mut index = lock(&self.index);
        self.discard(&mut index, &info.id)?;
        self.remove_directory(&index);
        Ok(())
    }

    fn discard(&self, index: &mut Index, id: &SandboxId) -> Result<(), Error> {
        // The record first: an archive without one is removed at the next start.
        fs::remove_file(record_path(&self.directory, id)).map_err(failed("remove"))?;
        index.kept.remove(id);
        fs::remove_file(archive_path(&self.directory, id)).map_err(failed("remove"))
    }

    /// Removes all snapshots of an owner.
    ///
    /// # Errors
    /// If files of one cannot be removed; those after it are kept.
    pub fn clear(&self, scope: &Scope) -> Result<(), Error> {
        self.list(scope)
            .iter()
            .try_for_each(|info| self.remove(scope, info.id.as_str()))
    }

    /// Removes the directory if it is empty. The index is locked, so that no file is being created there.
    fn remove_directory(&self, _: &MutexGuard<'_, Index>) {
        let _ = fs::remove_dir(&self.directory);
    }

    /// Creates the file of an archive.
    fn create_archive(&self, id: &SandboxId) -> io::Result<File> {
        let _index = lock(&self.index);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        create_file(&unfinished(&archive_path(&self.directory, id)))
    }

    /// Creates an unnamed file, which disappears with its last descriptor.
    pub(crate) fn scratch_file(&self) -> Result<File, Error> {
        let id = SandboxId::random().map_err(|error| Error::Broken(error.to_string()))?;
        let path = unfinished(&archive_path(&self.directory, &id));
        let created = (|| {
            let _index = lock(&self.index);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.directory)?;
            let mut options = File::options();
            let file = options
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            fs::remove_file(&path)?;
            Ok(file)
        })();
        self.remove_directory(&lock(&self.index));
        created.map_err(failed("write"))
    }

    /// Begins to write a snapshot.
    pub(crate) fn begin(
        &self,
        scope: &Scope,
        new: NewSnapshot,
        sandbox: &Sandbox,
    ) -> Result<SnapshotWriter, Error> {
        let id = match new.id {
            Some(id) => id,
            None => SandboxId::random().map_err(|error| Error::Broken(error.to_string()))?,
        };
        let limits = sandbox.request().limits;
        let info = SnapshotInfo {
            id,
            name: new.name,
            sandbox: sandbox.id().clone(),
            created_at: rfc3339(SystemTime::now()),
            size: 0,
            memory_limit: limits.memory.0,
            disk_limit: limits.disk.0,
            cpu_limit: Some(limits.cpus.get()),
            skipped: 0,
            image: sandbox.request().image.as_ref().map(|image| image.name()),
            fence: sandbox
                .request()
                .fence()
                .filter(|fence| *fence == SandboxFence::Box),
            user: new.user.or_else(|| sandbox.request().user.clone()),
            template: new.template,
        };
        let file = Unfinished::begin(self, scope, info, new.replaces)?;
        let (pieces, received) = mpsc::channel(UNWRITTEN);
        Ok(SnapshotWriter {
            pieces,
            task: tokio::task::spawn_blocking(move || file.write(received)),
        })
    }

    /// Opens a snapshot to read it.
    pub(crate) fn read(&self, scope: &Scope, name: &str) -> Result<SnapshotReader, Error> {
        let info = self.get(scope, name)?;
        let opened = open_file(&archive_path(&self.directory, &info.id));
        let file = opened.map_err(failed("read"))?;
        let (sender, pieces) = mpsc::channel(UNWRITTEN);
        let left = info.size;
        // Ends when the reader is dropped.
        drop(tokio::task::spawn_blocking(move || send_pieces(file, &sender)));
        Ok(SnapshotReader { info, pieces, left })
    }
}

/// A snapshot that is being written. Dropping it leaves nothing.
pub(crate) struct SnapshotWriter {
    pieces: mpsc::Sender<Piece>,
    task: JoinHandle<Result<SnapshotInfo, Error>>,
}

enum Piece {
    Bytes(Vec<u8>),
    /// The archive is complete, without this number of files.
    End {
        skipped: u64,
    },
}

impl SnapshotWriter {
    /// Writes a chunk. Returns `false` on failure; [`Self::finish`] then returns the error.
    pub(crate) async fn write(&self, bytes: Vec<u8>) -> bool {
        self.pieces.send(Piece::Bytes(bytes)).await.is_ok()
    }

    /// Keeps the snapshot.
    pub(crate) async fn finish(self, skipped: u64) -> Result<SnapshotInfo, Error> {
        // Fails only where the task has failed.
        let _ = self.pieces.send(Piece::End { skipped }).await;
        match self.task.await {
            Ok(finished) => finished,
            Err(_) => Err(Error::Broken("the writer of the snapshot has failed".to_owned())),
        }
    }
}

/// A snapshot that is being read.
#[derive(Debug)]
pub(crate) struct SnapshotReader {
    pub(crate) info: SnapshotInfo,
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    left: u64,
}

impl SnapshotReader {
    /// Returns the next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let failed = failed("read");
        match self.pieces.recv().await {
            Some(Ok(piece)) => {
                let left = self.left.checked_sub(piece.len() as u64);
                self.left = left.ok_or_else(|| failed(ErrorKind::InvalidData.into()))?;
                Ok(Some(piece))
            }
            Some(Err(error)) => Err(failed(error)),
            None if self.left > 0 => Err(failed(ErrorKind::UnexpectedEof.into())),
            None => Ok(None),
        }
    }
}

fn send_pieces(mut file: File, sender: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut buffer = vec![0; PIECE];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(buffer[..count].to_vec()),
            Err(error) => Err(error),
        };
        let failed = read.is_err();
        if sender.blocking_send(read).is_err() || failed {
            return;
        }
    }
}

/// The files of a snapshot that is not finished: removed when this is dropped.
struct Unfinished {
    store: SnapshotStore,
    owner: Scope,
    info: SnapshotInfo,
    /// Set if the snapshot replaces the one with its name.
    replaces: bool,
    is_kept: bool,
}

impl Unfinished {
    /// Counts the snapshot among the owner's.
    fn begin(
        store: &SnapshotStore,
        owner: &Scope,
        info: SnapshotInfo,
        replaces: bool,
    ) -> Result<Self, Error> {
        let mut index = lock(&store.index);
        if let Some(name) = &info.name
            && !replaces
            && index
                .of(Some(owner))
                .any(|known| known.name.as_ref() == Some(name))
        {
            return Err(Error::SnapshotTaken(name.to_string()));
        }
        if index.of(None).count() >= MAX {
            return Err(Error::TooManySnapshots(MAX));
        }
        if index.of(Some(owner)).count() >= MAX_OF_SCOPE {
            return Err(Error::TooManySnapshots(MAX_OF_SCOPE));
        }
        let entry = (owner.clone(), info.clone());
        index.writing.insert(info.id.clone(), entry);
        Ok(Self {
            store: store.clone(),
            owner: owner.clone(),
            info,
            replaces,
            is_kept: false,
        })
    }

    /// Writes the received data to its end, and publishes the snapshot.
    fn write(self, received: mpsc::Receiver<Piece>) -> Result<SnapshotInfo, Error> {
        let failed = failed("write");
        let file = self.store.create_archive(&self.info.id);
        self.write_to(file.map_err(failed)?, received)
    }

    fn write_to(
        mut self,
        mut file: File,
        mut received: mpsc::Receiver<Piece>,
    ) -> Result<SnapshotInfo, Error> {
        let failed = failed("write");
        loop {
            match received.blocking_recv() {
                Some(Piece::Bytes(bytes)) => {
                    self.info.size += bytes.len() as u64;
                    self.store.count_bytes(&self.owner, &self.info)?;
                    file.write_all(&bytes).map_err(failed)?;
                }
                Some(Piece::End { skipped }) => {
                    self.info.skipped = skipped;
                    file.sync_all().map_err(failed)?;
                    self.keep().map_err(failed)?;
                    return Ok(self.info.clone());
                }
                None => return Err(Error::Broken("the snapshot was broken off".to_owned())),
            }
        }
    }

    /// Puts the files in their places, the record last, and lists the snapshot.
    fn keep(&mut self) -> io::Result<()> {
        let directory = &self.store.directory;
        let archive_path = archive_path(directory, &self.info.id);
        fs::rename(unfinished(&archive_path), archive_path)?;
        self.store.write_record(&self.owner, &self.info)?;
        self.is_kept = true;
        let mut index = lock(&self.store.index);
        index.writing.remove(&self.info.id);
        let entry = (self.owner.clone(), self.info.clone());
        index.kept.insert(self.info.id.clone(), entry);
        if self.replaces {
            let tags = self.info.tags().into_keys().collect();
            // What cannot be removed keeps its id, and comes after this one by name.
            let _ = self.store.take_tags(&mut index, &self.owner, &self.info, &tags);
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_kept {
            for path in [
                record_path(&self.store.directory, &self.info.id),
                archive_path(&self.store.directory, &self.info.id),
            ] {
                // At most one of each pair is there.
                let _ = fs::remove_file(&path);
                let _ = fs::remove_file(unfinished(&path));
            }
        }
        let mut index = lock(&self.store.index);
        index.writing.remove(&self.info.id);
        self.store.remove_directory(&index);
    }
}

impl SnapshotStore {
    /// Writes the record of a snapshot, replacing an existing one.
    fn write_record(&self, owner: &Scope, info: &SnapshotInfo) -> io::Result<()> {
        let other_tags = || info.tags().keys().any(|tag| !tag.is_default());
        let record = Record {
            version: match (info.is_of_root(), &info.image) {
                _ if info.user.is_some() => VERSION,
                _ if other_tags() => WITHOUT_USER,
                (true, _) => WITHOUT_TAGS,
                (false, Some(_)) => WITHOUT_ROOT,
                (false, None) => WITHOUT_IMAGE,
            },
            owner: owner.as_str().to_owned(),
            snapshot: info.clone(),
        };
        let path = record_path(&self.directory, &info.id);
        let part = unfinished(&path);
        let write = || {
            let mut file = create_file(&part)?;
            file.write_all(&serde_json::to_vec(&record)?)?;
            file.sync_all()?;
            fs::rename(&part, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().inspect_err(|_| drop(fs::remove_file(&part)))
    }

    /// Counts the bytes of a snapshot that is being written.
    fn count_bytes(&self, owner: &Scope, info: &SnapshotInfo) -> Result<(), Error> {
        let mut index = lock(&self.index);
        if let Some((_, known)) = index.writing.get_mut(&info.id) {
            known.size = info.size;
        }
        for (scope, most) in [(None, MAX_BYTES), (Some(owner), MAX_BYTES_OF_SCOPE)] {
            if index.bytes(scope) > most.0 {
                return Err(Error::SnapshotsFull(most));
            }
        }
        Ok(())
    }
}

impl Index {
    /// Returns the snapshot with this name. A killed server may leave several; the last one to get the name
    /// counts.
    fn find(&self, scope: &Scope, name: &str) -> Option<SnapshotInfo> {
        let own = self.kept.values().filter(|(owner, _)| owner == scope);
        let named = own.filter_map(|(_, info)| Some((info.named_since(name)?, info)));
        let (_, found) = named.max_by(|(one, _), (other, _)| one.cmp(other))?;
        Some(found.clone())
    }

    /// Returns the snapshots of one owner or all.
    fn of(&self, scope: Option<&Scope>) -> impl Iterator<Item = &SnapshotInfo> {
        let all = self.kept.values().chain(self.writing.values());
        let own = all.filter(move |(owner, _)| scope.is_none_or(|scope| scope == owner));
        own.map(|(_, info)| info)
    }

    /// Returns the bytes of the snapshots of one owner or all.
    fn bytes(&self, scope: Option<&Scope>) -> u64 {
        self.of(scope).map(|info| info.size).sum()
    }
}

/// A file of the directory, as the server finds it when it starts.
enum SnapshotFile {
    Snapshot(Scope, Box<SnapshotInfo>),
    /// An archive with its record, or a file that the store did not create.
    Other,
    /// A leftover of an interrupted server.
    Unfinished,
}

fn read(path: &Path) -> SnapshotFile {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("part") => SnapshotFile::Unfinished,
        Some("tar") if !path.with_extension("json").exists() => SnapshotFile::Unfinished,
        Some("json") => match record(path) {
            Ok(Record { owner, snapshot, .. }) if fits(path, &snapshot) => match owner.parse() {
                Ok(owner) => SnapshotFile::Snapshot(owner, Box::new(snapshot)),
                Err(_) => SnapshotFile::Other,
            },
            Ok(_) => SnapshotFile::Unfinished,
            Err(_) => SnapshotFile::Other,
        },
        _ => SnapshotFile::Other,
    }
}

/// Reads a record, which must be of a version that is known: others are those of another Ringfence.
fn record(path: &Path) -> io::Result<Record> {
    let mut text = Vec::new();
    open_file(path)?.take(MAX_RECORD).read_to_end(&mut text)?;
    let record: Record = serde_json::from_slice(&text)?;
    match record.version {
        WITHOUT_IMAGE | WITHOUT_ROOT | WITHOUT_TAGS | WITHOUT_USER | VERSION => Ok(record),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// Returns `true` if a record is about the archive beside it.
fn fits(path: &Path, snapshot: &SnapshotInfo) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let archive = fs::symlink_metadata(path.with_extension("tar"));
    stem == Some(snapshot.id.as_str())
        && archive.is_ok_and(|archive| archive.is_file() && archive.len() == snapshot.size)
}

fn archive_path(directory: &Path, id: &SandboxId) -> PathBuf {
    directory.join(format!("{id}.tar"))
}

fn record_path(directory: &Path, id: &SandboxId) -> PathBuf {
    directory.join(format!("{id}.json"))
}

/// Returns the conversion of an error of the store while it was `doing` something.
fn failed(doing: &'static str) -> impl Fn(io::Error) -> Error + Copy {
    move |source| Error::Store { doing, source }
}

/// Returns the path of a file that is not complete.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn create_file(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Opens a file for reading. Fails if the path is a symbolic link.
fn open_file(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(O_NOFOLLOW).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: Option<&str>) -> SnapshotInfo {
        SnapshotInfo {
            id: SandboxId::random().unwrap(),
            name: name.map(|name| name.parse().unwrap()),
            sandbox: SandboxId::random().unwrap(),
            created_at: rfc3339(SystemTime::now()),
            size: 0,
            memory_limit: 1,
            disk_limit: 1,
            cpu_limit: Some(0.5),
            skipped: 0,
            image: None,
            fence: None,
            user: None,
            template: None,
        }
    }

    /// Writes a snapshot of these pieces; without its end if it is cut.
    fn write(
        store: &SnapshotStore,
        owner: &Scope,
        info: SnapshotInfo,
        end: bool,
    ) -> Result<SnapshotInfo, Error> {
        let (sender, received) = mpsc::channel(4);
        let unfinished = Unfinished::begin(store, owner, info, false)?;
        sender.try_send(Piece::Bytes(vec![7; 1000])).ok();
        if end {
            sender.try_send(Piece::End { skipped: 2 }).ok();
        }
        drop(sender);
        unfinished.write(received)
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_snapshot_is_there_again_after_a_restart() {
        use std::os::unix::fs::MetadataExt;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshots");
        let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let store = SnapshotStore::open(&path).unwrap();
        let made = write(&store, &ann, info(Some("base")), true).unwrap();
        assert_eq!((made.size, made.skipped), (1000, 2));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        for name in names(&path) {
            let mode = fs::metadata(path.join(&name)).unwrap().mode() & 0o777;
            assert_eq!(mode, 0o600, "{name}");
        }
        let again = SnapshotStore::open(&path).unwrap();
        assert_eq!(again.list(&ann), std::slice::from_ref(&made));
        assert_eq!(again.get(&ann, "base").unwrap(), made);
        for foreign in ["base", made.id.as_str()] {
            assert!(matches!(again.get(&bob, foreign), Err(Error::NoSnapshot(_))));
            assert!(again.remove(&bob, foreign).is_err());
        }
        let taken = write(&again, &ann, info(Some("base")), true).unwrap_err();
        assert!(matches!(taken, Error::SnapshotTaken(_)), "{taken}");
        write(&again, &bob, info(Some("base")), true).unwrap();
        again.remove(&ann, "base").unwrap();
        assert_eq!(again.list(&ann), []);
        assert_eq!(names(&path).len(), 2, "those of the other owner");
    }

    #[test]
    fn what_is_broken_off_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = SnapshotStore::open(dir.path()).unwrap();
        let ann: Scope = "ann".parse().unwrap();
        write(&store, &ann, info(None), false).unwrap_err();
        assert_eq!(names(dir.path()), [""; 0]);
        // A full disk: every write to this device is refused.
        let (sender, received) = mpsc::channel(4);
        sender.try_send(Piece::Bytes(vec![0; 10])).ok();
        let unfinished = Unfinished::begin(&store, &ann, info(None), false).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let error = unfinished.write_to(full, received).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::LimitExceeded, "{error}");
        assert_eq!(lock(&store.index).of(None).count(), 0);
        // What a server that was killed leaves.
        let made = write(&store, &ann, info(None), true).unwrap();
        for left in ["a.tar", "b.tar.part", "c.json.part"] {
            fs::write(dir.path().join(left), "x").unwrap();
        }
        // One whose archive is not what its record says.
        let cut = write(&store, &ann, info(None), true).unwrap();
        fs::write(archive_path(dir.path(), &cut.id), "short").unwrap();
        // A later version's is left alone.
        let record = |version: u32| format!(r#"{{"version":{version},"owner":"ann"}}"#);
        fs::write(dir.path().join("later.json"), record(VERSION + 1)).unwrap();
        fs::write(dir.path().join("later.tar"), "x").unwrap();
        let again = SnapshotStore::open(dir.path()).unwrap();
        assert_eq!(again.list(&ann), std::slice::from_ref(&made));
        let mut left = [format!("{}.json", made.id), format!("{}.tar", made.id)].to_vec();
        left.extend(["later.json", "later.tar"].map(str::to_owned));
        left.sort();
        assert_eq!(names(dir.path()), left);
    }

    /// Keeps a build of a template with these tags.
    fn build(store: &SnapshotStore, owner: &Scope, tags: &[&str]) -> SnapshotInfo {
        let (sender, received) = mpsc::channel(4);
        let tags = tags.iter().map(|tag| tag.parse().unwrap()).collect();
        let template = Template {
            tags: new_tags(tags).unwrap(),
            ..Template::default()
        };
        let info = SnapshotInfo {
            template: Some(template),
            ..info(Some("tools"))
        };
        let unfinished = Unfinished::begin(store, owner, info, true).unwrap();
        sender.try_send(Piece::End { skipped: 0 }).ok();
        unfinished.write(received).unwrap()
    }

    #[test]
    fn a_snapshot_with_a_user_is_unknown_to_older_servers() {
        let dir = tempfile::tempdir().unwrap();
        let store = SnapshotStore::open(dir.path()).unwrap();
        let ann: Scope = "ann".parse().unwrap();
        let version = |info: &SnapshotInfo| {
            let text = fs::read(record_path(dir.path(), &info.id)).unwrap();
            serde_json::from_slice::<Record>(&text).unwrap().version
        };
        let one = build(&store, &ann, &[]);
        assert!(version(&one) < WITHOUT_USER);
        let with_user = SnapshotInfo {
            user: Some("ada".to_owned()),
            ..one
        };
        store.write_record(&ann, &with_user).unwrap();
        assert_eq!(version(&with_user), VERSION);
        assert_eq!(SnapshotStore::open(dir.path()).unwrap().list(&ann), [with_user]);
    }

    #[test]
    fn builds_of_one_name_have_tags_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshots");
        let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let store = SnapshotStore::open(&path).unwrap();
        let one = build(&store, &ann, &["v1", "Stable"]);
        let two = build(&store, &ann, &[]);
        let foreign = build(&store, &bob, &["v1"]);
        let id_of = |store: &SnapshotStore, name: &str| store.get(&ann, name).ok().map(|info| info.id);
        let tags = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        for store in [&store, &SnapshotStore::open(&path).unwrap()] {
            assert_eq!(id_of(store, "tools:v1"), Some(one.id.clone()));
            assert_eq!(id_of(store, one.id.as_str()), Some(one.id.clone()));
            assert_eq!(id_of(store, "tools"), Some(two.id.clone()));
            assert_eq!(id_of(store, "tools:v2"), None);
        }
        assert_eq!(store.builds(&ann, "tools").unwrap(), [one.clone(), two.clone()]);
        // A tag changes from one build to another; one that has none left goes.
        let moved = store
            .assign_tags(&ann, "tools", &tags(&["stable", "v2"]))
            .unwrap();
        assert_eq!(moved.id, two.id);
        assert_eq!(id_of(&store, "tools:stable"), Some(two.id.clone()));
        assert_eq!(id_of(&store, "tools:v1"), Some(one.id.clone()));
        store
            .remove_tags(&ann, one.id.as_str(), &tags(&["v1", "unknown"]))
            .unwrap();
        assert_eq!(id_of(&store, one.id.as_str()), None);
        let again = SnapshotStore::open(&path).unwrap();
        assert_eq!(again.list(&ann), [moved]);
        let three = build(&store, &ann, &["default", "v2", "stable"]);
        assert_eq!(store.builds(&ann, "tools").unwrap(), [three]);
        assert_eq!(store.builds(&bob, "tools").unwrap(), [foreign]);
        assert!(store.assign_tags(&bob, two.id.as_str(), &tags(&["x"])).is_err());
        let many: Vec<String> = (0..40).map(|number| format!("t{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let error = store.assign_tags(&ann, "tools", &tags(&many)).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::LimitExceeded, "{error}");
    }

    #[test]
    fn owners_have_a_number_of_snapshots_and_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let store = SnapshotStore::open(dir.path()).unwrap();
        let ann: Scope = "ann".parse().unwrap();
        let all: Vec<Unfinished> = (0..MAX_OF_SCOPE)
            .map(|_| Unfinished::begin(&store, &ann, info(None), false).unwrap())
            .collect();
        let error = Unfinished::begin(&store, &ann, info(None), false).err().unwrap();
        assert!(matches!(error, Error::TooManySnapshots(MAX_OF_SCOPE)), "{error}");
        Unfinished::begin(&store, &"bob".parse().unwrap(), info(None), false).unwrap();
        let large = SnapshotInfo {
            size: MAX_BYTES_OF_SCOPE.0 + 1,
            ..all[0].info.clone()
        };
        let error = store.count_bytes(&ann, &large).unwrap_err();
        assert!(matches!(error, Error::SnapshotsFull(_)), "{error}");
        drop(all);
        Unfinished::begin(&store, &ann, info(None), false).unwrap();
    }
}
