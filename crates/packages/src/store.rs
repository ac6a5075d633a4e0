//! Environments on disk: found by request, shared by content, removed when unused.
//!
//! ```text
//! packages/                 accessible to this user alone
//!   install.lock            held by the one installation that runs
//!   installing/             what it has written so far
//!   requests/DIGEST         the environment that a request led to, with the time
//!   environments/KEY/       published whole by a rename
//!     lock                  held shared by every run, exclusively by a removal
//!     environment.json
//!     site-packages/        what guests see, read-only
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_exec::backend::Fingerprint;
use ringfence_policy::{Bytes, EnvName, ExecutionResult, Mount};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ecosystem::Ecosystem;
use crate::error::StoreError;
use crate::locks::{InstallLock, UseLock, created};
use crate::tree::Tree;

/// Age at which a request is resolved again, so that fixes of packages arrive.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Description of an environment, in its directory.
const RECORD: &str = "environment.json";
/// Maximum size of a record, and of the answer to a request.
pub(crate) const MAX_RECORD: u64 = 256 * 1024;
/// Maximum number of remembered requests.
const MAX_REQUESTS: usize = 1024;

/// Maximum number and size of kept environments. The one that was used longest ago is removed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    pub environments: usize,
    pub bytes: Bytes,
}

impl Keep {
    pub const DEFAULT: Self = Self {
        environments: 64,
        bytes: Bytes::mib(8 * 1024),
    };
}

/// The kept environments of a user.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    keep: Keep,
}

/// An environment in use, which is not removed while this exists.
#[derive(Debug)]
pub struct Checkout {
    pub key: Digest,
    pub ecosystem: Ecosystem,
    /// Directory that guests see.
    pub site_packages: PathBuf,
    /// Names and versions, in order.
    pub packages: Vec<String>,
    /// Warning about their age.
    pub warning: Option<String>,
    _lock: UseLock,
}

impl Checkout {
    /// Adds the mount of the packages, and the variable by which interpreters find it if they need one.
    pub fn add_to(&self, mounts: &mut Vec<Mount>, env: &mut Vec<(EnvName, String)>) {
        let facts = self.ecosystem.facts();
        mounts.push(Mount::packages(self.site_packages.clone(), facts.place));
        let Some(variable) = facts.search_path else { return };
        match env.iter_mut().find(|(name, _)| name.as_str() == variable) {
            Some((_, path)) => *path = format!("{path}:{}", facts.place),
            None => env.extend(variable.parse().map(|name| (name, facts.place.to_owned()))),
        }
    }

    /// Adds the packages, and the warning about their age, to a result.
    pub fn describe(&self, result: &mut ExecutionResult) {
        result.meta.packages.clone_from(&self.packages);
        result.meta.warnings.extend(self.warning.clone());
    }

    pub(crate) fn with_warning(self, warning: String) -> Self {
        Self {
            warning: Some(warning),
            ..self
        }
    }
}

/// Two uses of one environment are equal.
impl PartialEq for Checkout {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.site_packages == other.site_packages
    }
}

/// A kept environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentInfo {
    pub key: Digest,
    pub packages: Vec<String>,
    pub size: Bytes,
    pub used: SystemTime,
}

/// The outcome of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Removed,
    InUse,
}

/// Description of an environment beside its files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    #[serde(default = "python", skip_serializing_if = "is_python")]
    ecosystem: Ecosystem,
    packages: Vec<String>,
    bytes: u64,
    /// Interpreter that the packages were installed for.
    interpreter: Fingerprint,
}

/// The ecosystem of records that name none, as older versions wrote all.
const fn python() -> Ecosystem {
    Ecosystem::Python
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_python(ecosystem: &Ecosystem) -> bool {
    *ecosystem == Ecosystem::Python
}

/// The environment that resulted from a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    key: Digest,
    /// Seconds since 1970.
    resolved: u64,
}

/// The directory of an installation under way, the only one of this store.
#[derive(Debug)]
pub(crate) struct Staging {
    directory: PathBuf,
    _lock: InstallLock,
}

/// Removes unpublished files, before the lock on installations is released.
impl Drop for Staging {
    fn drop(&mut self) {
        // The next installation removes what is left.
        let _ = remove_directory(&self.directory);
    }
}

impl Staging {
    /// Returns the directory for the files of the environment.
    pub(crate) fn site_packages(&self) -> PathBuf {
        self.directory.join("site-packages")
    }
}

impl Store {
    /// Creates a store at `root`, which need not exist yet.
    pub const fn new(root: PathBuf, keep: Keep) -> Self {
        Self { root, keep }
    }

    /// Returns the environment of a request that was resolved not long ago; `None` if there is none any more.
    pub(crate) fn recent(&self, request: &Digest, now: SystemTime) -> Result<Option<Checkout>, StoreError> {
        let Some(answer) = self.answer(request)? else {
            return Ok(None);
        };
        let age = now.duration_since(UNIX_EPOCH + Duration::from_secs(answer.resolved));
        match age.is_ok_and(|age| age < MAX_AGE) {
            true => self.checkout(&answer.key),
            false => Ok(None),
        }
    }

    /// Returns the environment of a request, however long ago it was resolved.
    pub(crate) fn any(&self, request: &Digest) -> Result<Option<Checkout>, StoreError> {
        self.answer(request)?
            .map_or(Ok(None), |answer| self.checkout(&answer.key))
    }

    /// Returns the environment of a key; `None` if there is none. `interpreter` returns the one that it must be for, by
    /// its ecosystem.
    ///
    /// # Errors
    /// If it is for another interpreter, or cannot be read.
    pub fn open(
        &self,
        key: &Digest,
        interpreter: impl FnOnce(Ecosystem) -> Option<Fingerprint>,
    ) -> Result<Option<Checkout>, StoreError> {
        let Some(checkout) = self.checkout(key)? else {
            return Ok(None);
        };
        let ecosystem = checkout.ecosystem;
        let wanted = interpreter(ecosystem);
        match self.record(key)? {
            Some(record) if wanted.is_some_and(|wanted| record.interpreter == wanted) => Ok(Some(checkout)),
            Some(_) | None => Err(StoreError::Interpreter(ecosystem)),
        }
    }

    /// Returns the environment in this directory of packages; `None` if it is none of the store.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open_directory(
        &self,
        site_packages: &Path,
        interpreter: impl FnOnce(Ecosystem) -> Option<Fingerprint>,
    ) -> Result<Option<Checkout>, StoreError> {
        let name = site_packages.parent().and_then(Path::file_name);
        let key: Option<Digest> = name.and_then(|name| name.to_str()?.parse().ok());
        match key {
            Some(key) if self.environment(&key).join("site-packages") == site_packages => {
                self.open(&key, interpreter)
            }
            Some(_) | None => Ok(None),
        }
    }

    fn checkout(&self, key: &Digest) -> Result<Option<Checkout>, StoreError> {
        let directory = self.environment(key);
        let path = directory.join("lock");
        let Some(lock) = UseLock::shared(&path).map_err(StoreError::at(&path))? else {
            return Ok(None);
        };
        Ok(self.record(key)?.map(|record| Checkout {
            key: key.clone(),
            ecosystem: record.ecosystem,
            site_packages: directory.join("site-packages"),
            packages: record.packages,
            warning: None,
            _lock: lock,
        }))
    }

    /// Waits until no other installation runs, and removes the files of a killed one.
    pub(crate) fn begin(&self) -> Result<Staging, StoreError> {
        for name in ["requests", "environments"] {
            make_directory(&self.root.join(name))?;
        }
        let path = self.root.join("install.lock");
        let lock = InstallLock::wait(&path).map_err(StoreError::at(&path))?;
        let staging = Staging {
            directory: self.root.join("installing"),
            _lock: lock,
        };
        remove_directory(&staging.directory)?;
        self.finish_removals()?;
        make_directory(&staging.directory)?;
        // Guests see it: only the directories above are closed to others.
        let site_packages = staging.site_packages();
        let made = DirBuilder::new().mode(0o755).create(&site_packages);
        let open = Permissions::from_mode(0o755);
        made.and_then(|()| fs::set_permissions(&site_packages, open))
            .map_err(StoreError::at(&site_packages))?;
        Ok(staging)
    }

    /// Publishes an installation under its key, unless the same content is stored already. Records the answer
    /// to its request, and evicts environments beyond the limits.
    pub(crate) fn publish(
        &self,
        staging: Staging,
        tree: &Tree,
        publication: &Publication,
        now: SystemTime,
    ) -> Result<Checkout, StoreError> {
        let record = Record {
            ecosystem: publication.ecosystem,
            packages: tree.packages.clone(),
            bytes: tree.bytes,
            interpreter: publication.interpreter.clone(),
        };
        let from = &staging.directory;
        write(&from.join(RECORD), &record)?;
        let lock = from.join("lock");
        created(&lock).map_err(StoreError::at(&lock))?;
        // A rename that the disk has before the files would publish empty ones after a power failure.
        let synced = File::open(from).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
        synced.map_err(StoreError::at(from))?;
        let to = self.environment(&publication.key);
        match fs::rename(from, &to) {
            Ok(()) => {}
            Err(error) if is_taken(&error) => remove_directory(from)?,
            Err(error) => return Err(StoreError::at(&to)(error)),
        }
        let checkout = self.checkout(&publication.key)?.ok_or(StoreError::Gone)?;
        let answer = Answer {
            key: publication.key.clone(),
            resolved: now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        write(
            &self.root.join("requests").join(publication.request.as_str()),
            &answer,
        )?;
        self.evict()?;
        Ok(checkout)
    }

    /// Lists the environments, the last used first.
    ///
    /// # Errors
    /// If a directory or a record cannot be read.
    pub fn list(&self) -> Result<Vec<EnvironmentInfo>, StoreError> {
        let mut all = Vec::new();
        for key in names(&self.root.join("environments"))? {
            let lock = self.environment(&key).join("lock");
            let used = fs::metadata(lock).and_then(|lock| lock.modified());
            // One that is removed meanwhile is left out.
            let (Ok(used), Some(record)) = (used, self.record(&key)?) else {
                continue;
            };
            all.push(EnvironmentInfo {
                key,
                packages: record.packages,
                size: Bytes(record.bytes),
                used,
            });
        }
        all.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.key.cmp(&b.key)));
        Ok(all)
    }

    /// Removes an environment that no run uses.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self, key: &Digest) -> Result<Removal, StoreError> {
        let directory = self.environment(key);
        let path = directory.join("lock");
        let Some(_lock) = UseLock::exclusive(&path).map_err(StoreError::at(&path))? else {
            return Ok(match directory.exists() {
                true => Removal::InUse,
                false => Removal::Removed,
            });
        };
        // Nobody uses one without its record: a removal that is cut off leaves no half of an environment.
        let record = directory.join(RECORD);
        fs::remove_file(&record).map_err(StoreError::at(&record))?;
        remove_directory(&directory)?;
        Ok(Removal::Removed)
    }

    /// Evicts unused environments beyond the limit, and answers whose environment is gone.
    fn evict(&self) -> Result<(), StoreError> {
        let mut kept = self.list()?;
        let mut total: u64 = kept.iter().map(|kept| kept.size.0).sum();
        let mut count = kept.len();
        while let Some(oldest) = kept.pop() {
            if count <= self.keep.environments && total <= self.keep.bytes.0 {
                break;
            }
            if self.remove(&oldest.key)? == Removal::Removed {
                total -= oldest.size.0;
                count -= 1;
            }
        }
        self.forget_requests()
    }

    /// Removes environments without a readable record, such as a removal that was cut off leaves. They would keep the
    /// same content from being published again.
    fn finish_removals(&self) -> Result<(), StoreError> {
        for key in names(&self.root.join("environments"))? {
            if self.record(&key)?.is_some() {
                continue;
            }
            let directory = self.environment(&key);
            let path = directory.join("lock");
            let held = UseLock::exclusive(&path).map_err(StoreError::at(&path))?;
            if held.is_some() || !path.exists() {
                remove_directory(&directory)?;
            }
        }
        Ok(())
    }

    fn forget_requests(&self) -> Result<(), StoreError> {
        let requests = self.root.join("requests");
        let all = names(&requests)?;
        let too_many = all.len() > MAX_REQUESTS;
        for name in all {
            let answer = self.answer(&name)?;
            if too_many || answer.is_none_or(|answer| !self.environment(&answer.key).exists()) {
                let path = requests.join(name.as_str());
                absent(fs::remove_file(&path)).map_err(StoreError::at(&path))?;
            }
        }
        Ok(())
    }

    fn environment(&self, key: &Digest) -> PathBuf {
        self.root.join("environments").join(key.as_str())
    }

    fn record(&self, key: &Digest) -> Result<Option<Record>, StoreError> {
        read(&self.environment(key).join(RECORD))
    }

    fn answer(&self, request: &Digest) -> Result<Option<Answer>, StoreError> {
        read(&self.root.join("requests").join(request.as_str()))
    }
}

/// Names under which an installation is published, and the interpreter that it is for.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) request: Digest,
    /// Digest of the content, with its origin.
    pub(crate) key: Digest,
    pub(crate) ecosystem: Ecosystem,
    pub(crate) interpreter: Fingerprint,
}

fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
    )
}

fn make_directory(path: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(StoreError::at(path))
}

fn remove_directory(path: &Path) -> Result<(), StoreError> {
    absent(fs::remove_dir_all(path)).map_err(StoreError::at(path))
}

/// Takes a missing file as removed.
fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns the digests that name the entries of a directory; none if there is no such directory.
fn names(directory: &Path) -> Result<Vec<Digest>, StoreError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(StoreError::at(directory))?,
    };
    let named = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(named.collect())
}

/// Reads a record; `None` if there is none. One that cannot be parsed counts as none, too.
fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, StoreError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_RECORD).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::at(path)(error)),
        Ok(_) => Ok(serde_json::from_slice(&bytes).ok()),
    }
}

/// Writes a record whole, or not at all.
fn write(path: &Path, record: &impl Serialize) -> Result<(), StoreError> {
    let temporary = path.with_extension("new");
    let bytes = serde_json::to_vec(record).map_err(io::Error::from);
    let written = bytes.and_then(|bytes| {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&temporary)?.write_all(&bytes)?;
        fs::rename(&temporary, path)
    });
    written.map_err(StoreError::at(path))
}

#[cfg(test)]
mod tests;
