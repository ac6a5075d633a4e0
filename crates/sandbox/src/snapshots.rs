//! Snapshots: stored files of sandboxes, from which other sandboxes are created.
//!
//! A snapshot is two files of the server in one directory: an archive, which the server never unpacks, and a
//! record of its owner and size. The record is written last. Archives without a record are removed when the
//! server starts.

mod tag;
mod tags;
mod transfer;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use ringfence_exec::local::O_NOFOLLOW;
use ringfence_policy::timestamp::rfc3339;
use ringfence_policy::{Bytes, Cpus, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::id::{SandboxId, SandboxName};
use super::lock::lock;
use super::sandbox::Sandbox;
use super::spec::{ImageName, NewSandbox, SandboxFence, SandboxLimits};

pub use tag::{Tag, new_tags};
pub(crate) use transfer::{SnapshotReader, SnapshotWriter};

use transfer::Unfinished;

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
/// Error of a snapshot for which nobody waits any more, or whose owner was removed.
const BROKEN_OFF: &str = "the snapshot was broken off";
/// Snapshots of a server, and of one owner.
const MAX: usize = 1024;
const MAX_OF_SCOPE: usize = 64;
/// Bytes of all archives of a server, and of one owner.
const MAX_BYTES: Bytes = Bytes::mib(32 * 1024);
const MAX_BYTES_OF_SCOPE: Bytes = Bytes::mib(8 * 1024);

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
    /// Names of settings that the sandbox was created with and the snapshot has not: `packages`, `ports`, `allowed_hosts`, `env`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_copied: Vec<String>,
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
        .on_this_machine()
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

    /// Removes all snapshots of an owner, also those that are being written: their writers keep nothing.
    ///
    /// # Errors
    /// If files of one cannot be removed; those after it are kept.
    pub fn clear(&self, scope: &Scope) -> Result<(), Error> {
        lock(&self.index).writing.retain(|_, (owner, _)| owner != scope);
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
            not_copied: not_copied(sandbox.request()),
            image: sandbox.request().image.as_ref().map(|image| image.name()),
            fence: sandbox
                .request()
                .fence()
                .filter(|fence| *fence == SandboxFence::Box),
            user: new.user.or_else(|| sandbox.request().user.clone()),
            template: new.template,
        };
        let files = Unfinished::begin(self, scope, info, new.replaces)?;
        Ok(SnapshotWriter::start(files))
    }

    /// Opens a snapshot to read it.
    pub(crate) fn read(&self, scope: &Scope, name: &str) -> Result<SnapshotReader, Error> {
        let info = self.get(scope, name)?;
        let opened = open_file(&archive_path(&self.directory, &info.id));
        Ok(SnapshotReader::start(info, opened.map_err(failed("read"))?))
    }
}

/// Returns the names of what a sandbox was created with beside its files.
fn not_copied(new: &NewSandbox) -> Vec<String> {
    let created_with = [
        ("packages", new.packages.are_named),
        ("ports", new.ports),
        ("allowed_hosts", new.egress.is_some()),
        ("env", !new.env.is_empty()),
    ];
    let names = created_with.into_iter().filter(|(_, is_given)| *is_given);
    names.map(|(name, _)| name.to_owned()).collect()
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
        let text = serde_json::to_vec(&record)?;
        if text.len() as u64 > MAX_RECORD {
            // It could not be read again.
            let message = format!("its record has at most {}", Bytes(MAX_RECORD));
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        let path = record_path(&self.directory, &info.id);
        let part = unfinished(&path);
        let write = || {
            let mut file = create_file(&part)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&part, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().inspect_err(|_| drop(fs::remove_file(&part)))
    }

    /// Counts the bytes of a snapshot that is being written.
    fn count_bytes(&self, owner: &Scope, info: &SnapshotInfo) -> Result<(), Error> {
        let mut index = lock(&self.index);
        let known = index.writing.get_mut(&info.id);
        let (_, known) = known.ok_or_else(|| Error::Broken(BROKEN_OFF.to_owned()))?;
        known.size = info.size;
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
mod tests;
