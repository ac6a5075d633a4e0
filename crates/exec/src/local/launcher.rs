//! An async connection to one launcher process: sends commands and dispatches events to their waiters.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_jail::protocol::{Applied, Command, Event, LauncherSpec, Program};
use ringfence_jail::{Launcher, START_DEADLINE, StartError, is_gone};
use ringfence_policy::Timeout;
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{oneshot, watch};

use super::error::{Error, Failure, OpenError};

/// A running guest.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) applied: Applied,
    /// Output directory, if it is in a cell.
    pub(super) output: Option<OwnedFd>,
    /// Listening socket on the cell's loopback, if one was requested.
    pub(super) listener: Option<OwnedFd>,
}

/// The exit status and resource usage of a guest's first process, as the kernel reported them to the
/// launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) status: i32,
    pub(super) cpu_micros: u64,
    pub(super) max_rss: u64,
}

impl Exit {
    /// Creates an announced exit, whose process the launcher has yet to reap.
    pub(super) const fn announced(status: i32) -> Self {
        Self {
            status,
            cpu_micros: 0,
            max_rss: 0,
        }
    }
}

/// The channels for a guest's events. A closed channel means that the launcher has died.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) id: u64,
    /// Output directory of the cell of a guest that waits for [`Command::Start`].
    pub(super) cell: oneshot::Receiver<OwnedFd>,
    pub(super) started: oneshot::Receiver<Result<Started, Failure>>,
    pub(super) exited: oneshot::Receiver<Exit>,
    pub(super) gone: oneshot::Receiver<()>,
}

struct Waiter {
    cell: Option<oneshot::Sender<OwnedFd>>,
    started: Option<oneshot::Sender<Result<Started, Failure>>>,
    exited: Option<oneshot::Sender<Exit>>,
    interrupted: Option<oneshot::Sender<()>>,
    gone: oneshot::Sender<()>,
}

/// The state of the zygote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zygote {
    /// Not started, or warming up.
    Cold,
    /// Ready to fork guests.
    Warm,
    /// Exited by itself.
    Broken,
}

/// Maximum length of the reason for a failed import, in characters.
const MAX_REASON: usize = 300;

/// The state of the imports that a zygote makes, one after another, before it is ready.
#[derive(Debug, Default)]
struct Preloading {
    modules: Vec<String>,
    /// Index of the module being imported.
    current: Option<usize>,
    /// Failed modules, with the reason.
    failed: Vec<FailedModule>,
}

/// A module of `sandbox.preload` that a zygote could not import.
#[derive(Debug, Clone)]
pub(super) struct FailedModule {
    pub(super) module: String,
    pub(super) reason: String,
}

impl Preloading {
    /// Parses a report of the zygote; see `preload_named` in `python/worker.py`.
    fn receive(&mut self, text: &str) {
        let mut words = text.splitn(3, ' ');
        let (word, number, rest) = (words.next(), words.next(), words.next());
        let number = number.and_then(|number| number.parse::<usize>().ok());
        match (word, number) {
            (Some("import"), Some(number)) => self.current = Some(number),
            (Some("failed"), Some(number)) => self.fail(number, rest.unwrap_or_default()),
            (Some("imported"), _) => self.current = None,
            _ => {}
        }
    }

    fn fail(&mut self, number: usize, reason: &str) {
        if let Some(module) = self.modules.get(number)
            && !self.failed.iter().any(|failed| failed.module == *module)
        {
            let words: Vec<&str> = reason.split_whitespace().collect();
            let reason = words.join(" ");
            let reason = reason.chars().filter(|c| !c.is_control());
            let reason = reason.take(MAX_REASON).collect();
            let module = module.clone();
            self.failed.push(FailedModule { module, reason });
        }
    }

    /// Marks the module being imported as failed, because the zygote exited during its import; `false` if
    /// there is none.
    fn blame(&mut self, limit: &Timeout) -> bool {
        let Some(number) = self.current.take() else {
            return false;
        };
        self.fail(
            number,
            &format!("the interpreter ended while importing it, or it took longer than {limit}"),
        );
        true
    }
}

/// A connection to a running launcher.
pub(super) struct LauncherClient {
    launcher: Launcher,
    /// Duplicate of the launcher's socket, registered with the event loop. It is SOCK_SEQPACKET, for which
    /// tokio has no type; only its readiness is used.
    socket: UnixDatagram,
    waiting: Mutex<Option<HashMap<u64, Waiter>>>,
    next_id: AtomicU64,
    zygote: watch::Sender<Zygote>,
    /// Number of zygotes that have warmed up.
    zygotes: AtomicU64,
    preloading: Mutex<Preloading>,
}

impl std::fmt::Debug for LauncherClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LauncherClient")
            .field("launcher", &self.launcher.id())
            .finish_non_exhaustive()
    }
}

impl LauncherClient {
    /// Sends a new launcher its specification, and waits until it is ready.
    pub(super) async fn open(launcher: Launcher, spec: &LauncherSpec) -> Result<Self, OpenError> {
        if let Err(error) = launcher.instruct(spec) {
            let _ = launcher.kill();
            return Err(match error {
                StartError::Instruct(cause) if is_gone(&cause) => OpenError::NoLauncher,
                error @ (StartError::Instruct(_) | StartError::NotInitialised | StartError::Spawn(_)) => {
                    OpenError::Start(error)
                }
            });
        }
        launcher.set_nonblocking().map_err(OpenError::Io)?;
        let socket = launcher.as_fd().try_clone_to_owned().map_err(OpenError::Io)?;
        let launcher = Self {
            launcher,
            socket: UnixDatagram::from_std(socket.into()).map_err(OpenError::Io)?,
            waiting: Mutex::new(Some(HashMap::new())),
            next_id: AtomicU64::new(1),
            zygote: watch::Sender::new(Zygote::Cold),
            zygotes: AtomicU64::new(0),
            preloading: Mutex::default(),
        };
        let mut buffer = Vec::new();
        let error = match tokio::time::timeout(START_DEADLINE, launcher.receive(&mut buffer)).await {
            Ok(Ok(Some((Event::Ready, _)))) => return Ok(launcher),
            Ok(Ok(Some((Event::Failed { step, errno, .. }, _)))) => {
                // It exits by itself, but we must reap it.
                let _ = launcher.close();
                return Err(OpenError::Failed(Failure { step, errno }));
            }
            Ok(Err(error)) if !is_gone(&error) => OpenError::Io(error),
            Ok(Ok(_) | Err(_)) | Err(_) => OpenError::NoLauncher,
        };
        // It may not be a launcher and need not exit by itself.
        let _ = launcher.kill_launcher();
        Err(error)
    }

    /// Dispatches events until the launcher dies. The connection works only while this runs.
    pub(super) async fn pump(&self) {
        let (mut buffer, mut reset) = (Vec::new(), false);
        loop {
            match self.receive(&mut buffer).await {
                Ok(Some((event, fds))) => self.dispatch(event, fds),
                // It died before it had read everything. What it had sent is there all the same.
                Err(error) if is_gone(&error) && !reset => reset = true,
                Ok(None) | Err(_) => break,
            }
        }
        // The closed channels tell the remaining waiters.
        self.lose();
        self.zygote.send_replace(Zygote::Broken);
    }

    /// Checks that the launcher lives, without waiting for the task that dispatches its events.
    pub(super) fn check(&self) -> Result<(), Error> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        if let Ok((0, _)) = rustix::net::recv(&self.socket, &mut [0; 1], flags) {
            self.lose();
        }
        self.is_open().then_some(()).ok_or(Error::LauncherLost)
    }

    /// Marks a launcher as dead, so that it is not used again.
    pub(super) fn lose(&self) {
        *self.lock() = None;
    }

    /// Returns `true` while the launcher lives.
    pub(super) fn is_open(&self) -> bool {
        self.lock().is_some()
    }

    /// Allocates an id for the next guest, with the channels for its events.
    pub(super) fn ticket(&self) -> Ticket {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (cell_sender, cell) = oneshot::channel();
        let (started_sender, started) = oneshot::channel();
        let (exited_sender, exited) = oneshot::channel();
        let (gone_sender, gone) = oneshot::channel();
        if let Some(waiting) = self.lock().as_mut() {
            let senders = Waiter {
                cell: Some(cell_sender),
                started: Some(started_sender),
                exited: Some(exited_sender),
                interrupted: None,
                gone: gone_sender,
            };
            waiting.insert(id, senders);
        }
        Ticket {
            id,
            cell,
            started,
            exited,
            gone,
        }
    }

    /// Discards a ticket whose command did not reach the launcher.
    pub(super) fn void(&self, id: u64) {
        if let Some(waiting) = self.lock().as_mut() {
            waiting.remove(&id);
        }
    }

    pub(super) async fn send(&self, command: &Command, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket
            .async_io(Interest::WRITABLE, || self.launcher.send(command, fds))
            .await
    }

    /// Kills a guest and everything in its cell.
    pub(super) async fn kill(&self, id: u64) {
        // If the launcher has died, so have its guests.
        let _ = self.send(&Command::Kill { id }, &[]).await;
    }

    /// Sends SIGINT to a guest's first process. Resolves once the signal was sent. It cannot interrupt
    /// anything that the guest does after a later message.
    pub(super) async fn interrupt(&self, id: u64) {
        let (sender, sent) = oneshot::channel();
        if let Some(waiter) = self.lock().as_mut().and_then(|all| all.get_mut(&id)) {
            waiter.interrupted = Some(sender);
        }
        // If the launcher has died, so have its guests.
        let _ = self.send(&Command::Interrupt { id }, &[]).await;
        let _ = sent.await;
    }

    /// Starts a zygote that replaces the previous one. The modules to import are its last arguments.
    pub(super) async fn start_zygote(
        &self,
        program: Program,
        script: &str,
        modules: Vec<String>,
        library: BorrowedFd<'_>,
    ) -> io::Result<()> {
        {
            let mut preloading = self.preloading();
            preloading.modules = modules;
            preloading.current = None;
        }
        let command = Command::Zygote {
            program,
            script: Some(script.to_owned()),
        };
        self.send(&command, &[library]).await
    }

    /// Returns `true` if importing a module ended the zygote; the module is then marked as failed.
    pub(super) fn blames_module(&self, limit: &Timeout) -> bool {
        self.preloading().blame(limit)
    }

    /// Returns the modules that a zygote could not import, with the reasons.
    pub(super) fn failed_modules(&self) -> Vec<FailedModule> {
        self.preloading().failed.clone()
    }

    fn preloading(&self) -> MutexGuard<'_, Preloading> {
        self.preloading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the state of the zygote.
    pub(super) fn zygote(&self) -> watch::Receiver<Zygote> {
        self.zygote.subscribe()
    }

    /// Returns the number of the last zygote that has warmed up. The launcher forks from it before it reports it.
    pub(super) fn zygotes(&self) -> u64 {
        self.zygotes.load(Ordering::Acquire)
    }

    /// Requests the launcher to exit with all guests. [`LauncherClient::close`] waits for it.
    pub(super) fn end(&self) {
        self.launcher.end();
    }

    /// Ends the launcher with all guests, and waits for it.
    pub(super) fn close(self) -> io::Result<()> {
        let Self { launcher, socket, .. } = self;
        drop(socket);
        launcher.close()
    }

    fn kill_launcher(self) -> io::Result<()> {
        let Self { launcher, socket, .. } = self;
        drop(socket);
        launcher.kill()
    }

    async fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<Option<(Event, Vec<OwnedFd>)>> {
        self.socket
            .async_io(Interest::READABLE, || self.launcher.receive(buffer))
            .await
    }

    fn dispatch(&self, event: Event, fds: Vec<OwnedFd>) {
        match event {
            Event::Ready => {}
            Event::ZygoteReports { text } => self.preloading().receive(&text),
            Event::ZygoteReady => {
                self.zygotes.fetch_add(1, Ordering::Release);
                self.zygote.send_replace(Zygote::Warm);
            }
            Event::ZygoteGone | Event::Failed { id: 0, .. } => {
                self.zygote.send_replace(Zygote::Broken);
            }
            Event::CellReady { id } => {
                let mut waiting = self.lock();
                let waiter = waiting.as_mut().and_then(|all| all.get_mut(&id));
                let sender = waiter.and_then(|one| one.cell.take());
                if let (Some(sender), Some(cell)) = (sender, fds.into_iter().next()) {
                    let _ = sender.send(cell);
                }
            }
            Event::Spawned { id, applied } => {
                let mut fds = fds.into_iter();
                let started = Started {
                    applied,
                    output: fds.next(),
                    listener: fds.next(),
                };
                self.tell_started(id, Ok(started));
            }
            Event::Failed { id, step, errno } => {
                self.tell_started(id, Err(Failure { step, errno }));
                self.void(id);
            }
            Event::Exited {
                id,
                status,
                cpu_micros,
                max_rss,
            } => {
                let mut waiting = self.lock();
                let sender = waiting
                    .as_mut()
                    .and_then(|all| all.get_mut(&id))
                    .and_then(|one| one.exited.take());
                if let Some(sender) = sender {
                    let _ = sender.send(Exit {
                        status,
                        cpu_micros,
                        max_rss,
                    });
                }
            }
            Event::Interrupted { id } => {
                let mut waiting = self.lock();
                let waiter = waiting.as_mut().and_then(|all| all.get_mut(&id));
                if let Some(sender) = waiter.and_then(|one| one.interrupted.take()) {
                    let _ = sender.send(());
                }
            }
            Event::Gone { id } => {
                let removed = self.lock().as_mut().and_then(|waiting| waiting.remove(&id));
                if let Some(waiting) = removed {
                    let _ = waiting.gone.send(());
                }
            }
        }
    }

    fn tell_started(&self, id: u64, result: Result<Started, Failure>) {
        let mut waiting = self.lock();
        let sender = waiting
            .as_mut()
            .and_then(|all| all.get_mut(&id))
            .and_then(|one| one.started.take());
        if let Some(sender) = sender {
            let _ = sender.send(result);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u64, Waiter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_a_zygote_tell_which_modules_failed() {
        let modules = ["a", "b", "c", "d"].map(str::to_owned).into();
        let mut preloading = Preloading {
            modules,
            ..Preloading::default()
        };
        for report in [
            "import 0",
            "import 1",
            "failed 1 ModuleNotFoundError: No module named 'b'",
            "import 2",
            "nonsense",
            "failed 99 x",
            "import -1",
        ] {
            preloading.receive(report);
        }
        assert!(preloading.blame(&Timeout::seconds(60)));
        assert!(!preloading.blame(&Timeout::seconds(60)));
        let failed: Vec<_> = preloading
            .failed
            .iter()
            .map(|FailedModule { module, reason }| format!("{module}: {reason}"))
            .collect();
        assert_eq!(
            failed,
            [
                "b: ModuleNotFoundError: No module named 'b'",
                "c: the interpreter ended while importing it, or it took longer than 1m",
            ]
        );
        preloading.receive("import 3");
        preloading.receive("imported");
        assert!(!preloading.blame(&Timeout::seconds(60)));
    }
}
