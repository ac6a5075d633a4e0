//! Limits of images, which an image's author cannot raise.

use std::io::{self, Read};

/// Limits of images and of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Layers of an image.
    pub layers: usize,
    /// Bytes of a manifest, an index or a configuration.
    pub document: u64,
    /// Maximum size of a compressed layer.
    pub blob: u64,
    /// Members of an archive that holds images.
    pub members: usize,
    /// Entries of an image's layers together.
    pub entries: u64,
    /// Unpacked bytes of an image.
    pub image: u64,
    /// Unpacked bytes of all images together.
    pub store: u64,
    /// Decompressed bytes per byte, beyond `free`.
    pub ratio: u64,
    /// Memory that decompression may ask for, in bytes: the window of zstd.
    pub window: u64,
    /// Decompressed bytes that need no ratio: a small layer of zeros is not an attack.
    pub free: u64,
}

impl Bounds {
    /// The limits of the command line.
    pub const DEFAULT: Self = Self {
        layers: 128,
        document: 4 << 20,
        blob: 8 << 30,
        members: 8192,
        entries: 1_000_000,
        image: 16 << 30,
        store: 64 << 30,
        ratio: 200,
        // What `zstd -d` accepts by default.
        window: 128 << 20,
        free: 64 << 20,
    };

    /// Returns the number of bytes that so many compressed ones may become.
    pub(crate) fn decompressed(&self, compressed: u64) -> u64 {
        compressed.saturating_mul(self.ratio).saturating_add(self.free)
    }
}

/// Reads a file to its end; `None` if it is longer than `most`.
pub(crate) fn read_at_most(file: impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}
