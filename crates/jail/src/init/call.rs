//! One call: its guest, its input and output, its end.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::family;
use super::files::stages;
use super::frames::{
    Cut, End, Fate, INPUT_WINDOW, OUTPUT_WINDOW, Program, Recipient, Report, Start, Stream, TerminalSize,
};
use super::pending::Pending;
use super::worker::{SupervisorMessage, Worker};
use crate::sys;

/// Time for a cancelled file operation to remove what it has staged.
const TIDYING: Duration = Duration::from_secs(2);
/// Time for a killed guest to disappear before its supervisor counts as faulty and is killed, too.
const STUBBORN: Duration = Duration::from_secs(2);
/// Pause between reads of a program that prints little: output or exit in the meantime goes out in one write.
const PAUSE: Duration = Duration::from_millis(2);
/// Output below which a program prints little, in bytes.
const LITTLE: u64 = 4096;
/// Interval between kills while processes of a family remain.
const AGAIN: Duration = Duration::from_millis(2);

/// A call, from its request to its end.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: u32,
    /// The program to run; `None` once it runs.
    pub(super) start: Option<Box<Start>>,
    pub(super) since: Instant,
    deadline: Option<Instant>,
    worker: Option<Worker>,
    warm: bool,
    job: Pending,
    /// Set if the control channel becomes its skills bridge.
    wants_bridge: bool,
    /// Time between its cancellation and its kill.
    grace: Duration,
    input: Pending,
    input_ends: bool,
    credit: u64,
    /// Earliest time of the next read of its output.
    listen_at: Instant,
    /// Set if the server waits for the output written so far.
    draining: bool,
    cut: Cut,
    killing: Option<Killing>,
    failed: Option<Fate>,
    ended: Option<sys::Reaped>,
    left: bool,
    gone: bool,
    memory_kills: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Killing {
    since: Instant,
    next: Instant,
}

/// Readiness to wait for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Interest {
    Read,
    Write,
}

impl Call {
    /// Creates a call that does not run yet; its timeout starts now.
    pub(super) fn new(id: u32, start: Box<Start>, now: Instant) -> Self {
        let listen_at = match start.program {
            // A file is longer than what a pipe holds: its reader would wait.
            Program::Files => now,
            Program::Command(_) | Program::Python { .. } | Program::Bash { .. } => now + PAUSE,
        };
        let grace = match start.program == Program::Files && stages(&start.arguments) {
            true => TIDYING,
            false => Duration::ZERO,
        };
        Self {
            id,
            since: now,
            deadline: now.checked_add(start.timeout),
            input_ends: !start.input,
            wants_bridge: start.bridge,
            grace,
            start: Some(start),
            worker: None,
            warm: false,
            job: Pending::default(),
            input: Pending::default(),
            credit: OUTPUT_WINDOW.into(),
            listen_at,
            draining: false,
            cut: Cut::No,
            killing: None,
            failed: None,
            ended: None,
            left: false,
            gone: false,
            memory_kills: None,
        }
    }

    /// Marks the call as running, or about to once it has read its job. `memory_kills` counts the kernel's
    /// earlier out-of-memory kills.
    pub(super) fn runs(
        &mut self,
        mut worker: Worker,
        job: Option<Vec<u8>>,
        warm: bool,
        memory_kills: Option<u64>,
    ) {
        self.memory_kills = memory_kills;
        self.warm = warm;
        match job {
            Some(job) => self.job.push(&job),
            None => worker.control = None,
        }
        self.worker = Some(worker);
        self.start = None;
    }

    /// Marks the call as failed to start.
    pub(super) fn fails(&mut self, step: &str, errno: i32) {
        self.failed = Some(Fate::NotStarted {
            step: step.to_owned(),
            errno,
        });
        self.start = None;
        self.gone = true;
    }

    /// Returns the process id of its supervisor.
    pub(super) fn supervisor(&self) -> Option<libc::pid_t> {
        self.worker.as_ref().filter(|_| !self.gone)?.supervisor
    }

    /// Returns the session id of its guest while it runs.
    pub(super) fn session(&self) -> Option<libc::pid_t> {
        self.worker.as_ref().filter(|_| !self.gone)?.guest
    }

    /// Notes that ended calls left processes in these sessions.
    pub(super) fn left_behind(&mut self, sessions: &[libc::pid_t]) {
        let guest = self.worker.as_ref().and_then(|worker| worker.guest);
        self.left |= self.gone && guest.is_some_and(|guest| sessions.contains(&guest));
    }

    /// Returns `true` if processes of the call may be among the strays.
    pub(super) fn may_have_strays(&self, adoption: bool) -> bool {
        self.gone && self.worker.is_some() && (!adoption || self.is_lost())
    }

    /// Queues input. `false` if it exceeds the window.
    pub(super) fn add_input(&mut self, bytes: &[u8]) -> bool {
        self.input.push(bytes);
        self.input.len() <= INPUT_WINDOW as usize
    }

    pub(super) fn end_input(&mut self) {
        self.input_ends = true;
    }

    pub(super) fn add_credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes.into());
    }

    /// Marks it to be killed, with the reason, unless it has ended: `tick` sends the signals.
    pub(super) fn kill(&mut self, cut: Cut, now: Instant) {
        if self.ended.is_none() && self.cut == Cut::No {
            self.cut = cut;
        }
        self.begin_killing(now);
        if self.start.take().is_some() {
            self.gone = true;
        }
    }

    fn begin_killing(&mut self, now: Instant) {
        self.killing.get_or_insert(Killing {
            since: now,
            next: now,
        });
    }

    /// Returns the time of the next action that no file descriptor announces.
    pub(super) fn next_event(&self, now: Instant) -> Option<Instant> {
        if self.gone {
            return None;
        }
        let listening = Some(self.listen_at).filter(|at| self.worker.is_some() && now < *at);
        let killing = self.killing.map(|killing| killing.next).or(self.deadline);
        killing.into_iter().chain(listening).min()
    }

    /// Performs due actions.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.gone {
            return;
        }
        if self.killing.is_none() && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.kill(Cut::Deadline, now);
        }
        let guest = self.session().filter(|_| self.ended.is_none());
        if let (Some(killing), Some(supervisor)) = (
            &mut self.killing,
            self.worker.as_ref().and_then(|worker| worker.supervisor),
        ) && killing.next <= now
        {
            killing.next = now + AGAIN;
            let since = killing.since + self.grace;
            // A guest may have stopped its supervisor, which must report the end.
            let _ = sys::kill(supervisor, libc::SIGCONT);
            if now < since {
                return self.cancel();
            }
            family::kill_below(supervisor);
            // A guest that has not called `execve` (one of the init's own programs) is hidden in /proc, so that `kill_below` misses it.
            if let Some(guest) = guest {
                let _ = sys::kill(guest, libc::SIGKILL);
            }
            if now.duration_since(since) > STUBBORN {
                let _ = sys::kill(supervisor, libc::SIGKILL);
            }
        }
    }

    /// Asks a file operation to remove what it has staged. It finds the signal once its input has ended.
    fn cancel(&mut self) {
        // One that is not known to have started is asked, or killed, later.
        let Some(guest) = self.session().filter(|_| self.ended.is_none()) else {
            return;
        };
        let _ = sys::kill(guest, libc::SIGTERM);
        let _ = sys::kill(guest, libc::SIGCONT);
        self.input = Pending::default();
        if let Some(worker) = &mut self.worker {
            worker.stdin = None;
        }
    }

    /// Relays the output written so far, and then reports that to the server.
    pub(super) fn drain(&mut self, now: Instant) {
        self.draining = true;
        self.listen_at = now;
    }

    /// Sends a signal to its guest.
    pub(super) fn signal(&self, signal: u32, to: Recipient) {
        let number = i32::try_from(signal)
            .ok()
            .filter(|signal| (1..=64).contains(signal));
        if let (Some(guest), Some(signal), None) = (self.session(), number, self.ended) {
            let _ = sys::kill(
                match to {
                    Recipient::Process => guest,
                    Recipient::Group => -guest,
                },
                signal,
            );
        }
    }

    /// Changes the size of the call's terminal, if it has one.
    pub(super) fn resize(&self, size: TerminalSize) {
        let worker = self.worker.as_ref();
        if let Some(terminal) = worker.and_then(|worker| worker.stdout.as_ref()) {
            // Its output may be a pipe, which has no size.
            let _ = sys::resize_terminal(terminal.as_fd(), size.columns, size.rows);
        }
    }

    /// Processes messages of its supervisor. Returns the process id of a guest that has just started.
    pub(super) fn listen(&mut self, now: Instant) -> Option<u32> {
        let mut started = None;
        while !self.gone {
            let heard = self.worker.as_mut().and_then(Worker::receive);
            match heard {
                None => break,
                Some(SupervisorMessage::Started { guest, .. }) => started = u32::try_from(guest).ok(),
                Some(SupervisorMessage::Failed { errno, step }) => {
                    self.failed = Some(Fate::NotStarted { step, errno })
                }
                Some(SupervisorMessage::Ended { end, left }) => {
                    self.ended = Some(end);
                    self.left = left;
                    if left {
                        self.begin_killing(now);
                    } else {
                        // The supervisor has nothing left to do; its exit need not be awaited.
                        self.gone = true;
                    }
                }
                Some(SupervisorMessage::Gone) => {
                    self.gone = true;
                    // Its guest may have killed it, and must not outlive it.
                    if let Some(guest) = self.worker.as_ref().and_then(|worker| worker.guest)
                        && self.is_lost()
                    {
                        family::kill_session(guest);
                    }
                }
            }
        }
        started
    }

    /// Returns `true` if the call's supervisor exited without reporting on the guest, which may still be
    /// alive.
    fn is_lost(&self) -> bool {
        self.gone && self.worker.is_some() && self.ended.is_none() && self.failed.is_none()
    }

    /// Writes the job and input to the guest, and reports the input consumed.
    pub(super) fn feed(&mut self, channel: &mut Channel) {
        match self.forward() {
            0 => {}
            bytes => channel.say(&Report::Taken { call: self.id, bytes }),
        }
    }

    /// Returns the call's bridge as soon as the guest has read the whole job from it.
    pub(super) fn bridge(&mut self) -> Option<OwnedFd> {
        let worker = self.worker.as_mut()?;
        let given = worker
            .control
            .take_if(|_| self.wants_bridge && self.job.is_empty());
        given.map(OwnedFd::from)
    }

    fn forward(&mut self) -> u32 {
        let Some(worker) = &mut self.worker else { return 0 };
        if let Some(control) = &worker.control
            && (self.job.forward(control).is_err() || self.job.is_empty() && !self.wants_bridge)
        {
            worker.control = None;
            self.job = Pending::default();
        }
        let Some(stdin) = &worker.stdin else {
            return self.input_ignored();
        };
        match self.input.forward(stdin) {
            Ok(taken) => {
                if self.input.is_empty() && self.input_ends {
                    worker.stdin = None;
                }
                taken as u32
            }
            Err(()) => {
                worker.stdin = None;
                self.input_ignored()
            }
        }
    }

    /// Discards input without a reader, and counts it as consumed, so that the sender does not wait.
    fn input_ignored(&mut self) -> u32 {
        std::mem::take(&mut self.input).len() as u32
    }

    /// Relays output, as far as the server's credit allows.
    pub(super) fn pass_on(&mut self, channel: &mut Channel, now: Instant) {
        if !self.gone && now < self.listen_at {
            return;
        }
        let before = self.credit;
        for stream in [Stream::Stdout, Stream::Stderr] {
            while self.credit > 0 && !channel.is_full() && self.pass_on_once(stream, channel) {}
        }
        if self.draining && self.credit > 0 && !channel.is_full() {
            self.draining = false;
            channel.say(&Report::Drained { call: self.id });
        }
        if (1..LITTLE).contains(&(before - self.credit)) {
            self.listen_at = now + PAUSE;
        }
    }

    /// Relays one chunk of one stream. `false` if no more is available now.
    fn pass_on_once(&mut self, stream: Stream, channel: &mut Channel) -> bool {
        let Some(worker) = &mut self.worker else {
            return false;
        };
        let file = match stream {
            Stream::Stdout => &mut worker.stdout,
            Stream::Stderr => &mut worker.stderr,
        };
        let Some(mut open) = file.as_ref() else {
            return false;
        };
        let most = usize::try_from(self.credit).unwrap_or(usize::MAX);
        match channel.relay(self.id, stream, &mut open, most) {
            Ok(count) if count > 0 => {
                self.credit -= count as u64;
                true
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            // Another process may hold the pipe's write end: once the whole call is gone, the data in the
            // pipe is all there is.
            Err(error) if error.kind() == ErrorKind::WouldBlock && !self.gone => false,
            _ => {
                *file = None;
                false
            }
        }
    }

    /// Returns the readiness to wait for.
    pub(super) fn interests(
        &self,
        room: bool,
        now: Instant,
    ) -> impl Iterator<Item = (BorrowedFd<'_>, Interest)> {
        let listening = room && self.credit > 0 && now >= self.listen_at;
        let worker = self.worker.iter();
        worker.flat_map(move |worker| {
            let reports = Some(worker.reports.as_fd()).filter(|_| !self.gone);
            let outputs = [&worker.stdout, &worker.stderr];
            let outputs = outputs.into_iter().flatten().filter(move |_| listening);
            let inputs = [
                worker.control.as_ref().filter(|_| !self.job.is_empty()),
                worker.stdin.as_ref().filter(|_| !self.input.is_empty()),
            ];
            let reading = reports.into_iter().chain(outputs.map(AsFd::as_fd));
            let writing = inputs.into_iter().flatten().map(AsFd::as_fd);
            reading
                .map(|fd| (fd, Interest::Read))
                .chain(writing.map(|fd| (fd, Interest::Write)))
        })
    }

    /// Returns the final report once all its processes are gone and all its output was relayed. `output`
    /// computes the state of the output directory.
    pub(super) fn end(&self, output: impl FnOnce() -> u64) -> Option<Report> {
        if !self.gone || !self.worker.as_ref().is_none_or(Worker::is_silent) {
            return None;
        }
        let killed = self.ended.is_none_or(|end| end.status == -libc::SIGKILL);
        let for_memory = || {
            let before_and_after = self.memory_kills.zip(family::memory_kills());
            before_and_after.is_some_and(|(before, after)| before < after)
        };
        let fate = match (&self.failed, self.ended) {
            (Some(failed), _) => failed.clone(),
            (None, Some(end)) => Fate::Ended(end.status),
            // Cancelled before it ran.
            (None, None) if self.worker.is_none() => Fate::Ended(-libc::SIGKILL),
            (None, None) => Fate::Lost,
        };
        let end = End {
            fate,
            // It may have exited before the kill.
            cut: if killed { self.cut } else { Cut::No },
            left: self.left,
            warm: self.warm,
            out_of_memory: killed && self.ended.is_some() && self.cut == Cut::No && for_memory(),
            cpu_micros: self.ended.map_or(0, |end| end.cpu_micros),
            max_rss: self.ended.map_or(0, |end| end.max_rss),
            output: output(),
        };
        Some(Report::End { call: self.id, end })
    }
}
