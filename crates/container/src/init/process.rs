//! A process in a sandbox: a call that may run for as long as the sandbox, with a stream of events.

use std::sync::Arc;
use std::time::Duration;

use ringfence_exec::local::Chunk;
use ringfence_jail::init::frames::{End, Fate, InitRequest, Program, Recipient, Start, TerminalSize};
use ringfence_network::egress::Outlet;
use tokio::io::{DuplexStream, copy_bidirectional};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::InitClient;
use super::call::{MAX_SERVED, tell_of_proxy};
use super::connection::GuestStream;
use super::error::{InitLost, NotRun};
use super::mux::{Arrived, Mux, Slot, Turn};

/// Time to wait for a turn: a sandbox has a limit of concurrent processes.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a process to start, its turn included.
const START: Duration = Duration::from_secs(20);
/// Capacity of the event queue. A process whose reader is slower has to wait.
const UNREAD: usize = 16;
/// Chunks of input that may wait for the process.
const UNWRITTEN: usize = 16;

/// A process that runs. Dropping it kills it with its descendants.
#[derive(Debug)]
pub struct Process {
    /// Process id in its sandbox.
    pub pid: u32,
    /// Events of the process. The last one is [`ProcessEvent::Ended`] or [`ProcessEvent::Lost`].
    pub events: mpsc::Receiver<ProcessEvent>,
    /// Standard input of the process. Dropping the sender closes it.
    pub stdin: mpsc::Sender<Vec<u8>>,
    pub control: ProcessControl,
    /// Relays the events; aborting it kills the process.
    pub task: JoinSet<()>,
}

/// An event of a process.
#[derive(Debug)]
pub enum ProcessEvent {
    Output(Chunk),
    /// All output before [`ProcessControl::drain`] has been passed on.
    Drained,
    /// The process has ended.
    Ended(End),
    /// The end of the process is unknown.
    Lost(InitLost),
}

/// Sends signals to a process. Without effect once it has ended.
#[derive(Debug, Clone)]
pub struct ProcessControl {
    line: Arc<Mux>,
    call: u32,
}

impl ProcessControl {
    /// Sends a signal; see signal(7).
    pub fn signal(&self, signal: u32, to: Recipient) {
        self.line.send(&InitRequest::Signal {
            call: self.call,
            signal,
            to,
        });
    }

    /// Asks for the output that the process has written so far: [`ProcessEvent::Drained`] follows it.
    pub fn drain(&self) {
        self.line.send(&InitRequest::Drain { call: self.call });
    }

    /// Changes the size of the process's terminal.
    pub fn resize(&self, size: TerminalSize) {
        self.line.send(&InitRequest::Resize {
            call: self.call,
            size,
        });
    }

    /// Kills the process with its descendants.
    pub fn kill(&self) {
        self.line.send(&InitRequest::Kill { call: self.call });
    }
}

/// Adds variables, unless there are some with their names.
fn add_missing<'a>(
    environment: &mut Vec<(String, String)>,
    more: impl Iterator<Item = &'a (String, String)>,
) {
    for (name, value) in more {
        if !environment.iter().any(|(known, _)| known == name) {
            environment.push((name.clone(), value.clone()));
        }
    }
}

impl InitClient {
    /// Starts a process; `bridge` is the host's end of its bridge.
    ///
    /// # Errors
    /// If it cannot be started, or the limit of concurrent processes is reached.
    pub async fn start(&self, mut start: Start, bridge: Option<DuplexStream>) -> Result<Process, NotRun> {
        start.bridge = bridge.is_some();
        // Files are the init's own operations, without a network.
        let has_network = start.program != Program::Files;
        let outlet = self.outlet.clone();
        let outlet = outlet.filter(|outlet| has_network && outlet.has_led());
        if outlet.is_some() {
            tell_of_proxy(&mut start);
        }
        let given = self.environment.get().filter(|_| has_network);
        add_missing(&mut start.environment, given.into_iter().flatten());
        let (events, received) = mpsc::channel(UNREAD);
        let (stdin, input) = mpsc::channel(UNWRITTEN);
        let (started, starting) = oneshot::channel();
        let driver = Driver {
            line: Arc::clone(&self.line),
            events,
            bridge,
            outlet,
            serving: JoinSet::new(),
        };
        let mut task = JoinSet::new();
        task.spawn(driver.drive(start, input, started));
        // A guest may have stopped whoever would start it. Dropping the task kills what there is.
        let starting = tokio::time::timeout(START, starting).await;
        match starting.unwrap_or(Ok(Err(NotRun::Busy))) {
            Ok(Ok((call, pid))) => Ok(Process {
                pid,
                events: received,
                stdin,
                control: ProcessControl {
                    line: Arc::clone(&self.line),
                    call,
                },
                task,
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(NotRun::InitLost(InitLost::Gone)),
        }
    }
}

/// The outcome of a start: the numbers of call and process.
type Starting = oneshot::Sender<Result<(u32, u32), NotRun>>;

/// Relays the events of one process.
struct Driver {
    line: Arc<Mux>,
    events: mpsc::Sender<ProcessEvent>,
    bridge: Option<DuplexStream>,
    /// Egress outlet of its connections, if it has a network.
    outlet: Option<Outlet>,
    /// The tasks that serve its bridge and its connections.
    serving: JoinSet<()>,
}

impl Driver {
    async fn drive(mut self, start: Start, input: mpsc::Receiver<Vec<u8>>, started: Starting) {
        let now = Instant::now();
        let deadline = now.checked_add(start.timeout).unwrap_or(now + TIMEOUT);
        let line = Arc::clone(&self.line);
        let slot = match line.begin_by(Turn::Call, start, deadline, now + TIMEOUT).await {
            Ok(slot) => slot,
            Err(error) => return drop(started.send(Err(error))),
        };
        let feeding = feed(&slot, input);
        let relaying = self.relay(&slot, started);
        tokio::pin!(feeding, relaying);
        let mut fed = false;
        loop {
            tokio::select! {
                () = &mut relaying => return,
                () = &mut feeding, if !fed => fed = true,
            }
        }
    }

    async fn relay(&mut self, slot: &Slot<'_>, started: Starting) {
        let mut started = Some(started);
        loop {
            let arrived = tokio::select! {
                arrived = slot.arrived() => arrived,
                Some(_) = self.serving.join_next() => continue,
            };
            if let Some(pid) = arrived.pid
                && let Some(started) = started.take()
            {
                let _ = started.send(Ok((slot.id(), pid)));
            }
            if let Some(ended) = self.take(slot, arrived, &mut started).await {
                let _ = self.events.send(ended).await;
                return;
            }
        }
    }

    /// Forwards the received events. Returns the last event.
    async fn take(
        &mut self,
        slot: &Slot<'_>,
        arrived: Arrived,
        started: &mut Option<Starting>,
    ) -> Option<ProcessEvent> {
        if let Some(id) = arrived.bridged {
            self.serve(id);
        }
        for id in arrived.connected {
            self.serve_connection(id);
        }
        for chunk in arrived.chunks {
            let length = chunk.bytes.len();
            // Without a reader, output is discarded.
            let _ = self.events.send(ProcessEvent::Output(chunk)).await;
            slot.credit(length);
        }
        if arrived.drained {
            let _ = self.events.send(ProcessEvent::Drained).await;
        }
        if let Some(end) = arrived.end {
            if let Some(started) = started.take() {
                let _ = started.send(match not_started(&end) {
                    Some(error) => Err(error),
                    // It has ended before its start was told.
                    None => Ok((slot.id(), 0)),
                });
            }
            return Some(ProcessEvent::Ended(end));
        }
        let parted = arrived.parted?;
        if let Some(started) = started.take() {
            let _ = started.send(Err(NotRun::InitLost(parted.clone())));
        }
        Some(ProcessEvent::Lost(parted))
    }

    /// Serves a connection through the outlet, unless there are too many.
    fn serve_connection(&mut self, id: u32) {
        let stream = GuestStream::new(Arc::clone(&self.line), id);
        if let Some(outlet) = &self.outlet
            && self.serving.len() < MAX_SERVED
        {
            self.serving.spawn(outlet.clone().serve(stream));
        }
    }

    /// Connects the bridge with the process's end.
    fn serve(&mut self, id: u32) {
        if let Some(mut bridge) = self.bridge.take() {
            let mut stream = GuestStream::new(Arc::clone(&self.line), id);
            self.serving.spawn(async move {
                // Either end may go at any time.
                let _ = copy_bidirectional(&mut stream, &mut bridge).await;
            });
        }
    }
}

fn not_started(end: &End) -> Option<NotRun> {
    match &end.fate {
        Fate::NotStarted { step, errno } => Some(NotRun::NotStarted {
            step: step.clone(),
            errno: *errno,
        }),
        _ => None,
    }
}

/// Forwards standard input until its sender is gone.
async fn feed(slot: &Slot<'_>, mut input: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = input.recv().await {
        slot.input(bytes).await;
    }
    slot.end_input();
}
