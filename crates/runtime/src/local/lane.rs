//! One launcher process, seen from the async side: commands go out, events find who waits for them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_jail::protocol::{Applied, Command, Event, LauncherSpec, Program};
use ringfence_jail::{Launcher, START_DEADLINE, StartError};
use ringfence_policy::Timeout;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{oneshot, watch};

/// A step of the fence that did not work, as the launcher told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) step: String,
    pub(super) errno: i32,
}

/// A guest that runs.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) applied: Applied,
    /// Its output directory, where it lives in a cell.
    pub(super) output: Option<OwnedFd>,
    /// The socket on its cell's loopback, where one was asked for.
    pub(super) listener: Option<OwnedFd>,
}

/// How a guest's first process ended, as the kernel told the launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) status: i32,
    pub(super) cpu_micros: u64,
    pub(super) max_rss: u64,
}

/// What becomes of a guest. A closed channel means that the launcher has gone.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) id: u64,
    pub(super) started: oneshot::Receiver<Result<Started, Failure>>,
    pub(super) exited: oneshot::Receiver<Exit>,
    pub(super) gone: oneshot::Receiver<()>,
}

struct Waiting {
    started: Option<oneshot::Sender<Result<Started, Failure>>>,
    exited: Option<oneshot::Sender<Exit>>,
    gone: oneshot::Sender<()>,
}

/// Where the zygote stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zygote {
    /// There is none, or it is warming up.
    Cold,
    /// Guests can be forked.
    Warm,
    /// It ended by itself.
    Broken,
}

/// The longest reason why a module could not be imported, in characters.
const MAX_REASON: usize = 300;

/// The modules that a zygote imports before it is warm, one after another.
#[derive(Debug, Default)]
struct Preloading {
    modules: Vec<String>,
    /// The place of the one that is being imported.
    current: Option<usize>,
    /// Those that could not be, with the reason.
    failed: Vec<FailedModule>,
}

/// A module of `sandbox.preload` that a zygote could not import.
#[derive(Debug, Clone)]
pub(super) struct FailedModule {
    pub(super) module: String,
    pub(super) reason: String,
}

impl Preloading {
    /// Takes in a report of the zygote's; see `preload_named` in `python/worker.py`.
    fn hear(&mut self, text: &str) {
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

    /// The module that has taken the zygote along, if one has.
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

/// A launcher that is up.
pub(super) struct Lane {
    launcher: Launcher,
    /// A second handle on the launcher's socket, watched by the event loop. It is a SOCK_SEQPACKET one, which
    /// tokio does not name; only readiness is asked of it.
    socket: UnixDatagram,
    waiting: Mutex<Option<HashMap<u64, Waiting>>>,
    next_id: AtomicU64,
    zygote: watch::Sender<Zygote>,
    preloading: Mutex<Preloading>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane")
            .field("launcher", &self.launcher.id())
            .finish_non_exhaustive()
    }
}

/// Why a lane could not be opened.
#[derive(Debug)]
pub(super) enum OpenError {
    Start(StartError),
    Io(io::Error),
    Failed(Failure),
    /// The process ended, or did anything but come up as a launcher.
    NoLauncher,
}

impl Lane {
    /// Tells a new launcher what to be and waits until it is up.
    pub(super) async fn open(launcher: Launcher, spec: &LauncherSpec) -> Result<Self, OpenError> {
        if let Err(error) = launcher.instruct(spec) {
            let _ = launcher.kill();
            return Err(match &error {
                StartError::Instruct(cause) if is_gone(cause) => OpenError::NoLauncher,
                _ => OpenError::Start(error),
            });
        }
        launcher.set_nonblocking().map_err(OpenError::Io)?;
        let socket = launcher.as_fd().try_clone_to_owned().map_err(OpenError::Io)?;
        let lane = Self {
            launcher,
            socket: UnixDatagram::from_std(socket.into()).map_err(OpenError::Io)?,
            waiting: Mutex::new(Some(HashMap::new())),
            next_id: AtomicU64::new(1),
            zygote: watch::Sender::new(Zygote::Cold),
            preloading: Mutex::default(),
        };
        let mut buffer = Vec::new();
        let error = match tokio::time::timeout(START_DEADLINE, lane.receive(&mut buffer)).await {
            Ok(Ok(Some((Event::Ready, _)))) => return Ok(lane),
            Ok(Ok(Some((Event::Failed { step, errno, .. }, _)))) => {
                // It is about to end by itself; reaping it is up to us.
                let _ = lane.close();
                return Err(OpenError::Failed(Failure { step, errno }));
            }
            Ok(Err(error)) if !is_gone(&error) => OpenError::Io(error),
            Ok(Ok(_) | Err(_)) | Err(_) => OpenError::NoLauncher,
        };
        // Whatever it is, it need not end by itself.
        let _ = lane.kill_launcher();
        Err(error)
    }

    /// Hands events to those who wait, until the launcher goes. Somebody must run this for the lane to work.
    pub(super) async fn pump(&self) {
        let mut buffer = Vec::new();
        while let Ok(Some((event, fds))) = self.receive(&mut buffer).await {
            self.dispatch(event, fds);
        }
        // Whoever still waits learns it from the closed channel.
        *self.lock() = None;
        self.zygote.send_replace(Zygote::Broken);
    }

    /// Whether the launcher still lives.
    pub(super) fn is_open(&self) -> bool {
        self.lock().is_some()
    }

    /// A number for the next guest, with the channels on which its fate will be told.
    pub(super) fn ticket(&self) -> Ticket {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (started_sender, started) = oneshot::channel();
        let (exited_sender, exited) = oneshot::channel();
        let (gone_sender, gone) = oneshot::channel();
        if let Some(waiting) = self.lock().as_mut() {
            let senders = Waiting {
                started: Some(started_sender),
                exited: Some(exited_sender),
                gone: gone_sender,
            };
            waiting.insert(id, senders);
        }
        Ticket {
            id,
            started,
            exited,
            gone,
        }
    }

    /// Forgets a ticket whose command never reached the launcher.
    pub(super) fn void(&self, id: u64) {
        if let Some(waiting) = self.lock().as_mut() {
            waiting.remove(&id);
        }
    }

    /// Sends a command.
    pub(super) async fn send(&self, command: &Command, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket
            .async_io(Interest::WRITABLE, || self.launcher.send(command, fds))
            .await
    }

    /// Kills a guest and everything in its cell.
    pub(super) async fn kill(&self, id: u64) {
        // If the launcher has gone, so have its guests.
        let _ = self.send(&Command::Kill { id }, &[]).await;
    }

    /// Starts a zygote in place of the one before. Its program ends in the modules that it imports.
    pub(super) async fn start_zygote(
        &self,
        (program, script): (Program, &str),
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

    /// Whether a module has taken the zygote along; then it is among those that failed.
    pub(super) fn blames_module(&self, limit: &Timeout) -> bool {
        self.preloading().blame(limit)
    }

    /// The modules that a zygote could not import, with the reasons.
    pub(super) fn failed_modules(&self) -> Vec<FailedModule> {
        self.preloading().failed.clone()
    }

    fn preloading(&self) -> MutexGuard<'_, Preloading> {
        self.preloading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the zygote stands, now and later.
    pub(super) fn zygote(&self) -> watch::Receiver<Zygote> {
        self.zygote.subscribe()
    }

    /// Lets the launcher and all guests end. What waits for them is [`Lane::close`].
    pub(super) fn end(&self) {
        self.launcher.end();
    }

    /// Ends the launcher and all guests, and waits for it.
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
            Event::ZygoteReports { text } => self.preloading().hear(&text),
            Event::ZygoteReady => drop(self.zygote.send_replace(Zygote::Warm)),
            Event::ZygoteGone | Event::Failed { id: 0, .. } => {
                self.zygote.send_replace(Zygote::Broken);
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

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u64, Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the other end of the socket is closed.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(
        error.kind(),
        E::BrokenPipe | E::ConnectionReset | E::ConnectionRefused | E::NotConnected
    )
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
            preloading.hear(report);
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
        preloading.hear("import 3");
        preloading.hear("imported");
        assert!(!preloading.blame(&Timeout::seconds(60)));
    }
}
