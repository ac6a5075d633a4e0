//! The way to a model's server, on which no more than a limit comes back.
//!
//! The client library holds the whole of an answer, however long it is. So it does not connect itself: it is given a
//! socket in a directory that only we can enter, and what the server sends passes through here, encrypted as it is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpStream, UnixListener};

use super::NoScore;
use crate::local::PrivateDirectory;

/// How much may come back, certificates and headers included. A score is a few hundred bytes.
pub(super) const MAX_ANSWER: u64 = 256 * 1024;

pub(super) struct Conduit {
    listener: UnixListener,
    directory: File,
    _place: PrivateDirectory,
}

impl Conduit {
    /// Makes one in a directory below `scratch`.
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

    /// Where the library connects to.
    pub(super) fn path(&self) -> PathBuf {
        path(&self.directory)
    }

    /// Carries what both sides send, until the server has sent too much. It does not end otherwise.
    pub(super) async fn carry(&self, server: TcpStream) -> NoScore {
        let Ok((library, _)) = self.listener.accept().await else {
            return NoScore::Conduit;
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
                return NoScore::TooLong;
            }
            // The library sees that the server hung up, and says what that means.
            let _ = told.shutdown().await;
            std::future::pending().await
        };
        tokio::select! {
            end = there => end,
            end = back => end,
        }
    }
}

/// By the open directory: a socket's path must be short, and that of a directory for temporary files need not be.
fn path(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/model", directory.as_raw_fd()))
}
