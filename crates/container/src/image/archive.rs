//! Writes the tar archives of images, all members owned by root.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use ringfence_tar::{Kind, Member};

/// A writer of tar archives.
#[derive(Debug)]
pub(super) struct Writer<W: Write>(ringfence_tar::Writer<W>);

impl<W: Write> Writer<W> {
    pub(super) fn new(writer: W) -> Self {
        Self(ringfence_tar::Writer::new(writer))
    }

    pub(super) fn directory(&mut self, path: &str, mode: u32) -> io::Result<()> {
        self.0.member(&member(path, Kind::Directory, mode))
    }

    pub(super) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.0.member(&Member {
            target: target.into(),
            ..member(path, Kind::Symlink, 0o777)
        })
    }

    /// Adds a world-readable file of these bytes.
    pub(super) fn bytes(&mut self, path: &str, mut bytes: &[u8]) -> io::Result<()> {
        let size = bytes.len() as u64;
        self.0.member(&Member {
            size,
            ..member(path, Kind::File, 0o644)
        })?;
        self.0.content(size, &mut bytes).map(drop)
    }

    /// Adds a copy of a file under another path. Keeps its modification time, which Python compares.
    pub(super) fn file(&mut self, path: &str, source: &Path, mode: u32) -> io::Result<()> {
        let mut file = File::open(source)?;
        let found = file.metadata()?;
        let modified = found.modified()?.duration_since(std::time::UNIX_EPOCH);
        self.0.member(&Member {
            size: found.len(),
            modified: modified.unwrap_or_default().as_secs(),
            ..member(path, Kind::File, mode)
        })?;
        self.0.content(found.len(), &mut file).map(drop)
    }

    pub(super) fn finish(self) -> io::Result<W> {
        self.0.finish()
    }
}

fn member(path: &str, kind: Kind, mode: u32) -> Member {
    Member {
        path: path.into(),
        target: Vec::new(),
        kind,
        mode,
        uid: 0,
        gid: 0,
        size: 0,
        modified: 0,
    }
}
