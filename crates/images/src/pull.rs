//! Pulls images from registries.

use std::io::{Seek, Write};
use std::ops::ControlFlow;

use crate::archive::check;
use crate::build::Build;
use crate::digest::{Digest, Hashing};
use crate::document::{Descriptor, Document, DocumentError, Manifest, choose};
use crate::error::{Error, InStore};
use crate::reference::Reference;
use crate::registry::{Network, Registry};
use crate::store::Store;

/// Maximum number of indexes that lead to an image.
const MAX_INDEXES: usize = 3;

/// A stage of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of the layer, from 1.
    pub layer: usize,
    pub layers: usize,
    /// Number of bytes of the layer that have arrived.
    pub received: u64,
    pub size: u64,
}

/// An image after a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulled {
    /// Digest of the image's configuration.
    pub digest: Digest,
    /// Set if the store already had the image, so that no layer was fetched.
    pub was_there: bool,
}

/// Pulls an image. All data of a registry is checked by digest, except for the meaning of a tag.
///
/// # Errors
/// If the registry fails, or the image exceeds a limit or does not match its digests. Nothing is kept then.
pub async fn pull(
    store: &Store,
    reference: &Reference,
    network: &Network,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Pulled, Error> {
    let mut registry = Registry::new(reference, network);
    let manifest = manifest(store, reference, &mut registry).await?;
    let most = store.bounds().document;
    let too_long = || DocumentError::Invalid("the configuration of the image is too long".to_owned());
    let length = Some(manifest.config.size)
        .filter(|size| *size <= most)
        .ok_or_else(too_long)?;
    let mut configuration = Vec::new();
    let mut keep = |bytes: &[u8]| {
        configuration.extend_from_slice(bytes);
        ControlFlow::Continue(())
    };
    registry
        .blob(&manifest.config.digest.to_string(), length, &mut keep)
        .await?;
    let digest = Digest::of(&configuration);
    check(
        "the configuration",
        &manifest.config,
        digest,
        configuration.len() as u64,
    )?;
    let references = [reference.clone()];
    if store.name(digest, &references)? {
        return Ok(Pulled {
            digest,
            was_there: true,
        });
    }
    let mut build = Build::new(store.clone(), &configuration)?;
    let layers = manifest.layers.len();
    for (number, descriptor) in manifest.layers.iter().enumerate() {
        let mut report = |received| {
            progress(Progress {
                layer: number + 1,
                layers,
                received,
                size: descriptor.size,
            });
        };
        build = layer(build, descriptor, &mut registry, &mut report).await?;
    }
    build.finish(&references)?;
    Ok(Pulled {
        digest,
        was_there: false,
    })
}

/// Returns the manifest for this machine.
async fn manifest(
    store: &Store,
    reference: &Reference,
    registry: &mut Registry<'_>,
) -> Result<Manifest, Error> {
    let bounds = store.bounds();
    let mut version = reference.version();
    let mut expected = reference.digest();
    for _ in 0..=MAX_INDEXES {
        let text = registry.manifest(&version, bounds.document).await?;
        let found = Digest::of(&text);
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            return Err(Error::Digest {
                what: "the manifest".to_owned(),
                expected,
                found,
            });
        }
        match Document::read(&text)? {
            Document::Manifest(manifest) => {
                manifest.check(bounds.layers)?;
                return Ok(manifest);
            }
            Document::Index(all) => {
                let chosen = choose(&all)?.digest;
                version = chosen.to_string();
                expected = Some(chosen);
            }
        }
    }
    Err(DocumentError::Invalid("too many indexes lead to the image".to_owned()).into())
}

/// Fetches a layer and unpacks it. The file is checked before it is opened as an archive.
async fn layer(
    build: Build,
    descriptor: &Descriptor,
    registry: &mut Registry<'_>,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Build, Error> {
    let what = format!("the layer {}", descriptor.digest);
    if descriptor.size > build.bounds().blob {
        return Err(Error::ArchiveContent(format!("{what} is too large")));
    }
    let mut file = build.spool()?;
    let mut hashing = Hashing::new(&mut file);
    let mut failure = None;
    let mut received = 0;
    let mut write = |bytes: &[u8]| {
        received += bytes.len() as u64;
        progress(received);
        match hashing.write_all(bytes) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let sent = registry
        .blob(&descriptor.digest.to_string(), descriptor.size, &mut write)
        .await;
    if let Some(error) = failure {
        return Err(error).when("write");
    }
    sent?;
    let (found, length) = hashing.finish();
    check(&what, descriptor, found, length)?;
    file.rewind().when("read")?;
    build.layer_in_background(file).await
}
