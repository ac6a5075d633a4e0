//! The warm interpreter and its pool of pre-forked guests.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::worker::{self, Execution, SupervisorMessage, Worker};
use crate::step_error::{Step, StepError};
use crate::sys;

/// Size of the pool of idle guests.
const SPARES: usize = 2;
/// Failed starts after which no interpreter is started any more.
const ATTEMPTS: u32 = 2;

/// The warm interpreter, if any, and its idle guests.
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

/// Start-up progress of the interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum State {
    /// Guests could still inspect it.
    Open,
    /// Undumpable: guests cannot inspect it.
    Hidden,
    /// Ready to fork.
    Warm,
}

impl Warm {
    /// Creates a pool for the command `execution`, which forks guests on request; `None` without such an
    /// interpreter.
    pub(super) fn new(execution: Option<Execution>) -> Self {
        Self {
            execution,
            zygote: None,
            spares: Vec::new(),
            failures: 0,
        }
    }

    /// Starts an interpreter if there is none. Only while no guest runs: a guest could attack it before it is
    /// undumpable.
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

    /// Returns `true` if guests may run beside it.
    pub(super) fn is_hidden(&self) -> bool {
        self.zygote
            .as_ref()
            .is_none_or(|zygote| zygote.state >= State::Hidden)
    }

    /// Returns `true` if the zygote exists, so that guests can be expected.
    pub(super) fn is_there(&self) -> bool {
        self.zygote.is_some()
    }

    /// Returns the sockets to wait for.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let zygote = self.zygote.iter().map(|zygote| zygote.socket.as_fd());
        zygote.chain(self.spares.iter().map(|spare| spare.reports.as_fd()))
    }

    /// Returns the zygote's processes that are, or could become, children of the init.
    pub(super) fn pids(&self) -> impl Iterator<Item = libc::pid_t> {
        let zygote = self.zygote.iter().map(|zygote| zygote.pid);
        zygote.chain(self.spares.iter().filter_map(|spare| spare.supervisor))
    }

    /// Processes messages of the interpreter and the idle guests. An idle guest that exits was killed by
    /// another guest.
    pub(super) fn listen(&mut self) {
        self.spares.retain_mut(|spare| {
            while let Some(heard) = spare.receive() {
                if !matches!(heard, SupervisorMessage::Started { .. }) {
                    return false;
                }
            }
            true
        });
        let Some(zygote) = &mut self.zygote else { return };
        while let Some(state) = zygote.receive() {
            zygote.state = state;
            if state == State::Warm {
                self.failures = 0;
            }
        }
    }

    /// Notes that a process exited; drops the interpreter if it was that.
    pub(super) fn ended(&mut self, pid: libc::pid_t) {
        if let Some(zygote) = self.zygote.take_if(|zygote| zygote.pid == pid) {
            // Requested but never forked.
            self.spares.retain(|spare| spare.supervisor.is_some());
            if zygote.state != State::Warm {
                self.failed();
            }
        }
    }

    /// Kills an unresponsive interpreter.
    pub(super) fn give_up(&self) {
        if let Some(zygote) = &self.zygote {
            let _ = sys::kill(zygote.pid, libc::SIGKILL);
        }
    }

    /// Takes an idle guest.
    pub(super) fn take(&mut self) -> Option<Worker> {
        let ready = self.spares.iter().position(|spare| spare.supervisor.is_some())?;
        let spare = self.spares.remove(ready);
        if let Some(supervisor) = spare.supervisor {
            // Another guest may have stopped it.
            let _ = sys::kill(supervisor, libc::SIGCONT);
        }
        Some(spare)
    }

    /// Returns `true` if there is no idle guest and none is requested.
    pub(super) fn is_out(&self) -> bool {
        self.spares.is_empty()
    }

    /// Returns `true` if idle guests are missing and can be requested.
    pub(super) fn lacks(&self) -> bool {
        let warm = self
            .zygote
            .as_ref()
            .is_some_and(|zygote| zygote.state == State::Warm);
        warm && self.spares.len() < SPARES
    }

    /// Requests guests for `wanted` calls, or up to the size of the pool.
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

    /// Receives a state change: `H` for hidden, `R` for warm.
    fn receive(&self) -> Option<State> {
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
        // Pipes, like a guest's: the interpreter's stream objects remember the type of their file.
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
        drop(execution.execute(socket.as_fd()));
    }
    sys::exit_now(127)
}
