//! The init's event loop: one thread, which blocks in a single poll only.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::slice;
use std::time::{Duration, Instant};

use super::call::{Call, Interest};
use super::channel::{Channel, Closed};
use super::family;
use super::files;
use super::frames::{
    Cut, ENTER_DIRECTORY, Hello, InitRequest, Leftovers, MAX_CALLS, Program, Ready, Report, Start, VERSION,
};
use super::memory_guard::MemoryGuard;
use super::network::Network;
use super::programs::Surroundings;
use super::warm::Warm;
use super::worker::{self, Execution};
use crate::boot_id::BootId;
use crate::mount_point;
use crate::step_error::{Step, StepError};
use crate::sys;

/// Time a call waits for a warm interpreter before it gets a cold one.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Delay of forking after a call's end, while a pooled guest is idle: the response needs the processor.
const BREATH: Duration = Duration::from_millis(2);
/// Retry interval after a failed request for guests.
const REFILL: Duration = Duration::from_millis(20);
/// Interval of sweeps while there are strays.
const SWEEP: Duration = Duration::from_millis(2);

/// The first process of a container.
#[derive(Debug)]
pub(super) struct Init {
    channel: Channel,
    signals: OwnedFd,
    surroundings: Surroundings,
    python: Vec<String>,
    warm: Warm,
    calls: BTreeMap<u32, Call>,
    network: Network,
    newest: Option<u32>,
    /// Time at which used guests are replaced. Not while their user runs: it needs the memory.
    refill_at: Option<Instant>,
    /// Out-of-memory kills counted by the kernel while no call ran.
    memory_kills: Option<u64>,
    /// Set if supervisors adopt orphans of their guests; gVisor of 2022 has no such feature.
    adoption: bool,
    /// Set if unsupervised children may have been reparented to this process.
    sweeping: bool,
    /// Output directory of guests, if the server wants its state.
    output: Option<PathBuf>,
    leftovers: Leftovers,
    /// Set while the server waits for the end of all processes.
    ending_all: bool,
    /// `None` in a container, where the engine sets the adjustment.
    guard: Option<MemoryGuard>,
    /// `None` in a container, where engines let nothing be mounted over the machine's.
    boot_id: Option<BootId>,
}

impl Init {
    pub(super) fn new(surroundings: Surroundings) -> Result<Self, StepError> {
        Ok(Self {
            signals: sys::signalfd(&[libc::SIGCHLD, libc::SIGTERM]).step("listen to signals")?,
            channel: Channel::open()?,
            surroundings,
            python: Vec::new(),
            warm: Warm::new(None),
            calls: BTreeMap::new(),
            network: Network::default(),
            newest: None,
            refill_at: None,
            memory_kills: None,
            // Without effect on process 1, which adopts orphans anyway. gVisor of 2022 accepts the option for
            // process 1 alone, and offers no way to detect it.
            adoption: sys::become_subreaper().is_ok() && sys::is_subreaper(),
            sweeping: false,
            output: None,
            leftovers: Leftovers::Kill,
            ending_all: false,
            guard: None,
            boot_id: None,
        })
    }

    /// Makes the kernel kill programs first when memory runs out, and renews the boot id when all processes have ended.
    pub(super) fn in_cell(self, guard: MemoryGuard, boot_id: BootId) -> Self {
        Self {
            guard: Some(guard),
            boot_id: Some(boot_id),
            ..self
        }
    }

    /// Serves until the server disconnects. The exit of this process ends everything in the container.
    pub(super) fn serve(mut self) -> ExitCode {
        loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) | Err(Closed::Gone) => return ExitCode::SUCCESS,
                Err(Closed::Senseless(error)) => {
                    self.channel.say(&Report::Broken(error.to_string()));
                    // A peer that does not read cannot be notified.
                    let _ = self.channel.flush();
                    return ExitCode::FAILURE;
                }
            }
        }
    }

    /// Handles one or more events. `false` on SIGTERM.
    fn turn(&mut self) -> Result<bool, Closed> {
        let (input, told) = self.wait();
        if told {
            return Ok(false);
        }
        if input {
            self.channel.receive()?;
            while let Some(order) = self.channel.order()? {
                self.obey(order);
            }
        }
        let now = Instant::now();
        self.reap();
        self.warm.listen();
        self.tend(now);
        self.launch(now);
        self.open_bridges();
        self.conclude(now);
        self.channel.flush()?;
        self.rest(now);
        Ok(true)
    }

    /// Waits for an event. Returns whether the server has sent data, and whether SIGTERM arrived.
    fn wait(&mut self) -> (bool, bool) {
        let now = Instant::now();
        let timeout = self.next_event(now).map(|at| at.saturating_duration_since(now));
        let room = !self.channel.is_full();
        let mut interests: Vec<(BorrowedFd<'_>, Interest)> = vec![
            (self.signals.as_fd(), Interest::Read),
            (self.channel.input(), Interest::Read),
        ];
        interests.extend(
            self.channel
                .has_waiting()
                .then(|| (self.channel.output(), Interest::Write)),
        );
        interests.extend(self.warm.sockets().map(|fd| (fd, Interest::Read)));
        interests.extend(self.calls.values().flat_map(|call| call.interests(room, now)));
        interests.extend(self.network.interests(room));
        let fds: Vec<(BorrowedFd<'_>, libc::c_short)> = interests
            .into_iter()
            .map(|(fd, interest)| match interest {
                Interest::Read => (fd, libc::POLLIN),
                Interest::Write => (fd, libc::POLLOUT),
            })
            .collect();
        let ready = sys::poll_for(&fds, timeout).unwrap_or_default();
        let is_ready = |index: usize| ready.get(index).is_some_and(|ready| *ready);
        // Guests can send signals, too. Signals from outside have sender 0.
        let told =
            is_ready(0) && sys::take_signals_with_senders(self.signals.as_fd()).contains(&(libc::SIGTERM, 0));
        (is_ready(1), told)
    }

    fn next_event(&self, now: Instant) -> Option<Instant> {
        let waiting = self.calls.values().filter(|call| call.start.is_some());
        let patience = waiting.map(|call| call.since + TIMEOUT);
        let sweep = self.sweeping.then(|| now + SWEEP);
        let calls = self.calls.values().filter_map(|call| call.next_event(now));
        let refill = self.refill_at.filter(|_| self.warm.lacks());
        let others = sweep.into_iter().chain(refill).chain(self.network.next_event());
        calls.chain(patience).chain(others).min()
    }

    fn obey(&mut self, order: InitRequest) {
        let now = Instant::now();
        match order {
            InitRequest::Hello(hello) => self.greet(hello),
            InitRequest::Start { call, start } => self.accept(call, start, now),
            InitRequest::Input { call, bytes } => {
                if let Some(call) = self.calls.get_mut(&call)
                    && !call.add_input(&bytes)
                {
                    call.kill(Cut::Ordered, now);
                }
            }
            InitRequest::InputEnd { call } => self.with(call, Call::end_input),
            InitRequest::Kill { call } => self.with(call, |call| call.kill(Cut::Ordered, now)),
            InitRequest::Credit { call, bytes } => self.with(call, |call| call.add_credit(bytes)),
            InitRequest::Drain { call } => self.with(call, |call| call.drain(now)),
            InitRequest::EndAll => self.end_all(now),
            InitRequest::Signal { call, signal, to } => self.with(call, |call| call.signal(signal, to)),
            InitRequest::Resize { call, size } => self.with(call, |call| call.resize(size)),
            InitRequest::Deliver { connection, bytes } => {
                self.network.deliver(connection, &bytes, &mut self.channel);
            }
            InitRequest::Allow { connection, bytes } => self.network.allow(connection, bytes),
            InitRequest::Drop { connection } => self.network.drop_connection(connection),
        }
    }

    /// Kills all other processes. No fork outruns that: a process with a signal to handle does not fork, and the kernel sends this one
    /// to all of the namespace at once (kill(2)).
    fn end_all(&mut self, now: Instant) {
        for call in self.calls.values_mut() {
            call.kill(Cut::Ordered, now);
        }
        match sys::process_ids().0 {
            1 => drop(sys::kill(-1, libc::SIGKILL)),
            // Not in a namespace of its own, where that would kill strangers.
            own => family::kill_below(own),
        }
        self.ending_all = true;
    }

    /// Applies `act` to a call. A message to an ended call crossed the report of its end.
    fn with(&mut self, call: u32, act: impl FnOnce(&mut Call)) {
        if let Some(call) = self.calls.get_mut(&call) {
            act(call);
        }
    }

    fn greet(&mut self, hello: Hello) {
        let found = |name: &str| {
            let path = self.surroundings.find(name, &[])?;
            path.into_os_string().into_string().ok()
        };
        let ready = Ready {
            version: VERSION,
            python: found("python3").filter(|_| !hello.python.is_empty()),
            bash: found("bash"),
            mount_points: mount_point::examine(&hello.mount_points),
        };
        if let (true, Some(python)) = (hello.version == VERSION, &ready.python) {
            let with = |last: &str| [slice::from_ref(python), &hello.python, &[last.to_owned()]].concat();
            self.python = with("call");
            let arguments = with("forks");
            let environment = self.surroundings.environment(&[]);
            self.warm = Warm::new(Execution::new(python.as_ref(), &arguments, &environment, "/").ok());
        }
        self.output = Some(hello.output)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        self.leftovers = hello.leftovers;
        self.channel.begin_with(hello.secret);
        self.channel.say(&Report::Ready(ready));
    }

    fn accept(&mut self, id: u32, mut start: Box<Start>, now: Instant) {
        if self.calls.contains_key(&id) {
            // Its end would be mistaken for the other call's.
            return;
        }
        let entered = directory(Path::new(&start.directory));
        let connected = self.connect(id, &mut start);
        let mut call = Call::new(id, start, now);
        if let Err(error) = connected {
            call.fails(
                "listen for its connections",
                error.raw_os_error().unwrap_or(libc::EADDRINUSE),
            );
        }
        if let Err(error) = entered {
            call.fails(ENTER_DIRECTORY, error.raw_os_error().unwrap_or(libc::ENOENT));
        }
        if self.newest.is_some_and(|newest| id <= newest) {
            call.fails("number the call", libc::EEXIST);
        } else if self.calls.len() >= MAX_CALLS {
            call.fails("find room for the call", libc::EAGAIN);
        }
        self.newest = self.newest.max(Some(id));
        self.calls.insert(id, call);
    }

    /// Opens a call's network, and passes it the address.
    fn connect(&mut self, call: u32, start: &mut Start) -> std::io::Result<()> {
        if start.proxy.is_empty() {
            return Ok(());
        }
        let address = format!("http://127.0.0.1:{}", self.network.open(call)?);
        let variables = start.proxy.drain(..).map(|name| (name, address.clone()));
        start.environment.extend(variables);
        Ok(())
    }

    /// Reaps exited children.
    fn reap(&mut self) {
        loop {
            match sys::reap(sys::Wait::Poll) {
                Ok(Some(end)) => {
                    self.warm.ended(end.pid);
                    self.sweeping = true;
                }
                Ok(None) => return,
                // There are no children, and so no processes: this one adopts them.
                Err(_) if std::mem::take(&mut self.ending_all) => return self.all_ended(),
                Err(_) => return,
            }
        }
    }

    /// Reports the end of all processes. What starts from now on finds another boot id.
    fn all_ended(&mut self) {
        match self.boot_id.as_mut().map_or(Ok(()), BootId::renew) {
            Ok(()) => self.channel.say(&Report::AllEnded),
            Err(error) => self
                .channel
                .say(&Report::Broken(format!("renew the boot id: {error}"))),
        }
    }

    /// Advances all calls, and sweeps up after ended ones.
    fn tend(&mut self, now: Instant) {
        // The network first: a call with endless output must not starve it.
        self.network.tend(&mut self.channel, now);
        for call in self.calls.values_mut() {
            if let Some(pid) = call.listen(now)
                && self.leftovers == Leftovers::Keep
            {
                self.channel.say(&Report::Started { call: call.id, pid });
            }
            call.tick(now);
            call.feed(&mut self.channel);
            call.pass_on(&mut self.channel, now);
        }
        let adoption = self.adoption;
        self.sweeping |= self.calls.values().any(|call| call.may_have_strays(adoption));
        self.sweeping &= self.leftovers == Leftovers::Kill;
        if self.sweeping {
            self.sweep();
        }
    }

    /// Kills unsupervised processes. Where supervisors cannot adopt orphans, a process in the session of a
    /// running guest belongs to that guest and is not a stray.
    fn sweep(&mut self) {
        let supervisors = self.calls.values().filter_map(Call::supervisor);
        let ours: BTreeSet<_> = supervisors.chain(self.warm.pids()).collect();
        let running = self
            .calls
            .values()
            .filter_map(Call::session)
            .filter(|_| !self.adoption);
        let strays = family::kill_strays(&ours, &running.collect());
        for call in self.calls.values_mut() {
            call.left_behind(&strays);
        }
        self.sweeping = !strays.is_empty();
    }

    /// Starts queued calls.
    fn launch(&mut self, now: Instant) {
        let idle = self.calls.values().all(|call| call.start.is_some());
        if idle && !self.sweeping {
            self.warm.ensure();
        }
        if self.calls.len() > 1 {
            self.memory_kills = family::memory_kills();
        }
        let mut wanted = 0;
        for call in self.calls.values_mut() {
            let Some(start) = call.start.take() else { continue };
            let is_python = matches!(start.program, Program::Python { .. });
            if is_python
                && start.terminal.is_none()
                && let Some(worker) = self.warm.take()
            {
                if let Some(pid) = worker.guest.and_then(|pid| pid.try_into().ok())
                    && self.leftovers == Leftovers::Keep
                {
                    self.channel.say(&Report::Started { call: call.id, pid });
                }
                call.runs(worker, Some(job(&start)), true, self.memory_kills);
                call.feed(&mut self.channel);
                self.refill_at = None;
            } else if !self.warm.is_hidden() || (is_python && self.warm.is_there()) {
                if now.duration_since(call.since) >= TIMEOUT {
                    self.warm.give_up();
                }
                wanted += 1;
                call.start = Some(start);
            } else {
                let started = self
                    .surroundings
                    .prepare(&start, &self.python)
                    .map(|execution| execution.leaving(self.leftovers).in_terminal(start.terminal))
                    .and_then(|execution| match &mut self.guard {
                        Some(guard) => guard.forking(|| worker::start(execution)),
                        None => worker::start(execution),
                    });
                match started {
                    Ok(worker) => {
                        let job = (is_python || start.bridge).then(|| job(&start));
                        call.runs(worker, job, false, self.memory_kills);
                    }
                    Err(error) => call.fails(error.step, error.errno()),
                }
            }
        }
        if wanted > 0 {
            self.warm.fill(wanted);
        }
    }

    /// Adopts the bridges of the calls that have started.
    fn open_bridges(&mut self) {
        for call in self.calls.values_mut() {
            if let Some(bridge) = call.bridge() {
                self.network.bridge(call.id, bridge, &mut self.channel);
            }
        }
    }

    /// Reports ended calls.
    fn conclude(&mut self, now: Instant) {
        let (channel, network, before) = (&mut self.channel, &mut self.network, self.calls.len());
        let (sweeping, adoption) = (self.sweeping, self.adoption);
        let output = self.output.as_deref();
        self.calls.retain(|id, call| {
            let swept = !sweeping || !call.may_have_strays(adoption);
            let ended = swept.then(|| call.end(|| output.map_or(files::EMPTY, files::state)));
            match ended.flatten() {
                Some(end) => {
                    network.close(*id);
                    channel.say(&end);
                    false
                }
                None => true,
            }
        });
        if self.calls.len() < before {
            self.refill_at = Some(now + BREATH);
        }
    }

    /// Does work that no call waits for.
    fn rest(&mut self, now: Instant) {
        let idle = self.calls.is_empty();
        if idle {
            self.memory_kills = family::memory_kills();
        }
        let due = self.refill_at.map_or(idle, |at| at <= now);
        if self.warm.lacks() && (due || (idle && self.warm.is_out())) {
            self.warm.fill(0);
            self.refill_at = self.warm.lacks().then(|| now + REFILL);
        }
    }
}

/// Precedes the job of a program that keeps the file descriptor as its bridge.
const BRIDGED: [u8; 4] = [0xff; 4];

/// Encodes a job for a Python's control channel: the length of its directory, the directory, then the job in
/// the format of `python/worker.py`.
fn job(start: &Start) -> Vec<u8> {
    let Program::Python { name, code } = &start.program else {
        return Vec::new();
    };
    let count = start.arguments.len().to_string();
    let variables = start.environment.iter().flat_map(|(name, value)| [name, value]);
    let mut fields = Vec::new();
    for text in [name, code, &count]
        .into_iter()
        .chain(&start.arguments)
        .chain(variables)
    {
        fields.extend(length(text.len()));
        fields.extend(text.as_bytes());
    }
    let directory = start.directory.as_bytes();
    let bridged: &[u8] = if start.bridge { &BRIDGED } else { &[] };
    [
        &length(directory.len())[..],
        directory,
        bridged,
        &length(fields.len()),
        &fields,
    ]
    .concat()
}

/// Encodes the length of a frame, which is shorter than 4 GiB.
fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()
}

/// Checks that a path is a directory.
fn directory(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path)?.is_dir() {
        true => Ok(()),
        false => Err(std::io::Error::from_raw_os_error(libc::ENOTDIR)),
    }
}
