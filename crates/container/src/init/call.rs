//! Runs one call in a container, from start to end.

use std::collections::VecDeque;
use std::sync::Arc;

use ringfence_exec::bridge::ByteChannel;
use ringfence_exec::local::{Chunk, Connection};
use ringfence_exec::output::{Captured, Captures};
use ringfence_exec::supervise::{
    DRAIN_TIMEOUT, Interruption, KILL_TIMEOUT, ProgramExit, RunLimits, cancellation,
};
use ringfence_jail::init::frames::{Cut, End, Fate, MAX_CONNECTIONS_OF_CALL, Start};
use ringfence_network::egress::outlet::{Outlet, address_variables, node_variable};
use ringfence_policy::{Bytes, EnvName, Outcome};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::InitClient;
use super::connection::GuestStream;
use super::error::{InitLost, NotRun};
use super::mux::{Arrived, Mux, Slot, Turn};

/// Upper bound for the connections of a call, its bridge included.
pub(super) const MAX_SERVED: usize = MAX_CONNECTIONS_OF_CALL + 1;

/// Outcome, captured output and resource usage of a finished call.
#[derive(Debug)]
pub struct Finished {
    pub outcome: Outcome,
    pub interruption: Option<Interruption>,
    /// Exit code, as reported in results.
    pub exit_code: i32,
    pub stdout: Captured,
    pub stderr: Captured,
    /// Largest resident set of the processes that were waited for, or the peak of its container.
    pub peak_memory_bytes: Option<u64>,
    pub cpu_seconds: Option<f64>,
    /// Set if the guest was forked from a warm interpreter.
    pub warm: bool,
    /// Warning about an unknown outcome.
    pub warning: Option<String>,
    /// Fingerprint of `/output` at the end of the call, if known.
    pub output: Option<u64>,
}

/// The way of a call to its caller, and to the network.
struct Way<'a> {
    connection: Connection,
    outlet: Option<&'a Outlet>,
}

impl InitClient {
    /// Runs a call until it ends, reaches its deadline or is cancelled. Captures at most `keep` bytes of each
    /// output stream.
    ///
    /// # Errors
    /// If the call was not run.
    pub async fn run(&self, start: Start, keep: Bytes, connection: Connection) -> Result<Finished, NotRun> {
        self.run_through(start, keep, connection, None).await
    }

    /// Like [`Self::run`], with a network that leads only through `outlet`.
    ///
    /// # Errors
    /// If the call was not run.
    pub async fn run_through(
        &self,
        start: Start,
        keep: Bytes,
        connection: Connection,
        outlet: Option<&Outlet>,
    ) -> Result<Finished, NotRun> {
        self.run_in_turn(Turn::Call, start, keep, Way { connection, outlet })
            .await
    }

    /// Runs an internal program, which has its own quota beside the calls of callers.
    pub(crate) async fn run_beside(
        &self,
        start: Start,
        keep: Bytes,
        connection: Connection,
    ) -> Result<Finished, NotRun> {
        self.run_in_turn(
            Turn::Beside,
            start,
            keep,
            Way {
                connection,
                outlet: None,
            },
        )
        .await
    }

    async fn run_in_turn(
        &self,
        turn: Turn,
        mut start: Start,
        keep: Bytes,
        way: Way<'_>,
    ) -> Result<Finished, NotRun> {
        let Way { connection, outlet } = way;
        if outlet.is_some() {
            tell_of_proxy(&mut start);
        }
        start.bridge = connection.bridge.is_some();
        let deadline = Instant::now() + start.timeout;
        let slot = tokio::select! {
            biased;
            slot = self.line.begin(turn, start, deadline) => slot?,
            () = cancellation(connection.cancelled.clone()) => return Ok(Finished::not_begun()),
        };
        let mut listener = Listener::new(keep, connection.output, Arc::clone(&self.line));
        listener.outlet = outlet.cloned();
        listener.bridge = connection.bridge;
        let heard = {
            let feeding = feed(&slot, connection.stdin);
            let limits = RunLimits {
                deadline,
                cancellation: cancellation(connection.cancelled),
                // Its writable directories are sized.
                disk_limit_exceeded: std::future::pending(),
            };
            listener.supervise(&slot, limits, feeding).await
        };
        listener.serving.shutdown().await;
        listener.last_words().await;
        let (stdout, stderr) = listener.captures.finish();
        match heard {
            Ok(End {
                fate: Fate::NotStarted { step, errno },
                ..
            }) => Err(NotRun::NotStarted { step, errno }),
            Ok(end) => Ok(Finished::of_end(&end, stdout, stderr)),
            Err(parted) if slot.was_never_sent() => Err(NotRun::InitLost(parted)),
            Err(parted) => {
                // The connection is lost, so nobody knows whether the program was killed: no interruption is reported.
                let exit = ProgramExit {
                    status: None,
                    out_of_memory: false,
                    interruption: None,
                };
                let warning = Some(parted.to_string());
                Ok(Finished {
                    warning,
                    ..Finished::of(exit, stdout, stderr)
                })
            }
        }
    }
}

/// Sets the proxy variables of a call. Variables that its caller set take precedence.
pub(super) fn tell_of_proxy(start: &mut Start) {
    let given = &start.environment;
    let is_set = |name: &str| given.iter().any(|(given, _)| given == name);
    let text = |name: EnvName| name.as_str().to_owned();
    start.proxy = address_variables(is_set).into_iter().map(text).collect();
    let node = node_variable(is_set).map(|(name, value)| (text(name), value));
    start.environment.extend(node);
}

/// Receives the output of a call: captures it and forwards it to the reader of live output.
struct Listener {
    captures: Captures,
    watcher: Option<mpsc::Sender<Chunk>>,
    /// Received and not yet forwarded. Bounded by the withheld credit, and by the pipes' capacity once the
    /// call is over.
    pending: VecDeque<Chunk>,
    /// Set when the call must end: a slow reader of live output then no longer applies backpressure.
    interruption: Option<Interruption>,
    /// The connection to the call's init.
    line: Arc<Mux>,
    /// The egress outlet of its connections, if the call has a network.
    outlet: Option<Outlet>,
    /// The host end of its bridge, until the guest's end is connected.
    bridge: Option<ByteChannel>,
    /// Tasks that serve its connections and its bridge.
    serving: JoinSet<()>,
}

impl Listener {
    fn new(keep: Bytes, watcher: Option<mpsc::Sender<Chunk>>, line: Arc<Mux>) -> Self {
        Self {
            captures: Captures::new(keep),
            watcher,
            pending: VecDeque::new(),
            interruption: None,
            line,
            outlet: None,
            bridge: None,
            serving: JoinSet::new(),
        }
    }

    async fn supervise(
        &mut self,
        slot: &Slot<'_>,
        limits: RunLimits<impl Future<Output = ()>, impl Future<Output = ()>>,
        feeding: impl Future<Output = ()>,
    ) -> Result<End, InitLost> {
        let mut due = limits.deadline;
        let limit_reached = limits.reached();
        tokio::pin!(feeding, limit_reached);
        let mut fed = false;
        loop {
            tokio::select! {
                biased;
                arrived = slot.arrived() => if let Some(ended) = self.take(slot, arrived) {
                    return ended;
                },
                interruption = &mut limit_reached, if self.interruption.is_none() => {
                    // The init has the same deadline, and kills the program by itself then.
                    if interruption != Interruption::TimedOut {
                        slot.kill();
                    }
                    self.interruption = Some(interruption);
                    self.stop_waiting(slot);
                    due = Instant::now() + KILL_TIMEOUT;
                }
                () = sleep_until(due), if self.interruption.is_some() => {
                    slot.give_up();
                    due += KILL_TIMEOUT;
                }
                passed = pass_on(&mut self.watcher, &mut self.pending) => if self.interruption.is_none() {
                    slot.credit(passed);
                },
                () = &mut feeding, if !fed => fed = true,
                Some(_) = self.serving.join_next() => {}
            }
        }
    }

    /// Lifts backpressure: from here on, credit no longer depends on the reader of live output.
    fn stop_waiting(&mut self, slot: &Slot<'_>) {
        let held_up = self.pending.iter().map(|chunk| chunk.bytes.len()).sum();
        slot.credit(held_up);
    }

    fn take(&mut self, slot: &Slot<'_>, arrived: Arrived) -> Option<Result<End, InitLost>> {
        self.serve(&arrived.connected);
        if let (Some(id), Some(bridge)) = (arrived.bridged, self.bridge.take()) {
            let stream = GuestStream::new(Arc::clone(&self.line), id);
            self.serving.spawn(bridge.carry(stream));
        }
        for chunk in arrived.chunks {
            self.captures.push(chunk.stream, &chunk.bytes);
            if self.watcher.is_none() || self.interruption.is_some() {
                slot.credit(chunk.bytes.len());
            }
            if self.watcher.is_some() {
                self.pending.push_back(chunk);
            }
        }
        arrived.end.map(Ok).or_else(|| arrived.parted.map(Err))
    }

    /// Serves new connections through the outlet. Drops those beyond the limit.
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

    /// Forwards the remaining live output.
    async fn last_words(&mut self) {
        let rest = async {
            while !self.pending.is_empty() {
                pass_on(&mut self.watcher, &mut self.pending).await;
            }
        };
        // A reader that has stopped reading is not waited for.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
    }
}

/// Forwards one chunk once there is one and the reader has capacity; returns its length. Cancel safe.
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

/// Forwards standard input until end of file.
async fn feed(slot: &Slot<'_>, stdin: Option<mpsc::Receiver<Vec<u8>>>) {
    let Some(mut stdin) = stdin else { return };
    while let Some(bytes) = stdin.recv().await {
        slot.input(bytes).await;
    }
    slot.end_input();
}

impl Finished {
    /// Combines an end with the captured output. Nothing was measured.
    pub(crate) fn of(exit: ProgramExit, stdout: Captured, stderr: Captured) -> Self {
        let (outcome, exit_code) = exit.outcome();
        Self {
            outcome,
            interruption: exit.interruption,
            exit_code,
            stdout,
            stderr,
            peak_memory_bytes: None,
            cpu_seconds: None,
            warm: false,
            warning: None,
            output: None,
        }
    }

    /// Adds what a container counts of every process to what its init knows of those that were waited for. `cpu_seconds` is
    /// the call's part of the container's.
    pub(crate) fn add_counted(&mut self, cpu_seconds: Option<f64>, peak_memory_bytes: Option<u64>) {
        if cpu_seconds > self.cpu_seconds {
            self.cpu_seconds = cpu_seconds;
        }
        self.peak_memory_bytes = self.peak_memory_bytes.max(peak_memory_bytes);
    }

    fn of_end(end: &End, stdout: Captured, stderr: Captured) -> Self {
        let exit = exit(end);
        let finished = Self::of(exit, stdout, stderr);
        let known = matches!(end.fate, Fate::Ended(_));
        let lost = "the supervisor of the program in the container was killed, most likely by the program";
        Self {
            peak_memory_bytes: known.then_some(end.max_rss),
            cpu_seconds: known.then_some(end.cpu_micros as f64 / 1e6),
            warm: end.warm,
            warning: (finished.outcome == Outcome::Unknown).then(|| lost.to_owned()),
            output: Some(end.output),
            ..finished
        }
    }

    /// Builds the result of a call that was cancelled while it was queued.
    fn not_begun() -> Self {
        let exit = ProgramExit {
            status: None,
            out_of_memory: false,
            interruption: Some(Interruption::Cancelled),
        };
        Self::of(exit, Captured::default(), Captured::default())
    }
}

/// Converts the end that an init reports.
fn exit(end: &End) -> ProgramExit {
    ProgramExit {
        status: match end.fate {
            Fate::Ended(status) => Some(status),
            Fate::Lost | Fate::NotStarted { .. } => None,
        },
        out_of_memory: end.out_of_memory,
        interruption: match end.cut {
            Cut::No => None,
            Cut::Deadline => Some(Interruption::TimedOut),
            Cut::Ordered => Some(Interruption::Cancelled),
        },
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
            assert_eq!(exit(&end).outcome(), expected, "{end:?}");
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
