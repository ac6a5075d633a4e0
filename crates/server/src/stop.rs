//! The end of a server: the requests to stop it, and what happens to the work under way.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use ringfence_policy::Timeout;
use rustix::fs::{Mode, OFlags};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::api::Api;

/// A request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// At once: SIGINT, SIGHUP, or nobody uses the server any more.
    Stop,
    /// After the work under way: SIGTERM.
    Drain,
}

/// The requests to stop that a server obeys.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if it is ignored, as under nohup(1).
    hangup: Option<Signal>,
    /// Resolves once the server is unused.
    unused: Option<oneshot::Receiver<()>>,
    /// Time for work under way to end.
    drain_timeout: Duration,
}

impl Stop {
    /// Watches for SIGINT, SIGTERM, SIGHUP unless it is ignored and, with `while_used`, for the moment when no process
    /// holds a lock of that file.
    ///
    /// The kernel drops the locks of a process however it ends, which no message to us could replace. Work under way has
    /// `drain_timeout` to end after SIGTERM.
    ///
    /// # Errors
    /// If the file cannot be opened, or signals cannot be watched.
    pub fn watch(while_used: Option<&Path>, drain_timeout: Timeout) -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: match ignores_hangup() {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
            unused: while_used.map(watch_lock).transpose()?,
            drain_timeout: drain_timeout.as_duration(),
        })
    }

    /// Waits for the next request.
    pub async fn wait(&mut self) -> Request {
        let unused = async {
            let gone = match &mut self.unused {
                Some(unused) => unused.await.is_ok(),
                None => false,
            };
            if !gone {
                std::future::pending().await
            }
        };
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = hangup => Request::Stop,
            _ = self.interrupt.recv() => Request::Stop,
            _ = self.terminate.recv() => Request::Drain,
            () = unused => Request::Stop,
        }
    }

    /// Ends the work of clients. After [`Request::Drain`] it has some time to end by itself, until another request to stop
    /// arrives; what is left is cancelled. `warn` is told what is waited for, and what was cancelled.
    pub async fn end_work(&mut self, api: &Api, request: Request, warn: impl Fn(&dyn Display)) {
        if request == Request::Drain {
            self.drain(api, &warn).await;
        }
        let calls = api.stop().await;
        if calls > 0 {
            warn(&format_args!(
                "the server stops, and has cancelled calls of clients: {calls}"
            ));
        }
    }

    async fn drain(&mut self, api: &Api, warn: impl Fn(&dyn Display)) {
        let time = self.drain_timeout;
        let under_way = api.start_drain();
        if under_way > 0 {
            warn(&format_args!(
                "the server begins nothing more, and waits up to {time:?} for the runs, calls, transfers and builds under way: {under_way}; a second \
                 signal cancels them"
            ));
        }
        tokio::select! {
            biased;
            () = api.idle() => {}
            _ = self.wait() => {}
            () = tokio::time::sleep(time) => {}
        }
    }
}

/// Returns `true` if SIGHUP, the first signal, is ignored (`SigIgn` in proc_pid_status(5)).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 != 0))
}

/// Waits for the exclusive lock on a thread of its own, and keeps it until this process has ended: a process
/// that wants to use the server next waits for that, and never connects to a socket that is about to close.
fn watch_lock(path: &Path) -> io::Result<oneshot::Receiver<()>> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let opened = opened.map_err(|error| {
        let kind = io::Error::from(error).kind();
        io::Error::new(
            kind,
            format!("cannot open the lock file {}: {error}", path.display()),
        )
    });
    let file = File::from(opened?);
    let (sender, unused) = oneshot::channel();
    std::thread::Builder::new()
        .name("while-used".to_owned())
        .spawn(move || {
            if file.lock().is_ok() {
                let _ = sender.send(());
            }
            loop {
                std::thread::park();
            }
        })?;
    Ok(unused)
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn a_server_stops_when_the_last_of_its_users_has_gone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let users: Vec<File> = (0..2).map(|_| File::open(file.path()).unwrap()).collect();
        for user in &users {
            user.lock_shared().unwrap();
        }
        let mut stop = Stop::watch(Some(file.path()), Timeout::seconds(1)).unwrap();
        let mut users = users.into_iter();
        drop(users.next());
        let mut waiting = std::pin::pin!(stop.wait());
        let pending =
            std::future::poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending()));
        assert!(pending.await, "one user is left");
        drop(users.next());
        waiting.await;
        // A new user waits until the process of the server has ended.
        let next = File::open(file.path()).unwrap();
        assert!(next.try_lock_shared().is_err());
    }

    #[tokio::test]
    async fn a_lock_file_that_is_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        let error = Stop::watch(Some(&link), Timeout::seconds(1))
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot open the lock file"), "{error}");
    }
}
