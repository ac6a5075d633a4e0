//! The store of images: one directory for each configuration, and an index of references.
//!
//! Whoever changes it holds its lock. An image appears and disappears by a rename, so a half-made one never shows. A
//! run holds a lock of its image, which is not removed before.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ringfence_policy::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::Bounds;
use crate::digest::Digest;
use crate::document::Process;
use crate::error::{Error, InStore};
use crate::index::Index;
use crate::layer::Content;
use crate::record;
use crate::reference::{Reference, Selector};
use crate::staging::{self, Staging, lock_file, make_private};

/// File name of an image's description, in the image's directory.
const DESCRIPTION: &str = "image.json";
/// Name of the directory of an image's root file system, in the image's directory.
pub(crate) const ROOT: &str = "root";

/// The store of a user's images.
#[derive(Debug, Clone)]
pub struct Store {
    path: PathBuf,
    bounds: Bounds,
    confine: Confine,
}

/// Confines the calling thread to a directory before it opens an archive.
pub type Confine = fn(&Path) -> io::Result<()>;

/// An unpacked image, as its directory describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Description {
    pub(crate) digest: Digest,
    pub(crate) architecture: String,
    pub(crate) layers: usize,
    pub(crate) content: Content,
    /// Seconds since 1970.
    pub(crate) unpacked: u64,
    pub(crate) process: Process,
}

/// An image with its references.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ImageInfo {
    #[schemars(with = "Vec<String>")]
    pub references: Vec<Reference>,
    /// Digest of the image's configuration.
    #[schemars(with = "String")]
    pub digest: Digest,
    pub architecture: String,
    pub layers: usize,
    pub content: Content,
    /// Time at which the image was unpacked, in seconds since 1970.
    pub unpacked: u64,
    pub process: Process,
}

/// The fate of an image whose references were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The files were removed.
    Removed,
    /// Other references mean it.
    StillNamed,
    /// Running programs use the image. Its files are removed by the first operation after their end.
    InUse,
}

/// An image that cannot be removed while this exists.
#[derive(Debug)]
pub struct Lease {
    pub(crate) root: PathBuf,
    pub(crate) description: Description,
    _lock: File,
}

impl Store {
    /// Opens the store in the directory `images` of a state directory. Creates it if it is missing.
    ///
    /// Each layer is unpacked in a thread confined by `confine`. This is a second defence: paths that leave
    /// the tree are rejected anyway.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn below(state: &Path, bounds: Bounds, confine: Confine) -> Result<Self, Error> {
        let path = state.join("images");
        for directory in [
            path.clone(),
            path.join("trees"),
            path.join("staging"),
            path.join("trash"),
        ] {
            make_private(&directory).when("make")?;
        }
        Ok(Self {
            path,
            bounds,
            confine,
        })
    }

    pub(crate) fn confine(&self) -> Confine {
        self.confine
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Returns all images, by their first reference.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn list(&self) -> Result<Vec<ImageInfo>, Error> {
        let lock = self.shared()?;
        let index = Index::read(&self.path).when("read")?;
        let described = self.described();
        drop(lock);
        let mut all: Vec<_> = described
            .into_iter()
            .map(|description| ImageInfo {
                references: index.names(description.digest),
                digest: description.digest,
                architecture: description.architecture,
                layers: description.layers,
                content: description.content,
                unpacked: description.unpacked,
                process: description.process,
            })
            .collect();
        all.sort_by(|one, other| (&one.references, one.digest).cmp(&(&other.references, other.digest)));
        Ok(all)
    }

    /// Removes the files of images that have no reference and are no longer used.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn collect(&self) -> Result<(), Error> {
        let lock = self.exclusive()?;
        self.discard_unnamed(&Index::read(&self.path).when("read")?);
        drop(lock);
        self.empty_trash();
        Ok(())
    }

    /// Returns an image, and keeps it from being removed.
    ///
    /// # Errors
    /// If there is none, or the store cannot be read.
    pub fn lease(&self, selector: &Selector) -> Result<Lease, Error> {
        let _lock = self.shared()?;
        let found = self.find(&Index::read(&self.path).when("read")?, selector);
        let digest = found.ok_or_else(|| Error::NotFound(selector.clone()))?;
        let directory = self.directory(digest);
        let lock = lock_file(&directory).when("lock")?;
        lock.lock_shared().when("lock")?;
        Ok(Lease {
            root: directory.join(ROOT),
            description: describe(&directory).when("read")?,
            _lock: lock,
        })
    }

    /// Removes a reference, or all of a digest, and the image's files if no reference is left and no run uses it.
    ///
    /// # Errors
    /// If there is none, or the store cannot be changed.
    pub fn remove(&self, selector: &Selector) -> Result<Removal, Error> {
        let lock = self.exclusive()?;
        let mut index = Index::read(&self.path).when("read")?;
        let found = self.find(&index, selector);
        let digest = found.ok_or_else(|| Error::NothingToRemove(selector.clone()))?;
        match selector {
            Selector::Reference(reference) => drop(index.references.remove(reference)),
            Selector::Digest(digest) => index.references.retain(|_, found| found != digest),
        }
        index.write(&self.path).when("write")?;
        let is_named = !index.names(digest).is_empty();
        self.discard_unnamed(&index);
        let is_there = self.directory(digest).exists();
        drop(lock);
        self.empty_trash();
        Ok(match (is_named, is_there) {
            (true, _) => Removal::StillNamed,
            (false, true) => Removal::InUse,
            (false, false) => Removal::Removed,
        })
    }

    /// Makes a directory for the files of one operation. What others left is removed first.
    pub(crate) fn staging(&self) -> Result<Staging, Error> {
        let lock = self.exclusive()?;
        staging::sweep(&self.path.join("staging"));
        self.discard_unnamed(&Index::read(&self.path).when("read")?);
        let staging = Staging::new(&self.path.join("staging")).when("write");
        drop(lock);
        self.empty_trash();
        staging
    }

    /// Returns the digest that a name means.
    pub(crate) fn meaning(&self, reference: &Reference) -> Result<Option<Digest>, Error> {
        let _lock = self.shared()?;
        let index = Index::read(&self.path).when("read")?;
        Ok(index.references.get(reference).copied())
    }

    /// Adds references to a stored image; returns `false` if the store does not have it.
    pub(crate) fn name(&self, digest: Digest, references: &[Reference]) -> Result<bool, Error> {
        let lock = self.exclusive()?;
        if describe(&self.directory(digest)).is_err() {
            return Ok(false);
        }
        self.add_names(digest, references)?;
        drop(lock);
        self.empty_trash();
        Ok(true)
    }

    /// Adds an unpacked image under its references, unless another process has added it meanwhile.
    pub(crate) fn commit(
        &self,
        staging: &Staging,
        description: &Description,
        references: &[Reference],
    ) -> Result<(), Error> {
        let lock = self.exclusive()?;
        let directory = self.directory(description.digest);
        if describe(&directory).is_err() {
            if self.used().saturating_add(description.content.stored()) > self.bounds.store {
                return Err(self.full());
            }
            // An image that cannot be read, as after a power cut, makes room for itself.
            if directory.exists() {
                self.discard(&directory).when("write")?;
            }
            record::render(description)
                .and_then(|text| fs::write(staging.image().join(DESCRIPTION), text))
                .and_then(|()| fs::rename(staging.image(), &directory))
                .when("write")?;
        }
        self.add_names(description.digest, references)?;
        drop(lock);
        self.empty_trash();
        Ok(())
    }

    pub(crate) fn full(&self) -> Error {
        Error::Full {
            limit: Bytes(self.bounds.store),
        }
    }

    fn add_names(&self, digest: Digest, references: &[Reference]) -> Result<(), Error> {
        let mut index = Index::read(&self.path).when("read")?;
        for reference in references {
            index.references.insert(reference.clone(), digest);
        }
        index.write(&self.path).when("write")?;
        self.discard_unnamed(&index);
        Ok(())
    }

    fn find(&self, index: &Index, selector: &Selector) -> Option<Digest> {
        match selector {
            Selector::Reference(reference) => index.references.get(reference).copied(),
            Selector::Digest(digest) => {
                Some(*digest).filter(|digest| describe(&self.directory(*digest)).is_ok())
            }
        }
    }

    fn directory(&self, digest: Digest) -> PathBuf {
        self.path.join("trees").join(digest.hex())
    }

    fn described(&self) -> Vec<Description> {
        let directories = self.directories();
        directories
            .iter()
            .filter_map(|(_, directory)| describe(directory).ok())
            .collect()
    }

    /// Returns the directories of all images, also of those that cannot be read.
    fn directories(&self) -> Vec<(Digest, PathBuf)> {
        let entries = fs::read_dir(self.path.join("trees"))
            .into_iter()
            .flatten()
            .flatten();
        let named = entries.filter_map(|entry| {
            let digest = format!("sha256:{}", entry.file_name().to_str()?).parse().ok()?;
            Some((digest, entry.path()))
        });
        named.collect()
    }

    /// Returns the bytes of all images.
    fn used(&self) -> u64 {
        self.described().iter().map(|image| image.content.stored()).sum()
    }

    /// Returns the number of free bytes in the store. The temporary files of an import may take as much
    /// again.
    pub(crate) fn room(&self) -> u64 {
        self.bounds.store.saturating_sub(self.used())
    }

    /// Moves images without a reference or a user to the trash. The caller holds the lock.
    fn discard_unnamed(&self, index: &Index) {
        for (digest, directory) in self.directories() {
            let is_free = lock_file(&directory).is_ok_and(|lock| lock.try_lock().is_ok());
            if is_free && index.names(digest).is_empty() {
                // One that cannot be moved is tried again by the next operation.
                let _ = self.discard(&directory);
            }
        }
    }

    fn discard(&self, directory: &Path) -> io::Result<()> {
        fs::rename(directory, self.path.join("trash").join(staging::random_name()?))
    }

    /// Empties the trash, outside of the lock because that may take long.
    fn empty_trash(&self) {
        for entry in fs::read_dir(self.path.join("trash"))
            .into_iter()
            .flatten()
            .flatten()
        {
            // Others may do the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }

    fn exclusive(&self) -> Result<File, Error> {
        let file = lock_file(&self.path).when("lock")?;
        file.lock().when("lock")?;
        Ok(file)
    }

    fn shared(&self) -> Result<File, Error> {
        let file = lock_file(&self.path).when("lock")?;
        file.lock_shared().when("lock")?;
        Ok(file)
    }
}

fn describe(directory: &Path) -> io::Result<Description> {
    record::read(&directory.join(DESCRIPTION))
}

/// Returns the present time in seconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
