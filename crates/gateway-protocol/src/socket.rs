//! Serves connections concurrently until shutdown. Provides a Unix socket for one user.

use std::fs::{self, Permissions};
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// Delay after `accept` has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A Unix socket for its owner only, removed on drop.
#[derive(Debug)]
pub struct Socket {
    socket: UnixListener,
    path: PathBuf,
    /// Permitted user.
    uid: u32,
}

impl Socket {
    /// Listens at `path`, which must be in a private directory, replacing a stale socket.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Self::create(path)
    }

    /// Listens at `path` in any directory. Replaces only a socket without a listener.
    pub fn bind_anywhere(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                if std::os::unix::net::UnixStream::connect(path).is_ok() {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                fs::remove_file(path)?;
            }
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        Self::create(path)
    }

    fn create(path: &Path) -> io::Result<Self> {
        let socket = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        // Not the owner of what is now at the path: in a shared directory that may be somebody else's.
        let uid = rustix::process::geteuid().as_raw();
        Ok(Self {
            socket,
            path: path.to_path_buf(),
            uid,
        })
    }

    /// Serves up to `most` connections concurrently until `stop` resolves; then drops them.
    pub async fn serve<A: Future<Output = ()> + Send + 'static>(
        &self,
        most: usize,
        supervise: impl Fn(UnixStream) -> A,
        stop: impl Future<Output = ()>,
    ) {
        let supervise = |stream: UnixStream, _| {
            let ours = stream.peer_cred().is_ok_and(|peer| peer.uid() == self.uid);
            ours.then(|| supervise(stream))
        };
        serve(most, |context| self.socket.poll_accept(context), supervise, stop).await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Serves up to `most` connections concurrently until `stop` resolves; then drops them. Closes a connection
/// if `supervise` returns `None`.
pub async fn serve<S, Peer, A: Future<Output = ()> + Send + 'static>(
    most: usize,
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<(S, Peer)>>,
    supervise: impl Fn(S, Peer) -> Option<A>,
    stop: impl Future<Output = ()>,
) {
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            accepted = poll_fn(&mut accept), if connections.len() < most => match accepted {
                Ok((stream, peer)) => drop(supervise(stream, peer).map(|attended| connections.spawn(attended))),
                // Out of file descriptors: connections stay in the backlog, and the delay avoids a busy loop.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
        }
    }
    connections.shutdown().await;
}
