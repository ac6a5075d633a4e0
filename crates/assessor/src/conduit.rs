//! Limits the size of a server's response by a relay.
//!
//! The client library buffers a whole response of any size. So it does not connect to the server itself, but
//! to a Unix socket in a private directory, and the server's TLS stream is relayed through it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use ringfence_exec::local::PrivateDirectory;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpStream, UnixListener};

use super::ScoreError;

/// Size limit of the relayed bytes from the server, including certificates and headers. A score takes a few
/// hundred bytes.
pub(super) const MAX_ANSWER: u64 = 256 * 1024;

pub(super) struct Conduit {
    listener: UnixListener,
    directory: File,
    _place: PrivateDirectory,
}

impl Conduit {
    /// Creates the socket in a private directory below `scratch`.
    pub(super) fn open(scratch: &Path) -> io::Result<Self> {
        let place = PrivateDirectory::closed(scratch)?;
        let directory = File::open(place.path())?;
        let listener = UnixListener::bind(path(&directory))?;
        Ok(Self {
            listener,
            directory,
            _place: place,
        })
    }

    /// Returns the path of the socket for the library.
    pub(super) fn path(&self) -> PathBuf {
        path(&self.directory)
    }

    /// Relays in both directions. Resolves only if the server exceeds the limit, or the socket fails.
    pub(super) async fn carry(&self, server: TcpStream) -> ScoreError {
        let Ok((library, _)) = self.listener.accept().await else {
            return ScoreError::Conduit;
        };
        let (answers, mut questions) = server.into_split();
        let (mut asked, mut told) = library.into_split();
        let there = async {
            let _ = copy(&mut asked, &mut questions).await;
            std::future::pending().await
        };
        let back = async {
            let carried = copy(&mut answers.take(MAX_ANSWER), &mut told).await;
            if carried.is_ok_and(|bytes| bytes == MAX_ANSWER) {
                return ScoreError::TooLong;
            }
            // The library detects the end of the connection, and interprets it.
            let _ = told.shutdown().await;
            std::future::pending().await
        };
        tokio::select! {
            end = there => end,
            end = back => end,
        }
    }
}

/// Returns a path through the file descriptor: socket paths have a length limit, which the temporary
/// directory may exceed.
fn path(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/model", directory.as_raw_fd()))
}
