//! Transfers of archives: pieces on their way to and from the files of a snapshot.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};

use ringfence_policy::Scope;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{
    BROKEN_OFF, MAX, MAX_OF_SCOPE, SnapshotInfo, SnapshotStore, archive_path, failed, record_path, unfinished,
};
use crate::error::Error;
use crate::id::SandboxId;
use crate::lock::lock;

/// Pieces on their way to or from a file, of at most 64 KiB.
const UNWRITTEN: usize = 8;
const PIECE: usize = 64 * 1024;

/// A snapshot that is being written. Dropping it leaves nothing, also while the files are brought to the disk.
pub(crate) struct SnapshotWriter {
    claim: WriteClaim,
    pieces: mpsc::Sender<Piece>,
    task: JoinHandle<Result<SnapshotInfo, Error>>,
}

pub(super) enum Piece {
    Bytes(Vec<u8>),
    /// The archive is complete, without this number of files.
    End {
        skipped: u64,
    },
}

impl SnapshotWriter {
    /// Begins to write the files.
    pub(super) fn start(files: Unfinished) -> Self {
        let (pieces, received) = mpsc::channel(UNWRITTEN);
        Self {
            claim: WriteClaim {
                store: files.store.clone(),
                id: files.info.id.clone(),
            },
            pieces,
            task: tokio::task::spawn_blocking(move || files.write(received)),
        }
    }

    /// Writes a chunk. Returns `false` on failure; [`Self::finish`] then returns the error.
    pub(crate) async fn write(&self, bytes: Vec<u8>) -> bool {
        self.pieces.send(Piece::Bytes(bytes)).await.is_ok()
    }

    /// Keeps the snapshot.
    pub(crate) async fn finish(self, skipped: u64) -> Result<SnapshotInfo, Error> {
        // Fails only where the task has failed.
        let _ = self.pieces.send(Piece::End { skipped }).await;
        let finished = self.task.await;
        drop(self.claim);
        match finished {
            Ok(finished) => finished,
            Err(_) => Err(Error::Broken("the writer of the snapshot has failed".to_owned())),
        }
    }
}

/// Claim of whoever waits for a snapshot. Dropped early, its writer keeps nothing.
struct WriteClaim {
    store: SnapshotStore,
    id: SandboxId,
}

impl Drop for WriteClaim {
    fn drop(&mut self) {
        lock(&self.store.index).writing.remove(&self.id);
    }
}

/// A snapshot that is being read.
#[derive(Debug)]
pub(crate) struct SnapshotReader {
    pub(crate) info: SnapshotInfo,
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    left: u64,
}

impl SnapshotReader {
    /// Begins to read an archive.
    pub(super) fn start(info: SnapshotInfo, file: File) -> Self {
        let (sender, pieces) = mpsc::channel(UNWRITTEN);
        let left = info.size;
        // Ends when the reader is dropped.
        drop(tokio::task::spawn_blocking(move || send_pieces(file, &sender)));
        Self { info, pieces, left }
    }

    /// Returns the next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let failed = failed("read");
        match self.pieces.recv().await {
            Some(Ok(piece)) => {
                let left = self.left.checked_sub(piece.len() as u64);
                self.left = left.ok_or_else(|| failed(ErrorKind::InvalidData.into()))?;
                Ok(Some(piece))
            }
            Some(Err(error)) => Err(failed(error)),
            None if self.left > 0 => Err(failed(ErrorKind::UnexpectedEof.into())),
            None => Ok(None),
        }
    }
}

fn send_pieces(mut file: File, sender: &mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut buffer = vec![0; PIECE];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(buffer[..count].to_vec()),
            Err(error) => Err(error),
        };
        let failed = read.is_err();
        if sender.blocking_send(read).is_err() || failed {
            return;
        }
    }
}

/// The files of a snapshot that is not finished: removed when this is dropped.
pub(super) struct Unfinished {
    store: SnapshotStore,
    owner: Scope,
    pub(super) info: SnapshotInfo,
    /// Set if the snapshot replaces the one with its name.
    replaces: bool,
    is_kept: bool,
}

impl Unfinished {
    /// Counts the snapshot among the owner's.
    pub(super) fn begin(
        store: &SnapshotStore,
        owner: &Scope,
        info: SnapshotInfo,
        replaces: bool,
    ) -> Result<Self, Error> {
        let mut index = lock(&store.index);
        if let Some(name) = &info.name
            && !replaces
            && index
                .of(Some(owner))
                .any(|known| known.name.as_ref() == Some(name))
        {
            return Err(Error::SnapshotTaken(name.to_string()));
        }
        if index.of(None).count() >= MAX {
            return Err(Error::TooManySnapshots(MAX));
        }
        if index.of(Some(owner)).count() >= MAX_OF_SCOPE {
            return Err(Error::TooManySnapshots(MAX_OF_SCOPE));
        }
        let entry = (owner.clone(), info.clone());
        index.writing.insert(info.id.clone(), entry);
        Ok(Self {
            store: store.clone(),
            owner: owner.clone(),
            info,
            replaces,
            is_kept: false,
        })
    }

    /// Writes the received data to its end, and publishes the snapshot.
    pub(super) fn write(self, received: mpsc::Receiver<Piece>) -> Result<SnapshotInfo, Error> {
        let failed = failed("write");
        let file = self.store.create_archive(&self.info.id);
        self.write_to(file.map_err(failed)?, received)
    }

    pub(super) fn write_to(
        mut self,
        mut file: File,
        mut received: mpsc::Receiver<Piece>,
    ) -> Result<SnapshotInfo, Error> {
        let failed = failed("write");
        loop {
            match received.blocking_recv() {
                Some(Piece::Bytes(bytes)) => {
                    self.info.size += bytes.len() as u64;
                    self.store.count_bytes(&self.owner, &self.info)?;
                    file.write_all(&bytes).map_err(failed)?;
                }
                Some(Piece::End { skipped }) => {
                    self.info.skipped = skipped;
                    file.sync_all().map_err(failed)?;
                    self.keep()?;
                    return Ok(self.info.clone());
                }
                None => return Err(Error::Broken(BROKEN_OFF.to_owned())),
            }
        }
    }

    /// Puts the files in their places, the record last, and lists the snapshot.
    fn keep(&mut self) -> Result<(), Error> {
        let broken_off = || Error::Broken(BROKEN_OFF.to_owned());
        // Checked before the record is written, too: a server killed in between would list it at its next start.
        if !lock(&self.store.index).writing.contains_key(&self.info.id) {
            return Err(broken_off());
        }
        let directory = &self.store.directory;
        let archive_path = archive_path(directory, &self.info.id);
        let renamed = fs::rename(unfinished(&archive_path), archive_path);
        let written = renamed.and_then(|()| self.store.write_record(&self.owner, &self.info));
        written.map_err(failed("write"))?;
        let mut index = lock(&self.store.index);
        index.writing.remove(&self.info.id).ok_or_else(broken_off)?;
        self.is_kept = true;
        let entry = (self.owner.clone(), self.info.clone());
        index.kept.insert(self.info.id.clone(), entry);
        if self.replaces {
            let tags = self.info.tags().into_keys().collect();
            // What cannot be removed keeps its id, and comes after this one by name.
            let _ = self.store.take_tags(&mut index, &self.owner, &self.info, &tags);
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_kept {
            for path in [
                record_path(&self.store.directory, &self.info.id),
                archive_path(&self.store.directory, &self.info.id),
            ] {
                // At most one of each pair is there.
                let _ = fs::remove_file(&path);
                let _ = fs::remove_file(unfinished(&path));
            }
        }
        let mut index = lock(&self.store.index);
        index.writing.remove(&self.info.id);
        self.store.remove_directory(&index);
    }
}
