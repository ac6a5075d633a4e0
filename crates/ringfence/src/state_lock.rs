//! The lock by which a state directory has one server only.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Content of the file while the server that holds the lock ends.
const ENDING: &[u8] = b"ending\n";

/// Maximum time to wait for a server that ends.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time in which a server that was just asked to end marks the file.
const REACTION: Duration = Duration::from_millis(500);

/// Time between two attempts: the kernel's own wait for a lock has no time limit.
const INTERVAL: Duration = Duration::from_millis(20);

/// A lock of a state directory, held until it is dropped or its process ends.
#[derive(Debug)]
pub struct StateLock(File);

impl StateLock {
    /// Locks the directory. While its server ends, calls `waiting` once and waits up to 60 s for it.
    pub(crate) fn of(state: &Path, waiting: impl FnOnce()) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::refused(
                format!("cannot lock {}: {error}", state.display()),
                "check the directory, or set XDG_STATE_HOME to another one",
            )
        };
        let file = open(&state.join("engine.lock")).map_err(failed)?;
        let (mut waiting, since) = (Some(waiting), Instant::now());
        loop {
            match file.try_lock() {
                Ok(()) => {
                    file.set_len(0).map_err(failed)?;
                    return Ok(Self(file));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) => {}
            }
            let ends = is_ending(&file);
            if since.elapsed() >= if ends { TIMEOUT } else { REACTION } {
                return Err(taken(state, ends));
            }
            if ends && let Some(waiting) = waiting.take() {
                waiting();
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Marks the server as ending, so that the next one waits for it. Without the mark the next one is refused.
    pub fn end(&self) {
        // The disk may be full: then nothing is marked.
        let _ = self.0.write_all_at(ENDING, 0);
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options.open(path)
}

fn is_ending(file: &File) -> bool {
    let mut content = [0; ENDING.len()];
    file.read_exact_at(&mut content, 0).is_ok() && content == ENDING
}

fn taken(state: &Path, ends: bool) -> Failure {
    let state = state.display();
    let (message, hint) = match ends {
        true => (
            format!("the former server for {state} has not ended within a minute"),
            "kill it, or set XDG_STATE_HOME to another directory",
        ),
        false => (
            format!("a server is already running for {state}"),
            "use that one, stop it, or set XDG_STATE_HOME to another directory",
        ),
    };
    Failure::refused(message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_server_that_ends_is_waited_for_and_another_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateLock::of(dir.path(), || panic!("nothing to wait for")).unwrap();
        let refused = StateLock::of(dir.path(), || panic!("it does not end")).unwrap_err();
        assert!(refused.to_string().contains("already running"), "{refused}");

        first.end();
        let (sender, waits) = mpsc::channel();
        let state = dir.path().to_owned();
        let next = thread::spawn(move || StateLock::of(&state, move || sender.send(()).unwrap()));
        waits.recv().unwrap();
        drop(first);
        let _next = next.join().unwrap().unwrap();
        // The mark was the former server's.
        StateLock::of(dir.path(), || panic!("it does not end")).unwrap_err();
    }
}
