//! Copies of a sandbox's files: into other sandboxes, and into a snapshot.
//!
//! The init of the sandbox archives its files, and that of another sandbox unpacks them. The archive is a
//! guest's bytes: bounded in number and time, and never parsed by the server.

use std::time::Duration;

use ringfence_jail::init::files::TreeReport;
use ringfence_policy::{Bytes, Scope};

use super::error::Error;
use super::events::{LifeEvent, LifeEventType};
use super::files::{Operating, Operation};
use super::id::SandboxName;
use super::pause::Clock;
use super::registry::Sandboxes;
use super::sandbox::Sandbox;
use super::snapshots::{NewSnapshot, SnapshotInfo, SnapshotReader};

/// Directories to which programs of a sandbox write, and which last. With the fence `box` they write everywhere, and its root goes along.
const COPIED_DIRECTORIES: &[&str] = &["/workspace", "/tmp", "/output"];
/// Maximum time of one copy.
const COPYING: Duration = Duration::from_secs(10 * 60);

/// The files of a sandbox as an archive, in pieces.
pub(crate) struct ArchiveStream {
    operating: Operating,
    /// Set if the archive has the changes of a root.
    is_of_root: bool,
    limit: Bytes,
    left: u64,
}

impl ArchiveStream {
    /// Returns the next piece; `None` once the archive is complete.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let piece = self.operating.next_with_deadline().await?;
        if let Some(piece) = &piece {
            let left = self.left.checked_sub(piece.len() as u64);
            self.left = left.ok_or(Error::CopyTooLarge(self.limit))?;
        }
        Ok(piece)
    }

    /// Returns the number of omitted entries, as reported by the sandbox once the archive is complete.
    pub(crate) fn skipped(&self) -> u64 {
        let report: Result<TreeReport, Error> = self.operating.report();
        report.map_or(0, |report| report.skipped)
    }
}

/// A source of an archive.
enum Source<'a> {
    Sandbox(ArchiveStream),
    Snapshot(&'a mut SnapshotReader),
}

impl Source<'_> {
    /// Returns the operation that unpacks it.
    fn unpacking(&self) -> Operation {
        let is_of_root = match self {
            Self::Sandbox(packed) => packed.is_of_root,
            Self::Snapshot(reader) => reader.info.is_of_root(),
        };
        match is_of_root {
            true => Operation::ExtractRoot,
            false => Operation::Extract { path: "/".to_owned() },
        }
    }

    async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Sandbox(packed) => packed.next().await,
            Self::Snapshot(reader) => reader.next().await,
        }
    }
}

impl Sandbox {
    /// Begins to archive its files. A file that programs change meanwhile is as `tar` would find it.
    async fn pack(&self) -> Result<ArchiveStream, Error> {
        let paths = COPIED_DIRECTORIES.iter().map(|path| (*path).to_owned()).collect();
        let is_of_root = self.request().account.is_root();
        let operation = match is_of_root {
            true => Operation::PackRoot { paths },
            false => Operation::Pack { paths },
        };
        let mut operating = self.operate(&operation).await?;
        operating.end_input();
        let limit = largest_archive(self.request().limits.disk);
        Ok(ArchiveStream {
            operating,
            is_of_root,
            limit,
            left: limit.0,
        })
    }

    /// Fills the sandbox with the files of a snapshot.
    pub(crate) async fn fill(&self, reader: &mut SnapshotReader) -> Result<(), Error> {
        with_deadline(&self.pauses().clock(), copy(Source::Snapshot(reader), &[self])).await
    }

    /// Fills others with its files.
    pub(crate) async fn copy_into(&self, others: &[&Self]) -> Result<(), Error> {
        let copying = async { copy(Source::Sandbox(self.pack().await?), others).await };
        with_deadline(&self.pauses().clock(), copying).await
    }
}

/// Returns the length of the longest archive of files that this disk holds: many small files have as many headers.
fn largest_archive(disk: Bytes) -> Bytes {
    Bytes(disk.0.saturating_add(disk.0 / 4).saturating_add(1 << 20))
}

async fn copy(mut source: Source<'_>, others: &[&Sandbox]) -> Result<(), Error> {
    let mut unpacking = Vec::new();
    for other in others {
        unpacking.push(other.operate(&source.unpacking()).await?);
    }
    // An error drops the operations, which kills them: what has arrived is not taken for the whole.
    while let Some(piece) = source.next().await? {
        if let Some(failed) = first_that_fails(&unpacking, &piece).await {
            // All or none: the others end with it.
            unpacking.swap_remove(failed).whole().await?;
            return Err(Error::Broken("a copy ended before its archive".to_owned()));
        }
    }
    for operating in unpacking {
        operating.whole().await?;
    }
    Ok(())
}

/// Sends a piece to each; returns the first that takes no more.
async fn first_that_fails(unpacking: &[Operating], piece: &[u8]) -> Option<usize> {
    for (index, operating) in unpacking.iter().enumerate() {
        if !operating.write(piece.to_vec()).await {
            return Some(index);
        }
    }
    None
}

/// Awaits a copy for at most [`COPYING`] of the clock.
async fn with_deadline<T>(
    clock: &Clock,
    copying: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let copied = clock.timeout(COPYING, copying).await;
    copied.unwrap_or_else(|| {
        Err(Error::Broken(format!(
            "its files were not copied within {} minutes",
            COPYING.as_secs() / 60
        )))
    })
}

impl Sandboxes {
    /// Keeps a sandbox's files as a snapshot, which may get a name that is unique among the owner's.
    /// Processes, interpreters and `/dev/shm` are not part of it.
    ///
    /// # Errors
    /// If there is no such sandbox, it is paused, its files cannot be archived within bounds, or there is no room.
    pub async fn snapshot(
        &self,
        scope: &Scope,
        name: &str,
        snapshot: Option<SandboxName>,
    ) -> Result<SnapshotInfo, Error> {
        let new = NewSnapshot {
            name: snapshot,
            ..NewSnapshot::default()
        };
        self.snapshot_as(scope, name, new).await
    }

    /// Keeps a sandbox's files as a snapshot, as [`Sandboxes::snapshot`] does.
    ///
    /// # Errors
    /// As there.
    pub async fn snapshot_as(
        &self,
        scope: &Scope,
        name: &str,
        new: NewSnapshot,
    ) -> Result<SnapshotInfo, Error> {
        let sandbox = self.get(scope, name)?;
        sandbox.check_running()?;
        let copying = async {
            let writing = self.store.begin(scope, new, &sandbox)?;
            let mut packed = sandbox.pack().await?;
            while let Some(piece) = packed.next().await? {
                if !writing.write(piece).await {
                    break;
                }
            }
            writing.finish(packed.skipped()).await
        };
        let made = with_deadline(&sandbox.pauses().clock(), copying).await?;
        let event = LifeEvent {
            snapshot: Some(made.id.to_string()),
            ..LifeEvent::new(LifeEventType::SnapshotCreated, &sandbox)
        };
        self.emit(scope, event);
        Ok(made)
    }
}
