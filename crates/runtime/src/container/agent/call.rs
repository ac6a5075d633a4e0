//! One call from its start to its end, however it ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ringfence_jail::agent::frames::{Cut, End, Fate, MAX_CONNECTIONS_OF_CALL, Start};
use ringfence_policy::{Bytes, EnvName, Outcome};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::connection::GuestStream;
use super::line::{Arrived, Line, Slot, Turn};
use super::{Agent, Parted};
use crate::bridge::Duct;
use crate::egress::outlet::{Outlet, address_variables, node_variable};
use crate::local::{Chunk, Connection, Stream, taken_back};
use crate::output::{Capture, Captured};

/// How long after its deadline a call may end, before its agent is given up.
const GRACE: Duration = Duration::from_secs(6);
/// How long a caller may take to read the last of a program's output.
const PATIENCE: Duration = Duration::from_secs(5);
/// The connections of a call, and its bridge.
const MAX_SERVED: usize = MAX_CONNECTIONS_OF_CALL + 1;
/// Permission denied.
const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
/// The status of a call of which nothing is known: that of a Ringfence that failed, and never a success.
const UNKNOWN_STATUS: i32 = 125;

/// What came of a call.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// Its status as results tell it.
    pub exit_code: i32,
    /// What it wrote to standard output.
    pub stdout: Captured,
    /// What it wrote to standard error.
    pub stderr: Captured,
    /// The largest resident set of its processes.
    pub peak_memory_bytes: Option<u64>,
    /// What it used of the processor.
    pub cpu_seconds: Option<f64>,
    /// Whether it came from a warm interpreter.
    pub warm: bool,
    /// Why nothing is known of its end.
    pub warning: Option<String>,
    /// The state of `/output` at its end, if it is known.
    pub output: Option<u64>,
}

/// Why a call was not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRun {
    /// It does not fit into a frame.
    #[error("the code, its arguments and its environment are too long together")]
    TooLong,
    /// As many calls ran as there may be, until its time was up.
    #[error("the container runs as many calls as it may, and none of them ended in time")]
    Busy,
    /// It could not be started in the container.
    #[error("cannot {step} in the container: {}", std::io::Error::from_raw_os_error(*errno))]
    NotStarted {
        /// What was being done.
        step: String,
        /// The system's error number.
        errno: i32,
    },
    /// There is no agent any more.
    #[error("the program was not started: {0}")]
    Parted(Parted),
}

impl NotRun {
    /// Whether there is no such program in the container.
    pub(in crate::container) fn is_missing(&self) -> bool {
        matches!(self, Self::NotStarted { step, .. } if step.starts_with("find "))
    }

    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Busy => "wait until some have ended",
            Self::TooLong => "pass long data as a file or on standard input",
            Self::NotStarted { errno: EACCES, .. } => {
                "give the directory to the program's user: where root runs it, that is the user 65534 (`chown -R 65534:65534 DIR`)"
            }
            Self::NotStarted { .. } => {
                "look whether the image has the program, and whether the directory exists there"
            }
            Self::Parted(parted) => parted.hint(),
        }
    }
}

impl Agent {
    /// Runs a call to its end, its deadline, or until the caller takes it back. Keeps `keep` bytes of each stream.
    ///
    /// # Errors
    /// If it was not run.
    pub async fn run(&self, start: Start, keep: Bytes, connection: Connection) -> Result<Finished, NotRun> {
        self.run_through(start, keep, connection, None).await
    }

    /// The same, with a network that leads through `outlet` alone.
    ///
    /// # Errors
    /// If it was not run.
    pub async fn run_through(
        &self,
        start: Start,
        keep: Bytes,
        connection: Connection,
        outlet: Option<&Outlet>,
    ) -> Result<Finished, NotRun> {
        self.run_in_turn((Turn::Call, start), keep, connection, outlet)
            .await
    }

    /// Runs a program of ours, which has its turn however many callers' run.
    pub(in crate::container) async fn run_beside(
        &self,
        start: Start,
        keep: Bytes,
        connection: Connection,
    ) -> Result<Finished, NotRun> {
        self.run_in_turn((Turn::Beside, start), keep, connection, None)
            .await
    }

    async fn run_in_turn(
        &self,
        (turn, mut start): (Turn, Start),
        keep: Bytes,
        connection: Connection,
        outlet: Option<&Outlet>,
    ) -> Result<Finished, NotRun> {
        if outlet.is_some() {
            tell_of_proxy(&mut start);
        }
        start.bridge = connection.bridge.is_some();
        let deadline = Instant::now() + start.timeout;
        let slot = tokio::select! {
            biased;
            slot = self.line.begin(turn, start, deadline) => slot?,
            () = taken_back(connection.cancelled.clone()) => return Ok(Finished::not_begun(keep)),
        };
        let mut listener = Listener::new(keep, connection.output, Arc::clone(&self.line));
        listener.outlet = outlet.cloned();
        listener.bridge = connection.bridge;
        let heard = {
            let feeding = feed(&slot, connection.stdin);
            let taken_back = taken_back(connection.cancelled);
            listener.attend(&slot, deadline, feeding, taken_back).await
        };
        listener.serving.shutdown().await;
        listener.last_words().await;
        let (stdout, stderr) = (listener.stdout.finish(), listener.stderr.finish());
        match heard {
            Ok(End {
                fate: Fate::NotStarted { step, errno },
                ..
            }) => Err(NotRun::NotStarted { step, errno }),
            Ok(end) => Ok(Finished::told(&end, stdout, stderr)),
            Err(parted) if slot.was_never_sent() => Err(NotRun::Parted(parted)),
            Err(parted) => Ok(Finished::unknown(&parted, stdout, stderr)),
        }
    }
}

/// Has a call told where its connections are taken in. What its caller has set holds.
fn tell_of_proxy(start: &mut Start) {
    let given = &start.environment;
    let is_set = |name: &str| given.iter().any(|(given, _)| given == name);
    let text = |name: EnvName| name.as_str().to_owned();
    start.proxy = address_variables(is_set).into_iter().map(text).collect();
    let node = node_variable(is_set).map(|(name, value)| (text(name), value));
    start.environment.extend(node);
}

/// Takes in what a call prints, and passes it on to whoever watches.
struct Listener {
    stdout: Capture,
    stderr: Capture,
    watcher: Option<mpsc::Sender<Chunk>>,
    /// Taken in, and not yet passed on. Bounded by the credit that is not given for it, and by pipes once the call is over.
    pending: VecDeque<Chunk>,
    /// Whether the call shall end: then it does not wait for whoever watches.
    ending: bool,
    /// Whose its streams are.
    line: Arc<Line>,
    /// Where its connections lead to, if it has a network.
    outlet: Option<Outlet>,
    /// Where its bridge leads to, until it is there.
    bridge: Option<Duct>,
    /// Its connections, and its bridge.
    serving: JoinSet<()>,
}

impl Listener {
    fn new(keep: Bytes, watcher: Option<mpsc::Sender<Chunk>>, line: Arc<Line>) -> Self {
        Self {
            stdout: Capture::new(keep),
            stderr: Capture::new(keep),
            watcher,
            pending: VecDeque::new(),
            ending: false,
            line,
            outlet: None,
            bridge: None,
            serving: JoinSet::new(),
        }
    }

    async fn attend(
        &mut self,
        slot: &Slot<'_>,
        deadline: Instant,
        feeding: impl Future<Output = ()>,
        taken_back: impl Future<Output = ()>,
    ) -> Result<End, Parted> {
        tokio::pin!(feeding, taken_back);
        let (mut fed, mut due) = (false, deadline);
        loop {
            tokio::select! {
                biased;
                arrived = slot.arrived() => if let Some(ended) = self.take(slot, arrived) {
                    return ended;
                },
                () = &mut taken_back, if !self.ending => {
                    slot.kill();
                    due = Instant::now();
                    self.stop_waiting(slot);
                    due += GRACE;
                }
                () = sleep_until(due) => {
                    if self.ending {
                        slot.give_up();
                    }
                    // The agent kills it; it has the same deadline.
                    self.stop_waiting(slot);
                    due += GRACE;
                }
                passed = pass_on(&mut self.watcher, &mut self.pending) => if !self.ending {
                    slot.credit(passed);
                },
                () = &mut feeding, if !fed => fed = true,
                Some(_) = self.serving.join_next() => {}
            }
        }
    }

    /// From here on, the call is not held up any more.
    fn stop_waiting(&mut self, slot: &Slot<'_>) {
        self.ending = true;
        let held_up = self.pending.iter().map(|chunk| chunk.bytes.len()).sum();
        slot.credit(held_up);
    }

    fn take(&mut self, slot: &Slot<'_>, arrived: Arrived) -> Option<Result<End, Parted>> {
        self.serve(&arrived.connected);
        if let (Some(id), Some(bridge)) = (arrived.bridged, self.bridge.take()) {
            let stream = GuestStream::new(Arc::clone(&self.line), id);
            self.serving.spawn(bridge.carry(stream));
        }
        for chunk in arrived.chunks {
            match chunk.stream {
                Stream::Stdout => self.stdout.push(&chunk.bytes),
                Stream::Stderr => self.stderr.push(&chunk.bytes),
            }
            if self.watcher.is_none() || self.ending {
                slot.credit(chunk.bytes.len());
            }
            if self.watcher.is_some() {
                self.pending.push_back(chunk);
            }
        }
        arrived.end.map(Ok).or_else(|| arrived.parted.map(Err))
    }

    /// Lets connections through. Those for which there is no room are given up.
    fn serve(&mut self, connected: &[u32]) {
        let Some(outlet) = &self.outlet else {
            return;
        };
        for id in connected {
            let stream = GuestStream::new(Arc::clone(&self.line), *id);
            if self.serving.len() < MAX_SERVED {
                self.serving.spawn(outlet.clone().serve(stream));
            }
        }
    }

    /// Passes on what whoever watches has not had yet.
    async fn last_words(&mut self) {
        let rest = async {
            while !self.pending.is_empty() {
                pass_on(&mut self.watcher, &mut self.pending).await;
            }
        };
        // One that has stopped reading is not waited for.
        let _ = tokio::time::timeout(PATIENCE, rest).await;
    }
}

/// Passes one chunk on, once there is one and somebody takes it; says how long it was. Loses nothing if it is dropped.
async fn pass_on(watcher: &mut Option<mpsc::Sender<Chunk>>, pending: &mut VecDeque<Chunk>) -> usize {
    let Some(first) = pending.front() else {
        return std::future::pending().await;
    };
    let length = first.bytes.len();
    if let Some(sender) = watcher.as_ref()
        && let Ok(place) = sender.reserve().await
    {
        if let Some(chunk) = pending.pop_front() {
            place.send(chunk);
        }
        return length;
    }
    *watcher = None;
    pending.drain(..).map(|chunk| chunk.bytes.len()).sum()
}

/// Passes standard input on, to its end.
async fn feed(slot: &Slot<'_>, stdin: Option<mpsc::Receiver<Vec<u8>>>) {
    let Some(mut stdin) = stdin else { return };
    while let Some(bytes) = stdin.recv().await {
        slot.input(bytes).await;
    }
    slot.end_input();
}

impl Finished {
    fn told(end: &End, stdout: Captured, stderr: Captured) -> Self {
        let (outcome, exit_code) = conclude(end);
        let known = matches!(end.fate, Fate::Ended(_));
        let lost = "whoever watched the program in the container was killed, most likely by the program";
        Self {
            outcome,
            exit_code,
            stdout,
            stderr,
            peak_memory_bytes: known.then_some(end.max_rss),
            cpu_seconds: known.then_some(end.cpu_micros as f64 / 1e6),
            warm: end.warm,
            warning: (outcome == Outcome::Unknown).then(|| lost.to_owned()),
            output: Some(end.output),
        }
    }

    /// Of one that was taken back while it waited for its turn.
    fn not_begun(keep: Bytes) -> Self {
        let nothing = || Capture::new(keep).finish();
        Self {
            outcome: Outcome::Cancelled,
            exit_code: -9,
            stdout: nothing(),
            stderr: nothing(),
            peak_memory_bytes: None,
            cpu_seconds: None,
            warm: false,
            warning: None,
            output: None,
        }
    }

    fn unknown(parted: &Parted, stdout: Captured, stderr: Captured) -> Self {
        Self {
            outcome: Outcome::Unknown,
            exit_code: UNKNOWN_STATUS,
            stdout,
            stderr,
            peak_memory_bytes: None,
            cpu_seconds: None,
            warm: false,
            warning: Some(parted.to_string()),
            output: None,
        }
    }
}

fn conclude(end: &End) -> (Outcome, i32) {
    match (&end.fate, end.cut) {
        (Fate::Ended(-9) | Fate::Lost, Cut::Deadline) => (Outcome::TimedOut, -1),
        (Fate::Ended(-9) | Fate::Lost, Cut::Ordered) => (Outcome::Cancelled, -9),
        (Fate::Ended(-9), Cut::No) if end.out_of_memory => (Outcome::MemoryExceeded, -9),
        (Fate::Ended(status @ ..0), _) => (Outcome::Signalled, *status),
        (Fate::Ended(status), _) => (Outcome::Exited, *status),
        (Fate::Lost | Fate::NotStarted { .. }, _) => (Outcome::Unknown, UNKNOWN_STATUS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_is_told_as_what_it_was() {
        let check = |fate: Fate, cut, out_of_memory, expected| {
            let end = End {
                fate,
                cut,
                left: false,
                warm: true,
                out_of_memory,
                cpu_micros: 0,
                max_rss: 0,
                output: 0,
            };
            assert_eq!(conclude(&end), expected, "{end:?}");
        };
        check(Fate::Ended(0), Cut::No, false, (Outcome::Exited, 0));
        check(Fate::Ended(255), Cut::No, true, (Outcome::Exited, 255));
        check(Fate::Ended(0), Cut::Deadline, false, (Outcome::Exited, 0));
        check(Fate::Ended(-11), Cut::No, false, (Outcome::Signalled, -11));
        check(Fate::Ended(-9), Cut::No, false, (Outcome::Signalled, -9));
        check(Fate::Ended(-9), Cut::No, true, (Outcome::MemoryExceeded, -9));
        check(Fate::Ended(-9), Cut::Deadline, true, (Outcome::TimedOut, -1));
        check(Fate::Ended(-9), Cut::Ordered, false, (Outcome::Cancelled, -9));
        check(Fate::Lost, Cut::Deadline, false, (Outcome::TimedOut, -1));
        check(Fate::Lost, Cut::No, false, (Outcome::Unknown, 125));
    }
}
