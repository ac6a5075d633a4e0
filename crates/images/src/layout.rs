//! The images of an OCI layout, and of archives that `docker save` writes.

use serde::Deserialize;
use serde_json::Value;

use crate::archive::Files;
use crate::bounds::Bounds;
use crate::document::{Descriptor, Document, DocumentError, Manifest, choose};
use crate::error::Error;
use crate::reference::Reference;

/// Table of contents of an OCI layout.
pub(crate) const OCI: &str = "index.json";
/// Table of contents of an archive of `docker save`.
pub(crate) const DOCKER: &str = "manifest.json";

/// Maximum number of indexes in each other.
const MAX_INDEXES: usize = 3;
/// Maximum number of images in one archive.
const MAX_IMAGES: usize = 64;

/// An image in an archive, or in a directory.
#[derive(Debug)]
pub(crate) struct ArchivedImage {
    pub(crate) references: Vec<Reference>,
    pub(crate) configuration: Vec<u8>,
    pub(crate) layers: Vec<LayerFile>,
}

#[derive(Debug)]
pub(crate) enum LayerFile {
    Blob(Descriptor),
    /// Name of a file; its digest is that of the configuration.
    Named(String),
}

/// An entry of `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Returns the images of an archive of `docker save`.
pub(crate) fn docker(files: &Files, bounds: &Bounds) -> Result<Vec<ArchivedImage>, Error> {
    let text = files.document(DOCKER, bounds)?;
    let saved: Vec<Saved> = serde_json::from_slice(&text).map_err(|source| DocumentError::Malformed {
        what: "the list of images in the archive",
        source,
    })?;
    check_number(saved.len())?;
    saved
        .into_iter()
        .map(|image| docker_image(image, files, bounds))
        .collect()
}

fn docker_image(image: Saved, files: &Files, bounds: &Bounds) -> Result<ArchivedImage, Error> {
    let names = image.repo_tags.unwrap_or_default();
    let references: Result<_, _> = names.iter().map(|name| name.parse()).collect();
    Ok(ArchivedImage {
        references: references?,
        configuration: files.document(&image.config, bounds)?,
        layers: image.layers.into_iter().map(LayerFile::Named).collect(),
    })
}

/// Returns the images of an OCI layout.
pub(crate) fn oci(files: &Files, bounds: &Bounds) -> Result<Vec<ArchivedImage>, Error> {
    let Document::Index(all) = Document::read(&files.document(OCI, bounds)?)? else {
        return Err(DocumentError::Invalid("the index of the layout has no manifests".to_owned()).into());
    };
    check_number(all.len())?;
    // Several without names are the variants of one image.
    let named = all.iter().filter(|descriptor| reference(descriptor).is_some());
    let chosen: Vec<&Descriptor> = match named.clone().count() {
        0 => vec![choose(&all)?],
        _ => named.collect(),
    };
    chosen
        .into_iter()
        .map(|descriptor| oci_image(descriptor, files, bounds))
        .collect()
}

fn oci_image(descriptor: &Descriptor, files: &Files, bounds: &Bounds) -> Result<ArchivedImage, Error> {
    let manifest = manifest(descriptor, files, bounds)?;
    manifest.check(bounds.layers)?;
    Ok(ArchivedImage {
        references: reference(descriptor).into_iter().collect(),
        configuration: files.blob_document(&manifest.config, bounds)?,
        layers: manifest.layers.into_iter().map(LayerFile::Blob).collect(),
    })
}

fn manifest(descriptor: &Descriptor, files: &Files, bounds: &Bounds) -> Result<Manifest, Error> {
    let mut descriptor = descriptor.clone();
    for _ in 0..=MAX_INDEXES {
        match Document::read(&files.blob_document(&descriptor, bounds)?)? {
            Document::Manifest(manifest) => return Ok(manifest),
            Document::Index(all) => descriptor = choose(&all)?.clone(),
        }
    }
    Err(DocumentError::Invalid("too many indexes lead to the image".to_owned()).into())
}

/// Returns the reference in a descriptor's annotations. A tag alone is none: it would name another image.
fn reference(descriptor: &Descriptor) -> Option<Reference> {
    let annotations = descriptor.annotations.as_ref()?;
    let text = |key: &str| annotations.get(key).and_then(Value::as_str);
    let full = text("io.containerd.image.name");
    let own = text("org.opencontainers.image.ref.name").filter(|name| name.contains([':', '/']));
    full.or(own)?.parse().ok()
}

fn check_number(images: usize) -> Result<(), DocumentError> {
    match images {
        1..=MAX_IMAGES => Ok(()),
        0 => Err(DocumentError::Invalid("the archive has no image".to_owned())),
        _ => Err(DocumentError::TooMany {
            what: "the archive",
            most: format!("{MAX_IMAGES} images"),
        }),
    }
}
