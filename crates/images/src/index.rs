//! The index of the store: references and the images that they mean.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
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
        match fs::read(store.join(NAME)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the index of a store.
    pub(crate) fn write(&self, store: &Path) -> io::Result<()> {
        let new = store.join(format!("{NAME}.{}", random_name()?));
        let written = write(&new, &serde_json::to_vec_pretty(self)?);
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
