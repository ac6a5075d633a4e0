//! Relays streams between guests and the server, without looking at the data.
//!
//! Each call with a network has its own port, which tells the server the owner of each connection. A call
//! with a bridge has one more stream, which it inherits rather than opens.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::call::Interest;
use super::channel::Channel;
use super::frames::{
    CONNECTION_WINDOW, MAX_CONNECTIONS, MAX_CONNECTIONS_OF_CALL, MAX_PIECE, PROXY_PORTS, Report,
};
use super::pending::Pending;

/// Pause after a failed accept: the shortage behind it lasts a while.
const PAUSE: Duration = Duration::from_millis(10);

/// Listening sockets and connections.
#[derive(Debug, Default)]
pub(super) struct Network {
    doors: BTreeMap<u32, TcpListener>,
    connections: BTreeMap<u32, Connection>,
    newest: u32,
    closed_until: Option<Instant>,
}

/// A connection of a guest.
#[derive(Debug)]
struct Connection {
    call: u32,
    /// Set for the call's bridge.
    bridge: bool,
    /// A TCP or Unix socket: the operations used here are the same for both.
    stream: UnixStream,
    /// Remaining credit for data to the server.
    credit: u32,
    /// Set once the guest's end of stream was reported to the server.
    heard_all: bool,
    /// Data from the server for the guest.
    pending: Pending,
    /// Bytes the guest consumed since the last report to the server.
    taken: usize,
    /// Set if nothing follows the pending data.
    ends: bool,
    /// Set once the guest has seen the end of stream.
    ended: bool,
    /// Set if the server wants no more data of the guest.
    dropped: bool,
    /// Set if the connection has ended but is kept open; see [`Connection::hang_up`].
    hung_up: bool,
}

impl Network {
    /// Starts to listen for a call's connections, and returns the port.
    pub(super) fn open(&mut self, call: u32) -> io::Result<u16> {
        for port in PROXY_PORTS {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    self.doors.insert(call, listener);
                    return Ok(port);
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AddrInUse.into())
    }

    /// Closes the network of a call. The end of a call implies the end of its connections, so none is
    /// reported.
    pub(super) fn close(&mut self, call: u32) {
        self.doors.remove(&call);
        self.connections.retain(|_, connection| connection.call != call);
    }

    /// Queues data for a guest. Data for an unknown connection crossed the report of its end.
    pub(super) fn deliver(&mut self, connection: u32, bytes: &[u8], channel: &mut Channel) {
        let open = self.connections.get_mut(&connection);
        let Some(open) = open.filter(|open| !open.hung_up) else {
            return;
        };
        open.ends |= bytes.is_empty();
        open.pending.push(bytes);
        if open.pending.len() > CONNECTION_WINDOW as usize {
            self.connections.remove(&connection);
            channel.say(&Report::Dropped { connection });
        }
    }

    /// Grants credit for data of a guest.
    pub(super) fn allow(&mut self, connection: u32, bytes: u32) {
        if let Some(open) = self.connections.get_mut(&connection) {
            open.credit = open.credit.saturating_add(bytes);
        }
    }

    /// Closes a connection, once the guest has all data of a finished stream.
    pub(super) fn drop_connection(&mut self, connection: u32) {
        if let Some(open) = self.connections.get_mut(&connection) {
            open.dropped = true;
        }
    }

    /// Accepts connections of guests, and relays data without blocking.
    pub(super) fn tend(&mut self, channel: &mut Channel, now: Instant) {
        if !self.connections.is_empty() {
            let mut buffer = [0; MAX_PIECE];
            let open = &mut self.connections;
            open.retain(|id, open| open.tend(*id, channel, &mut buffer));
        }
        if self.closed_until.is_some_and(|until| now < until) {
            return;
        }
        self.closed_until = None;
        let calls: Vec<u32> = self.doors.keys().copied().collect();
        for call in calls {
            while !channel.is_full() && self.has_room(call) {
                match self.accept(call) {
                    Ok(Some(connection)) => channel.say(&Report::Connected { connection, call }),
                    Ok(None) => break,
                    Err(_) => {
                        self.closed_until = Some(now + PAUSE);
                        return;
                    }
                }
            }
        }
    }

    fn has_room(&self, call: u32) -> bool {
        let all = || self.connections.values().filter(|open| !open.bridge);
        let of_call = all().filter(|open| open.call == call);
        all().count() < MAX_CONNECTIONS && of_call.count() < MAX_CONNECTIONS_OF_CALL
    }

    /// Adopts the bridge of a call, and reports it to the server.
    pub(super) fn bridge(&mut self, call: u32, stream: OwnedFd, channel: &mut Channel) {
        let connection = self.add(call, stream, true);
        channel.say(&Report::Bridged { connection, call });
    }

    fn add(&mut self, call: u32, stream: OwnedFd, bridge: bool) -> u32 {
        self.newest += 1;
        self.connections
            .insert(self.newest, Connection::new(call, stream.into(), bridge));
        self.newest
    }

    fn accept(&mut self, call: u32) -> io::Result<Option<u32>> {
        let Some(door) = self.doors.get(&call) else {
            return Ok(None);
        };
        let stream = match door.accept() {
            Ok((stream, _)) => stream,
            // The client has disconnected already.
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {
                    return Ok(None);
                }
                _ => return Err(error),
            },
        };
        stream.set_nonblocking(true)?;
        // Chunks go out without delay.
        stream.set_nodelay(true)?;
        Ok(Some(self.add(call, stream.into(), false)))
    }

    /// Returns the time at which guests are accepted again.
    pub(super) fn next_event(&self) -> Option<Instant> {
        self.closed_until
    }

    /// Returns the readiness to wait for. `room`: the channel to the server has room.
    pub(super) fn interests(&self, room: bool) -> impl Iterator<Item = (BorrowedFd<'_>, Interest)> {
        let is_open = room && self.closed_until.is_none();
        let doors = self.doors.iter();
        doors
            .filter(move |(call, _)| is_open && self.has_room(**call))
            .map(|(_, door)| (door.as_fd(), Interest::Read))
            .chain(
                self.connections
                    .values()
                    .flat_map(move |open| open.interests(room)),
            )
    }
}

impl Connection {
    fn new(call: u32, stream: UnixStream, bridge: bool) -> Self {
        Self {
            call,
            bridge,
            stream,
            credit: CONNECTION_WINDOW,
            heard_all: false,
            pending: Pending::default(),
            taken: 0,
            ends: false,
            ended: false,
            dropped: false,
            hung_up: false,
        }
    }

    fn is_listened_to(&self) -> bool {
        self.credit > 0 && !self.heard_all && !self.dropped
    }

    fn interests(&self, room: bool) -> impl Iterator<Item = (BorrowedFd<'_>, Interest)> {
        let reading = (room && self.is_listened_to()).then_some(Interest::Read);
        let writing = (!self.pending.is_empty()).then_some(Interest::Write);
        let all = reading.into_iter().chain(writing);
        all.map(|interest| (self.stream.as_fd(), interest))
    }

    /// Relays data without blocking. `false` if the connection has ended.
    fn tend(&mut self, id: u32, channel: &mut Channel, buffer: &mut [u8; MAX_PIECE]) -> bool {
        if self.hung_up {
            return true;
        }
        let passed = self
            .pass_down(id, channel)
            .and_then(|()| self.pass_up(id, channel, buffer));
        if passed.is_err() && !self.dropped {
            channel.say(&Report::Dropped { connection: id });
        }
        // A truncated response must not look complete, so a stream without its end is not waited for.
        let is_over = self.ended && (self.heard_all || self.dropped) || self.dropped && !self.ends;
        if passed.is_ok() && !is_over {
            return true;
        }
        self.hang_up();
        self.hung_up
    }

    /// Shuts down a bridge in both directions but keeps it open until the call ends: closing it with unread
    /// guest data would reset it, which the guest sees as an error instead of an end of file.
    fn hang_up(&mut self) {
        if self.bridge {
            // If shutdown fails, the bridge ends with the guest.
            let _ = self.stream.shutdown(Shutdown::Both);
            self.pending = Pending::default();
            (self.dropped, self.hung_up) = (true, true);
        }
    }

    /// Relays data from the server to the guest.
    fn pass_down(&mut self, connection: u32, channel: &mut Channel) -> Result<(), ()> {
        self.taken += self.pending.forward(&self.stream)?;
        // Less is not worth a frame; a sender that waits for room has filled the whole window.
        if self.taken >= CONNECTION_WINDOW as usize / 2 && !self.dropped {
            let bytes = std::mem::take(&mut self.taken) as u32;
            channel.say(&Report::Delivered { connection, bytes });
        }
        if self.ends && !self.ended && self.pending.is_empty() {
            self.stream.shutdown(Shutdown::Write).map_err(drop)?;
            self.ended = true;
        }
        Ok(())
    }

    /// Relays data from the guest to the server: one chunk, so that others get their turn.
    fn pass_up(
        &mut self,
        connection: u32,
        channel: &mut Channel,
        buffer: &mut [u8; MAX_PIECE],
    ) -> Result<(), ()> {
        if !self.is_listened_to() || channel.is_full() {
            return Ok(());
        }
        let most = MAX_PIECE.min(self.credit as usize);
        match self.stream.read(&mut buffer[..most]) {
            Ok(count) => {
                self.credit -= count as u32;
                self.heard_all = count == 0;
                let bytes = buffer[..count].to_vec();
                channel.say(&Report::Received { connection, bytes });
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(_) => Err(()),
        }
    }
}
