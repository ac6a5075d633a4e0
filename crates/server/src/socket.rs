//! A Unix socket for one user alone: made, served, removed.

use std::fs::{self, Permissions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// How long nobody is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that only the user who made it may connect to, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: UnixListener,
    path: PathBuf,
    /// The only user who may connect.
    uid: u32,
}

impl Socket {
    /// Listens at `path`, in a directory of ours alone, in place of a socket that was left there.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let uid = fs::symlink_metadata(path)?.uid();
        Ok(Self {
            socket,
            path: path.to_path_buf(),
            uid,
        })
    }

    /// Attends `most` connections at once until `stop` ends; then drops all that are under way.
    pub(crate) async fn serve<A: Future<Output = ()> + Send + 'static>(
        &self,
        most: usize,
        attend: impl Fn(UnixStream) -> A,
        stop: impl Future<Output = ()>,
    ) {
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                _ = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.socket.accept(), if connections.len() < most => {
                    let Ok((stream, _)) = accepted else {
                        // Out of descriptors: whoever waits stays in the queue, and this task does not spin.
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    };
                    if stream.peer_cred().is_ok_and(|peer| peer.uid() == self.uid) {
                        connections.spawn(attend(stream));
                    }
                }
            }
        }
        connections.shutdown().await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
