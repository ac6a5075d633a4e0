//! The warm interpreter, and the guests that it has forked beforehand.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::worker::{self, Execution, Heard, Worker};
use crate::steps::{Step, StepError};
use crate::sys;

/// Guests that wait for a job.
const SPARES: usize = 2;
/// How often an interpreter may end before it is warm.
const ATTEMPTS: u32 = 2;

/// Where guests are forked from, if there is such a thing.
#[derive(Debug)]
pub(super) struct Warm {
    execution: Option<Execution>,
    zygote: Option<Zygote>,
    spares: Vec<Worker>,
    failures: u32,
}

#[derive(Debug)]
struct Zygote {
    pid: libc::pid_t,
    socket: OwnedFd,
    state: State,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum State {
    /// Guests could still look into it.
    Open,
    /// They cannot.
    Hidden,
    /// It forks.
    Warm,
}

impl Warm {
    /// With `execution`, which forks guests on command; `None`: there is no such interpreter here.
    pub(super) fn new(execution: Option<Execution>) -> Self {
        Self {
            execution,
            zygote: None,
            spares: Vec::new(),
            failures: 0,
        }
    }

    /// Starts an interpreter if there is none. Only while no guest runs: one could get into it before it hides.
    pub(super) fn ensure(&mut self) {
        let Some(execution) = self.execution.as_ref().filter(|_| self.zygote.is_none()) else {
            return;
        };
        match Zygote::start(execution) {
            Ok(zygote) => self.zygote = Some(zygote),
            Err(_) => self.failed(),
        }
    }

    fn failed(&mut self) {
        self.failures += 1;
        if self.failures >= ATTEMPTS {
            self.execution = None;
        }
    }

    /// Whether guests may run beside it.
    pub(super) fn is_hidden(&self) -> bool {
        self.zygote
            .as_ref()
            .is_none_or(|zygote| zygote.state >= State::Hidden)
    }

    /// Whether a guest can be expected of it.
    pub(super) fn is_there(&self) -> bool {
        self.zygote.is_some()
    }

    /// What to wait for.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let zygote = self.zygote.iter().map(|zygote| zygote.socket.as_fd());
        zygote.chain(self.spares.iter().map(|spare| spare.reports.as_fd()))
    }

    /// The processes of it that are, or could become, children of the agent.
    pub(super) fn pids(&self) -> impl Iterator<Item = libc::pid_t> {
        let zygote = self.zygote.iter().map(|zygote| zygote.pid);
        zygote.chain(self.spares.iter().filter_map(|spare| spare.supervisor))
    }

    /// Takes in what the interpreter and the spare guests say. A spare guest that ends was killed by another.
    pub(super) fn listen(&mut self) {
        self.spares.retain_mut(|spare| {
            while let Some(heard) = spare.hear() {
                if !matches!(heard, Heard::Started { .. }) {
                    return false;
                }
            }
            true
        });
        let Some(zygote) = &mut self.zygote else { return };
        while let Some(state) = zygote.hear() {
            zygote.state = state;
            if state == State::Warm {
                self.failures = 0;
            }
        }
    }

    /// The interpreter has ended.
    pub(super) fn ended(&mut self, pid: libc::pid_t) {
        if let Some(zygote) = self.zygote.take_if(|zygote| zygote.pid == pid) {
            // Those that it was asked for and has not forked.
            self.spares.retain(|spare| spare.supervisor.is_some());
            if zygote.state != State::Warm {
                self.failed();
            }
        }
    }

    /// Ends an interpreter that does not do what it is asked to.
    pub(super) fn give_up(&self) {
        if let Some(zygote) = &self.zygote {
            let _ = sys::kill(zygote.pid, libc::SIGKILL);
        }
    }

    /// A guest that waits for its job.
    pub(super) fn take(&mut self) -> Option<Worker> {
        let ready = self.spares.iter().position(|spare| spare.supervisor.is_some())?;
        let spare = self.spares.remove(ready);
        if let Some(supervisor) = spare.supervisor {
            // Another guest may have stopped it.
            let _ = sys::kill(supervisor, libc::SIGCONT);
        }
        Some(spare)
    }

    /// Whether no guest waits, or will.
    pub(super) fn is_out(&self) -> bool {
        self.spares.is_empty()
    }

    /// Whether guests could be asked for that wait.
    pub(super) fn lacks(&self) -> bool {
        let warm = self
            .zygote
            .as_ref()
            .is_some_and(|zygote| zygote.state == State::Warm);
        warm && self.spares.len() < SPARES
    }

    /// Asks for guests, so that this many calls can have one and some are spare.
    pub(super) fn fill(&mut self, wanted: usize) {
        let Some(zygote) = self.zygote.as_ref().filter(|zygote| zygote.state == State::Warm) else {
            return;
        };
        while self.spares.len() < wanted.max(SPARES) {
            match zygote.ask() {
                Ok(spare) => self.spares.push(spare),
                Err(_) => return,
            }
        }
    }
}

impl Zygote {
    fn start(execution: &Execution) -> Result<Self, StepError> {
        let (socket, theirs) = sys::seqpacket_pair().step("make the zygote's socket")?;
        sys::set_nonblocking(socket.as_fd()).step("make the zygote's socket")?;
        match sys::fork().step("fork the zygote")? {
            None => become_zygote(execution, &theirs),
            Some(pid) => Ok(Self {
                pid,
                socket,
                state: State::Open,
            }),
        }
    }

    /// `H`: it is hidden. `R`: it is warm, too.
    fn hear(&self) -> Option<State> {
        let mut buffer = [0; 16];
        match sys::receive_message(self.socket.as_fd(), &mut buffer) {
            Ok((1, _)) if buffer[0] == b'H' => Some(State::Hidden),
            Ok((1, _)) if buffer[0] == b'R' => Some(State::Warm),
            _ => None,
        }
    }

    fn ask(&self) -> std::io::Result<Worker> {
        let (worker, ends) = worker::prepare()?;
        let [stdin, stdout, stderr] = &ends.standard;
        let fds = [&ends.status, &ends.control, stdin, stdout, stderr].map(AsFd::as_fd);
        sys::send_message(self.socket.as_fd(), b"f", &fds)?;
        Ok(worker)
    }
}

fn become_zygote(execution: &Execution, socket: &OwnedFd) -> ! {
    let arrange = || -> std::io::Result<()> {
        let socket = sys::dup_above(socket.as_fd(), 32)?;
        // Pipes, as guests have them: the interpreter's stream objects remember what they were opened on.
        let (read, write) = sys::pipe()?;
        for (number, end) in [(0, &read), (1, &write), (2, &write), (3, &socket)] {
            sys::dup2(end.as_fd(), number)?;
        }
        sys::close_from(4)?;
        std::mem::forget((socket, read, write));
        sys::setsid()?;
        sys::reset_signals()
    };
    if arrange().is_ok() {
        drop(execution.execute());
    }
    sys::exit_now(127)
}
