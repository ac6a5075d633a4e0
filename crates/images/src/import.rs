//! Imports images from files.

use std::fs::File;
use std::io::{self, Seek};
use std::path::Path;

use crate::archive::{Files, has_member, spool};
use crate::build::Build;
use crate::decode::Decoded;
use crate::digest::{Digest, Hashing};
use crate::document::Configuration;
use crate::error::Error;
use crate::layout::{self, ArchivedImage, LayerFile};
use crate::reference::Reference;
use crate::store::Store;

/// An imported image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub references: Vec<Reference>,
    /// Digest of the image's configuration.
    pub digest: Digest,
}

/// Imports the images of an archive of `docker save`, of an OCI layout (archive or directory), or a root file system
/// as a tar archive, which needs a name. A name replaces that in the archive.
///
/// # Errors
/// If the file is none of these, exceeds a limit, or does not match its digests. Nothing is kept of that image.
pub fn import(store: &Store, path: &Path, name: Option<&Reference>) -> Result<Vec<Import>, Error> {
    let bounds = store.bounds();
    if path.is_dir() {
        let files = Files::Directory(path.to_owned());
        return import_all(store, &files, layout::oci(&files, bounds)?, name);
    }
    if !has_member(path, &[layout::DOCKER, layout::OCI], bounds)? {
        return import_root(store, path, name.ok_or(Error::Unnamed)?);
    }
    let staging = store.staging()?;
    let files = spool(path, &staging, store)?;
    let found = match files.open(layout::DOCKER) {
        Ok(_) => layout::docker(&files, bounds)?,
        Err(_) => layout::oci(&files, bounds)?,
    };
    import_all(store, &files, found, name)
}

fn import_all(
    store: &Store,
    files: &Files,
    found: Vec<ArchivedImage>,
    name: Option<&Reference>,
) -> Result<Vec<Import>, Error> {
    if name.is_some() && found.len() > 1 {
        let message = format!("it has {} images, and one name was given", found.len());
        return Err(Error::ArchiveContent(message));
    }
    let named = found.into_iter().map(|image| match name {
        Some(name) => ArchivedImage {
            references: vec![name.clone()],
            ..image
        },
        None => image,
    });
    let named: Vec<ArchivedImage> = named.collect();
    // Before anything is kept.
    for image in &named {
        check_names(store, &image.references, Digest::of(&image.configuration))?;
    }
    named
        .into_iter()
        .map(|image| import_one(store, files, image))
        .collect()
}

fn import_one(store: &Store, files: &Files, image: ArchivedImage) -> Result<Import, Error> {
    if image.references.is_empty() {
        return Err(Error::Unnamed);
    }
    let digest = Digest::of(&image.configuration);
    if !store.name(digest, &image.references)? {
        let mut build = Build::new(store.clone(), &image.configuration)?;
        for layer in &image.layers {
            build.layer(match layer {
                LayerFile::Blob(descriptor) => files.blob_file(descriptor, store.bounds())?,
                LayerFile::Named(name) => files.open(name)?,
            })?;
        }
        build.finish(&image.references)?;
    }
    Ok(Import {
        references: image.references,
        digest,
    })
}

/// Rejects names with a digest, since an archive cannot prove that it has a registry's digest. Rejects names
/// of other images, since an archive's author must not replace an image in use.
fn check_names(store: &Store, references: &[Reference], digest: Digest) -> Result<(), Error> {
    for name in references {
        if name.digest().is_some() {
            return Err(Error::DigestName(name.to_string()));
        }
        match store.meaning(name)? {
            Some(other) if other != digest => {
                return Err(Error::NameTaken {
                    name: name.to_string(),
                    digest: other,
                });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Imports a root file system, which becomes the only layer.
fn import_root(store: &Store, path: &Path, name: &Reference) -> Result<Vec<Import>, Error> {
    let unreadable = |source| Error::Input {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let decoded = Decoded::of(file.try_clone().map_err(unreadable)?, store.bounds());
    let mut hashing = Hashing::new(io::sink());
    io::copy(&mut decoded.map_err(Error::Archive)?, &mut hashing).map_err(Error::Archive)?;
    let configuration = Configuration::of_root(hashing.finish().0);
    file.rewind().map_err(unreadable)?;
    let references = vec![name.clone()];
    let digest = Digest::of(&configuration);
    check_names(store, &references, digest)?;
    if !store.name(digest, &references)? {
        let mut build = Build::new(store.clone(), &configuration)?;
        build.layer(file)?;
        build.finish(&references)?;
    }
    Ok(vec![Import { references, digest }])
}
