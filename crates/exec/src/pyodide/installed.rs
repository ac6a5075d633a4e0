//! The files that a worker is started from.

use std::path::PathBuf;
use std::sync::Arc;

use super::cache::CacheEntry;

/// The files that a worker is started from.
#[derive(Debug, Clone)]
pub(super) struct Installed {
    pub(super) deno: PathBuf,
    pub(super) pyodide: PathBuf,
    pub(super) worker: PathBuf,
    pub(super) guest: PathBuf,
    pub(super) snapshot: PathBuf,
    pub(super) packages: Option<Packages>,
    /// Keeps the files above from being removed.
    pub(super) _held: Arc<CacheEntry>,
}

/// The concatenated files of all wheels.
#[derive(Debug, Clone)]
pub(super) struct Packages {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Keeps the file from being removed.
    pub(super) _held: Arc<CacheEntry>,
}
