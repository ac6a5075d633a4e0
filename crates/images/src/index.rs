//! The index of the store: references and the images that they mean.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::record;
use crate::reference::Reference;
use crate::staging::random_name;

const NAME: &str = "index.json";

/// References, with the digests of their images' configurations.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Index {
    pub(crate) references: BTreeMap<Reference, Digest>,
}

impl Index {
    /// Reads the index of a store; an empty one if there is none.
    pub(crate) fn read(store: &Path) -> io::Result<Self> {
        match record::read(&store.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            read => read,
        }
    }

    /// Replaces the index of a store.
    pub(crate) fn write(&self, store: &Path) -> io::Result<()> {
        let new = store.join(format!("{NAME}.{}", random_name()?));
        let written = write(&new, &record::render(self)?);
        written
            .and_then(|()| fs::rename(&new, store.join(NAME)))
            .inspect_err(|_| drop(fs::remove_file(&new)))
    }

    /// Returns the references of an image.
    pub(crate) fn names(&self, digest: Digest) -> Vec<Reference> {
        let all = self.references.iter();
        all.filter(|(_, found)| **found == digest)
            .map(|(reference, _)| reference.clone())
            .collect()
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
