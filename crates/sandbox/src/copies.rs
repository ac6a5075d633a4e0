//! Copies of a sandbox's files: into other sandboxes, and into a snapshot.
//!
//! The init of the sandbox archives its files, that of another one unpacks them. What comes between is bytes of a guest:
//! bounded in number and time, and never looked into.

use std::time::Duration;

use ringfence_jail::init::files::TreeReport;
use ringfence_policy::{Bytes, Scope};

use super::error::Error;
use super::files::{Operating, Operation};
use super::registry::Sandboxes;
use super::sandbox::Sandbox;
use super::snapshots::{NewSnapshot, SnapshotInfo, SnapshotReader};

/// Directories to which programs of a sandbox write, and which last.
const OWN: &[&str] = &["/workspace", "/tmp", "/output"];
/// Maximum time of one copy.
const COPYING: Duration = Duration::from_secs(10 * 60);

/// The files of a sandbox as an archive, in pieces.
pub(crate) struct Packed {
    operating: Operating,
    most: Bytes,
    left: u64,
}

impl Packed {
    /// Returns the next piece; `None` once the archive is complete.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let piece = self.operating.next_in_time().await?;
        if let Some(piece) = &piece {
            let left = self.left.checked_sub(piece.len() as u64);
            self.left = left.ok_or(Error::CopyTooLarge(self.most))?;
        }
        Ok(piece)
    }

    /// Returns the sandbox's own account of what was left out, once the archive is complete.
    pub(crate) fn skipped(&self) -> u64 {
        let report: Result<TreeReport, Error> = self.operating.report();
        report.map_or(0, |report| report.skipped)
    }
}

/// A source of an archive.
enum Source<'a> {
    Sandbox(Packed),
    Snapshot(&'a mut SnapshotReader),
}

impl Source<'_> {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Sandbox(packed) => packed.next().await,
            Self::Snapshot(reader) => reader.next().await,
        }
    }
}

impl Sandbox {
    /// Begins to archive its files. A file that programs change meanwhile is as `tar` would find it.
    async fn pack(&self) -> Result<Packed, Error> {
        let paths = OWN.iter().map(|path| (*path).to_owned()).collect();
        let mut operating = self.operate(&Operation::Pack { paths }).await?;
        operating.end_input();
        let most = largest_archive(self.request().limits.disk);
        Ok(Packed {
            operating,
            most,
            left: most.0,
        })
    }

    /// Fills it with the files of a snapshot.
    pub(crate) async fn fill(&self, reader: &mut SnapshotReader) -> Result<(), Error> {
        in_time(copy(Source::Snapshot(reader), &[self])).await
    }

    /// Fills others with its files.
    pub(crate) async fn copy_into(&self, others: &[&Self]) -> Result<(), Error> {
        in_time(async { copy(Source::Sandbox(self.pack().await?), others).await }).await
    }
}

/// Returns the length of the longest archive of files that this disk holds: many small files have as many headers.
fn largest_archive(disk: Bytes) -> Bytes {
    Bytes(disk.0.saturating_add(disk.0 / 4).saturating_add(1 << 20))
}

async fn copy(mut source: Source<'_>, others: &[&Sandbox]) -> Result<(), Error> {
    let mut unpacking = Vec::new();
    for other in others {
        let path = "/".to_owned();
        unpacking.push(other.operate(&Operation::Extract { path }).await?);
    }
    // An error drops the operations, which kills them: what has arrived is not taken for the whole.
    while let Some(piece) = source.next().await? {
        for operating in &unpacking {
            if !operating.write(piece.clone()).await {
                // It has failed, and says why below; the others are of no use without it.
                break;
            }
        }
    }
    for operating in unpacking {
        operating.whole().await?;
    }
    Ok(())
}

async fn in_time<T>(copying: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let copied = tokio::time::timeout(COPYING, copying).await;
    copied.unwrap_or_else(|_| {
        Err(Error::Broken(format!(
            "its files were not copied within {} minutes",
            COPYING.as_secs() / 60
        )))
    })
}

impl Sandboxes {
    /// Keeps a sandbox's files as a snapshot. Processes, interpreters and `/dev/shm` are no part of it.
    ///
    /// # Errors
    /// If there is no such sandbox, it is paused, its files cannot be archived within bounds, or there is no room.
    pub async fn snapshot(&self, scope: &Scope, name: &str, new: NewSnapshot) -> Result<SnapshotInfo, Error> {
        let store = self.store()?;
        let sandbox = self.get(scope, name)?;
        sandbox.check_running()?;
        in_time(async {
            let writing = store.begin(scope, new, &sandbox)?;
            let mut packed = sandbox.pack().await?;
            while let Some(piece) = packed.next().await? {
                if !writing.write(piece).await {
                    break;
                }
            }
            writing.finish(packed.skipped()).await
        })
        .await
    }
}
