//! Flow control and buffers of a container's connections.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use ringfence_jail::init::frames::{CONNECTION_WINDOW, InitRequest, MAX_STREAMS};
use tokio::io::ReadBuf;

use super::error::InitLost;

/// Limit of known connections: open ones, and closed ones whose last bytes are not read yet.
const MAX_KNOWN: usize = 2 * MAX_STREAMS;

/// The connections of a container.
#[derive(Debug, Default)]
pub(super) struct Connections {
    known: HashMap<u32, Flow>,
    newest: u32,
}

/// Flow control and buffers of one connection.
#[derive(Debug)]
pub(super) struct Flow {
    call: u32,
    /// Bytes received from the guest and not read yet.
    inbound: VecDeque<u8>,
    /// Set once the guest has closed its sending direction.
    pub(super) heard_all: bool,
    /// Set once the server has closed its sending direction.
    pub(super) said_all: bool,
    /// Set once the guest's end is closed altogether.
    pub(super) gone: bool,
    /// Bytes that the init may still send.
    credit: u32,
    /// Bytes read since credit was last granted.
    taken: u32,
    /// Bytes that we may still send.
    pub(super) room: u32,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl Connections {
    /// Registers a connection or bridge of a guest. Returns `false` if too many are still in use on this
    /// side.
    pub(super) fn connected(&mut self, id: u32, call: u32) -> Result<bool, InitLost> {
        let open = self.known.values().filter(|flow| !flow.is_over());
        if id <= self.newest || open.count() >= MAX_STREAMS {
            return Err(InitLost::Senseless(
                "a connection that there is no room for".to_owned(),
            ));
        }
        self.newest = id;
        let has_room = self.known.len() < MAX_KNOWN;
        if has_room {
            self.known.insert(id, Flow::new(call));
        }
        Ok(has_room)
    }

    /// Returns a connection that is still in use here. Reports about any other crossed its closing in
    /// transit.
    pub(super) fn get(&mut self, id: u32) -> Option<&mut Flow> {
        self.known.get_mut(&id)
    }

    /// Removes a connection that is no longer in use here.
    pub(super) fn forget(&mut self, id: u32) -> Option<Flow> {
        self.known.remove(&id)
    }

    /// Closes the connections of a call that has ended.
    pub(super) fn call_ended(&mut self, call: u32) {
        let of_call = self.known.values_mut().filter(|flow| flow.call == call);
        of_call.for_each(Flow::dropped);
    }

    /// Closes all connections.
    pub(super) fn all_ended(&mut self) {
        self.known.values_mut().for_each(Flow::dropped);
    }
}

impl Flow {
    fn new(call: u32) -> Self {
        Self {
            call,
            inbound: VecDeque::new(),
            heard_all: false,
            said_all: false,
            gone: false,
            credit: CONNECTION_WINDOW,
            taken: 0,
            room: CONNECTION_WINDOW,
            reader: None,
            writer: None,
        }
    }

    /// Returns `true` if neither side sends anything more.
    pub(super) fn is_over(&self) -> bool {
        self.gone || self.heard_all && self.said_all
    }

    /// Buffers bytes from the guest; none mean end of file.
    pub(super) fn received(&mut self, bytes: &[u8]) -> Result<(), InitLost> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let credit = self.credit.checked_sub(length).filter(|_| !self.heard_all);
        let Some(credit) = credit else {
            return Err(InitLost::Senseless(
                "more of a connection than there was credit for".to_owned(),
            ));
        };
        self.credit = credit;
        self.heard_all = bytes.is_empty();
        self.inbound.extend(bytes);
        wake(&mut self.reader);
        Ok(())
    }

    /// Returns send window that the guest has consumed.
    pub(super) fn delivered(&mut self, bytes: u32) -> Result<(), InitLost> {
        self.room = self.room.saturating_add(bytes);
        if self.room > CONNECTION_WINDOW {
            return Err(InitLost::Senseless("more delivered than there was".to_owned()));
        }
        wake(&mut self.writer);
        Ok(())
    }

    /// Marks the guest's end as closed.
    pub(super) fn dropped(&mut self) {
        self.gone = true;
        wake(&mut self.reader);
        wake(&mut self.writer);
    }

    pub(super) fn read(&mut self, id: u32, buffer: &mut ReadBuf<'_>, outbox: &mut Vec<u8>) -> bool {
        let (first, _) = self.inbound.as_slices();
        let count = first.len().min(buffer.remaining());
        buffer.put_slice(&first[..count]);
        self.inbound.drain(..count);
        self.taken += count as u32;
        // Less is not worth a frame; a peer that waits for credit has used up the whole window.
        if self.taken >= CONNECTION_WINDOW / 2 && !self.is_over() {
            let bytes = std::mem::take(&mut self.taken);
            self.credit += bytes;
            InitRequest::Allow {
                connection: id,
                bytes,
            }
            .write(outbox);
        }
        count > 0
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn senseless<T: std::fmt::Debug>(result: Result<T, InitLost>) {
        assert!(matches!(result, Err(InitLost::Senseless(_))), "{result:?}");
    }

    #[test]
    fn an_init_that_breaks_the_bounds_is_not_believed() {
        let mut all = Connections::default();
        assert_eq!(all.connected(5, 1), Ok(true));
        senseless(all.connected(5, 1));
        senseless(all.connected(4, 1));
        let flow = all.get(5).unwrap();
        let window = vec![0; CONNECTION_WINDOW as usize];
        flow.received(&window).unwrap();
        senseless(flow.received(b"x"));
        senseless(flow.delivered(1));
        flow.received(b"").unwrap();
        senseless(flow.received(b""));
        for id in 6..5 + MAX_STREAMS as u32 {
            assert_eq!(all.connected(id, 1), Ok(true));
        }
        senseless(all.connected(1000, 1));
    }

    #[test]
    fn what_nobody_has_taken_yet_is_bounded_too() {
        let mut all = Connections::default();
        for id in 1..=MAX_KNOWN as u32 {
            assert_eq!(all.connected(id, 1), Ok(true));
            all.get(id).unwrap().dropped();
        }
        let next = MAX_KNOWN as u32 + 1;
        assert_eq!(all.connected(next, 1), Ok(false));
        assert!(all.forget(1).is_some_and(|flow| flow.is_over()));
        assert_eq!(all.connected(next + 1, 1), Ok(true));
    }

    #[test]
    fn a_connection_is_over_when_both_have_said_all_or_with_its_call() {
        let mut all = Connections::default();
        for (id, call) in [(1, 7), (2, 8)] {
            assert_eq!(all.connected(id, call), Ok(true));
        }
        let flow = all.get(1).unwrap();
        flow.received(b"").unwrap();
        assert!(!flow.is_over());
        flow.said_all = true;
        assert!(flow.is_over());
        all.call_ended(7);
        assert!(!all.get(2).unwrap().is_over());
        all.call_ended(8);
        assert!(all.get(2).unwrap().is_over());
    }
}
