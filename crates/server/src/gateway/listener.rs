//! The socket that gateways connect to.

use std::fs::{self, Permissions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_runtime::approval::Service;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use super::connection;

/// Gateways at once.
const MAX_CONNECTIONS: usize = 32;

/// How long a gateway may take to read what it is sent.
#[derive(Debug, Clone, Copy)]
pub struct Patience(pub Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(Duration::from_secs(10))
    }
}

/// A socket for gateways, removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// The only user who may connect.
    uid: u32,
    patience: Patience,
}

impl Listener {
    /// Listens at `path`, in a directory of ours alone, in place of a socket that was left there. The caller must hold
    /// the engine's lock.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn bind(path: &Path, patience: Patience) -> io::Result<Self> {
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
            patience,
        })
    }

    /// Serves gateways until `stop` ends. Questions and answers are in the store, and outlive this.
    pub async fn serve(&self, service: &Service, stop: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                _ = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.socket.accept(), if connections.len() < MAX_CONNECTIONS => {
                    let Ok((stream, _)) = accepted else { continue };
                    if stream.peer_cred().is_ok_and(|peer| peer.uid() == self.uid) {
                        let (service, patience) = (service.clone(), self.patience);
                        connections.spawn(connection::attend(stream, service, patience));
                    }
                }
            }
        }
        connections.shutdown().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
