//! Unpacks an image, layer by layer.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_policy::Bytes;

use crate::bounds::Bounds;
use crate::decode::Decoded;
use crate::digest::{Digest, Hashing};
use crate::document::Configuration;
use crate::error::{Error, InStore};
use crate::layer::{Budget, Content, LayerError, apply};
use crate::platform;
use crate::reference::Reference;
use crate::staging::{Staging, make_private};
use crate::store::{Description, ROOT, Store, now};
use crate::tree::Tree;

/// Number of entries that whiteouts may find and leave, for each that an image may have.
const KEPT: u64 = 4;

/// An image under construction. Dropping it removes its files.
#[derive(Debug)]
pub(crate) struct Build {
    store: Store,
    staging: Staging,
    tree: Tree,
    digest: Digest,
    configuration: Configuration,
    budget: Budget,
    content: Content,
    /// Number of layers so far.
    layers: usize,
    /// Set if the store has room for less than an image may take.
    is_short: bool,
}

impl Build {
    /// Begins to unpack an image into a store.
    pub(crate) fn new(store: Store, configuration: &[u8]) -> Result<Self, Error> {
        let (staging, room) = (store.staging()?, store.room());
        let bounds = *store.bounds();
        let parsed = Configuration::read(configuration, bounds.layers)?;
        let root = staging.image().join(ROOT);
        make_private(&root).when("write")?;
        // The directory above is private. This one is the root of cells, whose programs are somebody else.
        rustix::fs::chmod(&root, rustix::fs::Mode::from_raw_mode(0o755))
            .map_err(io::Error::from)
            .when("write")?;
        Ok(Self {
            tree: Tree::open(&root).when("write")?,
            staging,
            digest: Digest::of(configuration),
            configuration: parsed,
            budget: Budget {
                entries: bounds.entries,
                bytes: bounds.image.min(room),
                kept: bounds.entries.saturating_mul(KEPT),
                most: (bounds.entries, Bytes(bounds.image)),
            },
            content: Content::default(),
            layers: 0,
            is_short: room < bounds.image,
            store,
        })
    }

    /// Applies the next layer, compressed or not. The layer must have the digest in the configuration, so
    /// that equal configurations have equal trees, from any source.
    pub(crate) fn layer(&mut self, file: File) -> Result<(), Error> {
        self.layer_unless(file, &AtomicBool::new(false))
    }

    fn layer_unless(&mut self, file: File, cancelled: &AtomicBool) -> Result<(), Error> {
        let number = self.layers + 1;
        let failed = |source| Error::Layer { number, source };
        let expected = self.configuration.rootfs.diff_ids.get(self.layers).copied();
        let found = match self.applied(file, cancelled) {
            Err(LayerError::Bytes(_)) if self.is_short => return Err(self.store.full()),
            applied => applied.map_err(failed)?,
        };
        self.layers = number;
        match expected {
            Some(expected) if expected == found => Ok(()),
            Some(expected) => Err(Error::Digest {
                what: format!("layer {number}, decompressed,"),
                expected,
                found,
            }),
            None => Err(self.other_number()),
        }
    }

    /// Applies the next layer beside other tasks. Dropped, it ends the unpacking.
    pub(crate) async fn layer_in_background(mut self, file: File) -> Result<Self, Error> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancel = CancelOnDrop(Arc::clone(&cancelled));
        let applying = move || self.layer_unless(file, &cancelled).map(|()| self);
        let applied = tokio::task::spawn_blocking(applying).await;
        applied.map_err(io::Error::other).when("write")?
    }

    /// Applies a layer in a confined thread. Returns the digest of the layer after decompression.
    fn applied(&mut self, file: File, cancelled: &AtomicBool) -> Result<Digest, LayerError> {
        let (bounds, confine) = (self.store.bounds(), self.store.confine());
        let (root, tree) = (self.staging.image().join(ROOT), &self.tree);
        let (budget, content) = (&mut self.budget, &mut self.content);
        let apply = || {
            confine(&root).map_err(LayerError::Confine)?;
            let decoded = Decoded::of(file, bounds).map_err(LayerError::Input)?;
            let mut input = Hashing::new(Cancellable { decoded, cancelled });
            apply(tree, &mut input, budget, content)?;
            Ok(input.finish().0)
        };
        let died = || LayerError::Confine(io::Error::other("the thread that unpacks it has panicked"));
        std::thread::scope(|scope| scope.spawn(apply).join().unwrap_or_else(|_| Err(died())))
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        self.store.bounds()
    }

    /// Creates a file without a name, for a layer on its way.
    pub(crate) fn spool(&self) -> Result<File, Error> {
        let file = self.staging.create("layer").when("write")?;
        std::fs::remove_file(self.staging.file("layer")).when("write")?;
        Ok(file)
    }

    /// Adds the image to the store under its references.
    pub(crate) fn finish(self, references: &[Reference]) -> Result<Digest, Error> {
        if self.layers != self.configuration.rootfs.diff_ids.len() {
            return Err(self.other_number());
        }
        let description = Description {
            digest: self.digest,
            architecture: platform::architecture().to_owned(),
            layers: self.layers,
            content: self.content,
            unpacked: now(),
            process: self.configuration.config.unwrap_or_default(),
        };
        self.store.commit(&self.staging, &description, references)?;
        Ok(self.digest)
    }

    fn other_number(&self) -> Error {
        let listed = self.configuration.rootfs.diff_ids.len();
        Error::ArchiveContent(format!(
            "the manifest and the configuration of the image disagree on its layers: {listed} are configured"
        ))
    }
}

/// Cancels a build when its caller is dropped. Has no effect on a completed build.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A layer that fails to be read once its build is cancelled.
struct Cancellable<'a> {
    decoded: Decoded,
    cancelled: &'a AtomicBool,
}

impl Read for Cancellable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(io::Error::other("it was cancelled")),
            false => self.decoded.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_cancelled_layer_ends_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::below(directory.path(), Bounds::DEFAULT, |_| Ok(())).unwrap();
        let mut writer = ringfence_tar::Writer::new(Vec::new());
        let member = ringfence_tar::Member {
            path: b"a".to_vec(),
            target: Vec::new(),
            kind: ringfence_tar::Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 0,
            modified: 0,
        };
        writer.member(&member).unwrap();
        let layer = writer.finish().unwrap();
        let path = directory.path().join("layer.tar");
        fs::write(&path, &layer).unwrap();
        let configuration = Configuration::of_root(Digest::of(&layer));
        let apply = |cancelled: &AtomicBool| {
            let mut build = Build::new(store.clone(), &configuration).unwrap();
            build.layer_unless(File::open(&path).unwrap(), cancelled)
        };
        let cancelled = Arc::new(AtomicBool::new(false));
        apply(&cancelled).unwrap();
        drop(CancelOnDrop(Arc::clone(&cancelled)));
        let error = apply(&cancelled).unwrap_err();
        assert!(format!("{error:?}").contains("it was cancelled"), "{error:?}");
        let staging = fs::read_dir(directory.path().join("images/staging")).unwrap();
        assert_eq!(staging.count(), 0);
    }
}
