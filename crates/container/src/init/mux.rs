//! Multiplexes calls over one connection to a container's init: an outbox, and an inbox for each call.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use ringfence_exec::local::{Chunk, Stream};
use ringfence_jail::init::frames::{
    self, End, INPUT_WINDOW, InitRequest, MAX_CALLS, MAX_START, OUTPUT_WINDOW, Report, Start,
};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout_at};

use super::error::{InitLost, NotRun};
use super::flow::{Connections, Flow};

/// Limit of concurrent calls. The init still counts those that were just cancelled, hence half of its own
/// limit.
pub const AT_ONCE: usize = MAX_CALLS / 2;

/// Limit of concurrent internal programs, beside these.
const BESIDE: usize = 2;

/// Credit granted per frame. Far below the window, so that the sender never stalls.
const WORTH_A_FRAME: u32 = OUTPUT_WINDOW / 4;

/// A multiplexed connection.
#[derive(Debug)]
pub(super) struct Mux {
    state: Mutex<State>,
    to_send: Notify,
    parted: Notify,
    /// Told when all processes have ended, or nothing more will be reported.
    all_ended: watch::Sender<()>,
    room: Semaphore,
    /// Permits of internal programs, which must not queue behind callers' calls.
    beside: Semaphore,
}

/// The quota that a call counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// A call of a caller.
    Call,
    /// An internal program, before or after a caller's call.
    Beside,
}

#[derive(Debug, Default)]
struct State {
    /// Bounded by the amount that calls may send before they are answered.
    outbox: Vec<u8>,
    /// Total of bytes that have left the outbox.
    handed_out: u64,
    calls: HashMap<u32, Inbox>,
    connections: Connections,
    newest: u32,
    parted: Option<InitLost>,
}

/// Received data and flow control of one call.
#[derive(Debug)]
struct Inbox {
    /// Position of the call's start frame in the stream of all bytes sent.
    begins: u64,
    chunks: VecDeque<Chunk>,
    /// Output bytes that the init may still send.
    credit: u32,
    /// Output bytes received for which no credit was granted yet.
    owed: u32,
    /// Input bytes that we may still send.
    room: u32,
    end: Option<End>,
    ended: bool,
    /// Process id of the call's first process, once that runs and until it is taken.
    pid: Option<u32>,
    /// Set once the requested output has arrived.
    drained: bool,
    /// Set if the call has a network.
    has_network: bool,
    /// Set if the call has requested a bridge that is not connected yet.
    awaits_bridge: bool,
    /// Connections that no task serves yet.
    connected: Vec<u32>,
    /// The bridge's connection, if no task serves it yet.
    bridged: Option<u32>,
    arrived: Arc<Notify>,
    widened: Arc<Notify>,
}

/// Data received for a call since the last poll.
#[derive(Debug)]
pub(super) struct Arrived {
    /// Process id of its first process, once.
    pub(super) pid: Option<u32>,
    /// Set if `chunks` ends with the requested output.
    pub(super) drained: bool,
    pub(super) chunks: VecDeque<Chunk>,
    pub(super) connected: Vec<u32>,
    pub(super) bridged: Option<u32>,
    pub(super) end: Option<End>,
    pub(super) parted: Option<InitLost>,
}

/// A call that was requested. Dropping it before the call has ended kills the call.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    line: &'a Mux,
    _room: SemaphorePermit<'a>,
    id: u32,
    arrived: Arc<Notify>,
    widened: Arc<Notify>,
}

impl Mux {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            to_send: Notify::new(),
            parted: Notify::new(),
            all_ended: watch::Sender::new(()),
            room: Semaphore::new(AT_ONCE),
            beside: Semaphore::new(BESIDE),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn running(&self) -> usize {
        self.state().calls.len()
    }

    /// Requests a call as soon as the concurrency limit permits; its timeout is the time left until
    /// `deadline`.
    pub(super) async fn begin(
        &self,
        turn: Turn,
        start: Start,
        deadline: Instant,
    ) -> Result<Slot<'_>, NotRun> {
        self.begin_by(turn, start, deadline, deadline).await
    }

    /// Like [`Mux::begin`], but waits for its turn only until `patience`.
    pub(super) async fn begin_by(
        &self,
        turn: Turn,
        mut start: Start,
        deadline: Instant,
        patience: Instant,
    ) -> Result<Slot<'_>, NotRun> {
        let room = match turn {
            Turn::Call => &self.room,
            Turn::Beside => &self.beside,
        };
        let room = match timeout_at(patience, room.acquire()).await {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return Err(NotRun::InitLost(InitLost::Released)),
            Err(_) => return Err(NotRun::Busy),
        };
        start.timeout = deadline.saturating_duration_since(Instant::now());
        let mut state = self.state();
        if let Some(parted) = &state.parted {
            return Err(NotRun::InitLost(parted.clone()));
        }
        let id = state.newest + 1;
        let (has_network, awaits_bridge) = (!start.proxy.is_empty(), start.bridge);
        let start = Box::new(start);
        let before = state.outbox.len();
        InitRequest::Start { call: id, start }.write(&mut state.outbox);
        if state.outbox.len() - before > MAX_START {
            state.outbox.truncate(before);
            return Err(NotRun::TooLong);
        }
        let (arrived, widened) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let inbox = Inbox {
            begins: state.handed_out + before as u64,
            chunks: VecDeque::new(),
            credit: OUTPUT_WINDOW,
            owed: 0,
            room: INPUT_WINDOW,
            end: None,
            ended: false,
            pid: None,
            drained: false,
            has_network,
            awaits_bridge,
            connected: Vec::new(),
            bridged: None,
            arrived: Arc::clone(&arrived),
            widened: Arc::clone(&widened),
        };
        state.calls.insert(id, inbox);
        state.newest = id;
        drop(state);
        self.to_send.notify_one();
        Ok(Slot {
            line: self,
            _room: room,
            id,
            arrived,
            widened,
        })
    }

    pub(super) fn send(&self, order: &InitRequest) {
        order.write(&mut self.state().outbox);
        self.to_send.notify_one();
    }

    /// Kills all processes, and resolves once they are gone.
    pub(super) async fn end_all(&self) -> Result<(), InitLost> {
        let mut ended = self.all_ended.subscribe();
        if self.is_open() {
            self.send(&InitRequest::EndAll);
            // Cannot fail: this is the sender.
            let _ = ended.changed().await;
        }
        self.state().parted.clone().map_or(Ok(()), Err)
    }

    /// Resolves to the bytes to send, once there are any.
    pub(super) async fn outgoing(&self) -> Vec<u8> {
        loop {
            if let Some(bytes) = self.state().hand_out() {
                return bytes;
            }
            self.to_send.notified().await;
        }
    }

    /// Dispatches a report. Reports about calls that are no longer awaited are ignored.
    pub(super) fn receive(&self, report: Report) -> Result<(), InitLost> {
        let senseless = |what: &str| Err(InitLost::Senseless(what.to_owned()));
        let mut state = self.state();
        match report {
            Report::Ready(_) => senseless("it was ready before"),
            Report::Broken(why) => Err(InitLost::Broken(why)),
            Report::Output { call, stream, bytes } => match state.calls.get_mut(&call) {
                Some(inbox) if !inbox.ended => inbox.add(stream, bytes),
                _ => Ok(()),
            },
            Report::Started { call, pid } => {
                if let Some(inbox) = state.calls.get_mut(&call) {
                    inbox.pid = Some(pid);
                    inbox.arrived.notify_one();
                }
                Ok(())
            }
            Report::Drained { call } => {
                if let Some(inbox) = state.calls.get_mut(&call) {
                    inbox.drained = true;
                    inbox.arrived.notify_one();
                }
                Ok(())
            }
            Report::AllEnded => {
                self.all_ended.send_replace(());
                Ok(())
            }
            Report::Taken { call, bytes } => match state.calls.get_mut(&call) {
                Some(inbox) => inbox.widen(bytes),
                None => Ok(()),
            },
            Report::End { call, end } => {
                state.connections.call_ended(call);
                if let Some(inbox) = state.calls.get_mut(&call) {
                    (inbox.end, inbox.ended) = (Some(end), true);
                    inbox.arrived.notify_one();
                }
                Ok(())
            }
            Report::Connected { connection, call } => {
                let accepted = state.connect(connection, call);
                // The outbox may have grown.
                self.to_send.notify_one();
                accepted
            }
            Report::Bridged { connection, call } => {
                let accepted = state.bridge(connection, call);
                self.to_send.notify_one();
                accepted
            }
            Report::Received { connection, bytes } => state.flow(connection, |flow| flow.received(&bytes)),
            Report::Delivered { connection, bytes } => state.flow(connection, |flow| flow.delivered(bytes)),
            Report::Dropped { connection } => state.flow(connection, |flow| {
                flow.dropped();
                Ok(())
            }),
        }
    }

    /// Acts on a connection in use, and schedules the frames that result.
    pub(super) fn on_connection<T>(
        &self,
        id: u32,
        act: impl FnOnce(&mut Flow, &mut Vec<u8>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.state();
        let State {
            outbox, connections, ..
        } = &mut *state;
        let before = outbox.len();
        let Some(flow) = connections.get(id) else {
            return Poll::Ready(Err(ErrorKind::NotConnected.into()));
        };
        let result = act(flow, outbox);
        if outbox.len() > before {
            self.to_send.notify_one();
        }
        result
    }

    /// Removes connections that are no longer in use, and closes those that are still open.
    pub(super) fn forget(&self, connections: &[u32]) {
        let mut state = self.state();
        for connection in connections {
            let forgotten = state.connections.forget(*connection);
            if forgotten.is_some_and(|flow| !flow.is_over()) {
                let connection = *connection;
                InitRequest::Drop { connection }.write(&mut state.outbox);
                self.to_send.notify_one();
            }
        }
    }

    /// Closes the connection. The first reason given is kept.
    pub(super) fn close(&self, parted: InitLost) {
        let mut state = self.state();
        state.parted.get_or_insert(parted);
        state.connections.all_ended();
        self.all_ended.send_replace(());
        for inbox in state.calls.values() {
            inbox.arrived.notify_one();
        }
        self.parted.notify_one();
    }

    /// Returns `true` unless the connection is known to be closed.
    pub(super) fn is_open(&self) -> bool {
        self.state().parted.is_none()
    }

    /// Resolves to the reason once the connection has closed.
    pub(super) async fn closed(&self) -> InitLost {
        loop {
            if let Some(parted) = self.state().parted.clone() {
                return parted;
            }
            self.parted.notified().await;
        }
    }
}

impl State {
    /// Takes the outbox; `None` if it is empty or the connection is closed.
    fn hand_out(&mut self) -> Option<Vec<u8>> {
        if self.parted.is_some() || self.outbox.is_empty() {
            return None;
        }
        self.handed_out += self.outbox.len() as u64;
        Some(std::mem::take(&mut self.outbox))
    }

    fn connect(&mut self, connection: u32, call: u32) -> Result<(), InitLost> {
        let inbox = self.calls.get_mut(&call).filter(|inbox| !inbox.ended);
        if inbox.as_ref().is_some_and(|inbox| !inbox.has_network) {
            return Err(InitLost::Senseless(
                "a connection of a call without a network".to_owned(),
            ));
        }
        let has_room = self.connections.connected(connection, call)?;
        match inbox.filter(|_| has_room) {
            Some(inbox) => {
                inbox.connected.push(connection);
                inbox.arrived.notify_one();
            }
            None => self.turn_away(connection),
        }
        Ok(())
    }

    fn bridge(&mut self, connection: u32, call: u32) -> Result<(), InitLost> {
        let inbox = self.calls.get_mut(&call).filter(|inbox| !inbox.ended);
        if inbox.as_ref().is_some_and(|inbox| !inbox.awaits_bridge) {
            return Err(InitLost::Senseless("a bridge that was not asked for".to_owned()));
        }
        let has_room = self.connections.connected(connection, call)?;
        match inbox.filter(|_| has_room) {
            Some(inbox) => {
                (inbox.awaits_bridge, inbox.bridged) = (false, Some(connection));
                inbox.arrived.notify_one();
            }
            None => self.turn_away(connection),
        }
        Ok(())
    }

    fn turn_away(&mut self, connection: u32) {
        self.connections.forget(connection);
        InitRequest::Drop { connection }.write(&mut self.outbox);
    }

    fn flow(
        &mut self,
        connection: u32,
        act: impl FnOnce(&mut Flow) -> Result<(), InitLost>,
    ) -> Result<(), InitLost> {
        self.connections.get(connection).map_or(Ok(()), act)
    }
}

impl Inbox {
    fn add(&mut self, stream: frames::Stream, bytes: Vec<u8>) -> Result<(), InitLost> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let Some(credit) = self.credit.checked_sub(length) else {
            return Err(InitLost::Senseless(
                "more output than there was credit for".to_owned(),
            ));
        };
        self.credit = credit;
        let stream = match stream {
            frames::Stream::Stdout => Stream::Stdout,
            frames::Stream::Stderr => Stream::Stderr,
        };
        // Merged into the last chunk, so that many small chunks take no more memory than one.
        match self.chunks.back_mut().filter(|last| last.stream == stream) {
            Some(last) => last.bytes.extend(bytes),
            None => self.chunks.push_back(Chunk { stream, bytes }),
        }
        self.arrived.notify_one();
        Ok(())
    }

    fn widen(&mut self, bytes: u32) -> Result<(), InitLost> {
        self.room = self.room.saturating_add(bytes);
        self.widened.notify_one();
        if self.room > INPUT_WINDOW {
            return Err(InitLost::Senseless("more input taken than there was".to_owned()));
        }
        Ok(())
    }
}

impl Slot<'_> {
    /// Resolves to the data received since the last poll, once there is any.
    pub(super) async fn arrived(&self) -> Arrived {
        loop {
            let notified = self.arrived.notified();
            if let Some(arrived) = self.take() {
                return arrived;
            }
            notified.await;
        }
    }

    fn take(&self) -> Option<Arrived> {
        let mut state = self.line.state();
        let parted = state.parted.clone();
        let inbox = state.calls.get_mut(&self.id)?;
        let arrived = Arrived {
            pid: inbox.pid.take(),
            drained: std::mem::take(&mut inbox.drained),
            chunks: std::mem::take(&mut inbox.chunks),
            connected: std::mem::take(&mut inbox.connected),
            bridged: inbox.bridged.take(),
            end: inbox.end.take(),
            parted,
        };
        let nothing = arrived.pid.is_none()
            && !arrived.drained
            && arrived.chunks.is_empty()
            && arrived.connected.is_empty();
        let nothing =
            nothing && arrived.bridged.is_none() && arrived.end.is_none() && arrived.parted.is_none();
        (!nothing).then_some(arrived)
    }

    /// Grants credit for output that was consumed, once it is worth a frame. Most calls print less.
    pub(super) fn credit(&self, bytes: usize) {
        let mut state = self.line.state();
        let Some(inbox) = state.calls.get_mut(&self.id) else {
            return;
        };
        inbox.owed = inbox
            .owed
            .saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if inbox.owed < WORTH_A_FRAME {
            return;
        }
        let bytes = std::mem::take(&mut inbox.owed);
        inbox.credit = inbox.credit.saturating_add(bytes);
        drop(state);
        self.line.send(&InitRequest::Credit { call: self.id, bytes });
    }

    /// Sends input as fast as flow control permits.
    pub(super) async fn input(&self, mut bytes: Vec<u8>) {
        while !bytes.is_empty() {
            let widened = self.widened.notified();
            let count = self.reserve(bytes.len().min(frames::MAX_PIECE));
            if count == 0 {
                widened.await;
                continue;
            }
            let rest = bytes.split_off(count);
            let piece = std::mem::replace(&mut bytes, rest);
            self.line.send(&InitRequest::Input {
                call: self.id,
                bytes: piece,
            });
        }
    }

    /// Reserves send window for input: as much as there is, up to `wanted`.
    fn reserve(&self, wanted: usize) -> usize {
        let mut state = self.line.state();
        let Some(inbox) = state.calls.get_mut(&self.id) else {
            return 0;
        };
        let count = inbox.room.min(u32::try_from(wanted).unwrap_or(u32::MAX));
        inbox.room -= count;
        count as usize
    }

    /// Returns `true` if the connection closed before any byte of this call was sent: it certainly did not
    /// run.
    pub(super) fn was_never_sent(&self) -> bool {
        let state = self.line.state();
        let begins = state.calls.get(&self.id).map(|inbox| inbox.begins);
        state.parted.is_some() && begins.is_some_and(|begins| state.handed_out <= begins)
    }

    pub(super) fn end_input(&self) {
        self.line.send(&InitRequest::InputEnd { call: self.id });
    }

    pub(super) const fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn kill(&self) {
        self.line.send(&InitRequest::Kill { call: self.id });
    }

    /// Closes the connection because the init did not end the call in time: the container must be removed.
    pub(super) fn give_up(&self) {
        self.line.close(InitLost::Silent);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let inbox = self.line.state().calls.remove(&self.id);
        if let Some(inbox) = &inbox {
            self.line.forget(&inbox.connected);
            self.line.forget(inbox.bridged.as_slice());
        }
        if inbox.is_some_and(|inbox| !inbox.ended) {
            self.kill();
            // Output that was already sent is discarded and must not stall the init.
            self.line.send(&InitRequest::Credit {
                call: self.id,
                bytes: u32::MAX,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringfence_jail::init::frames::Program;

    use super::*;

    #[tokio::test]
    async fn credit_is_given_when_it_is_worth_a_frame() {
        let line = Mux::new();
        let start = Start::new(Program::Command("cat".to_owned()), "/", Duration::from_secs(60));
        let deadline = Instant::now() + Duration::from_secs(60);
        let slot = line.begin(Turn::Call, start, deadline).await.unwrap();
        line.outgoing().await;
        let prints = |bytes: u32| {
            let output = Report::Output {
                call: slot.id,
                stream: frames::Stream::Stdout,
                bytes: vec![b'x'; bytes as usize],
            };
            line.receive(output).unwrap();
            slot.credit(bytes as usize);
        };
        prints(WORTH_A_FRAME - 1);
        assert!(line.state().outbox.is_empty());
        prints(1);
        let mut expected = Vec::new();
        let bytes = WORTH_A_FRAME;
        InitRequest::Credit { call: slot.id, bytes }.write(&mut expected);
        assert_eq!(line.outgoing().await, expected);
    }
}
