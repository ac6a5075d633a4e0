//! Relays a program's bridge over its worker's message stream, with flow control in both directions.

use std::collections::VecDeque;
use std::future;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::message::{Amount, Piece, WorkerRequest};
use crate::bridge::ByteChannel;

/// Flow control window for bytes from a program: two of the longest lines.
pub(super) const WINDOW: usize = 2 * 1024 * 1024;

/// Maximum size of a piece passed on at once.
const PIECE: usize = 64 * 1024;

/// Number of consumed bytes after which a program is granted more: most programs send less.
const WORTH_TELLING: usize = WINDOW / 4;

/// The relay of a program's bridge.
#[derive(Debug)]
pub(super) struct Carrier {
    /// `None` once the host has closed the bridge.
    duct: Option<ByteChannel>,
    /// Bytes from the program that the host has not received yet.
    unheard: VecDeque<Vec<u8>>,
    waiting: usize,
    taken: usize,
}

/// The error for a program that exceeds its window.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overrun;

impl Carrier {
    pub(super) fn new(duct: Option<ByteChannel>) -> Self {
        Self {
            duct,
            unheard: VecDeque::new(),
            waiting: 0,
            taken: 0,
        }
    }

    /// Queues bytes from the program; drops them if the bridge is closed.
    pub(super) fn receive(&mut self, piece: &Piece) -> Result<(), Overrun> {
        // Invalid base64 counts as empty.
        let bytes = STANDARD.decode(&piece.base64).unwrap_or_default();
        if self.duct.is_none() || bytes.is_empty() {
            return Ok(());
        }
        self.waiting += bytes.len();
        self.unheard.extend(bytes.chunks(PIECE).map(<[u8]>::to_vec));
        match self.waiting <= WINDOW {
            true => Ok(()),
            false => Err(Overrun),
        }
    }

    /// Passes on the program's bytes, until there is a message for the program. Cancel-safe.
    pub(super) async fn next<'a>(&mut self, id: &'a str) -> WorkerRequest<'a> {
        loop {
            let Some(ByteChannel { out, back }) = &mut self.duct else {
                return future::pending().await;
            };
            let said = tokio::select! {
                said = back.recv() => said,
                room = out.reserve(), if !self.unheard.is_empty() => {
                    if let (Ok(room), Some(bytes)) = (room, self.unheard.pop_front()) {
                        self.waiting -= bytes.len();
                        self.taken += bytes.len();
                        room.send(bytes);
                    }
                    if self.taken < WORTH_TELLING {
                        continue;
                    }
                    let bytes = std::mem::take(&mut self.taken);
                    return WorkerRequest::Taken { id, data: Amount { bytes } };
                }
            };
            if said.is_none() {
                self.duct = None;
                self.unheard.clear();
            }
            let base64 = STANDARD.encode(said.unwrap_or_default());
            return WorkerRequest::Bridge {
                id,
                data: Piece { base64 },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::{Message, MessageStream, bridge};
    use serde_json::json;

    fn piece(bytes: &[u8]) -> Piece {
        let base64 = STANDARD.encode(bytes);
        Piece { base64 }
    }

    /// Returns the next message to the program, as the program sees it.
    async fn told(carrier: &mut Carrier) -> serde_json::Value {
        serde_json::to_value(carrier.next("1").await).unwrap()
    }

    fn carried() -> (MessageStream, Carrier) {
        let (line, duct) = bridge();
        (line, Carrier::new(Some(duct)))
    }

    #[tokio::test]
    async fn bytes_go_both_ways_until_the_host_hangs_up() {
        let (mut line, mut carrier) = carried();
        carrier
            .receive(&piece(br#"{"type":"call","id":"7","da"#))
            .unwrap();
        carrier.receive(&piece(b"ta\":{\"path\":\"A.b\"}}\n")).unwrap();
        let answering = async {
            let Ok(Some(Message::Call(id, _))) = line.next().await else {
                panic!("no call");
            };
            line.speaker().say(&Message::Result(id, json!(1))).await;
            drop(line);
        };
        let (said, ()) = tokio::join!(told(&mut carrier), answering);
        let expected = piece(b"{\"type\":\"result\",\"id\":\"7\",\"data\":{\"value\":1}}\n");
        assert_eq!(
            said,
            json!({"type": "bridge", "id": "1", "data": {"base64": expected.base64}})
        );
        assert_eq!(told(&mut carrier).await["data"]["base64"], "");
        // The bridge is closed: whatever comes is dropped.
        for _ in 0..3 {
            carrier.receive(&piece(&[b'x'; WINDOW])).unwrap();
        }
    }

    #[tokio::test]
    async fn a_program_is_told_of_room_and_bounded_without() {
        let (line, mut carrier) = carried();
        for _ in 0..4 {
            carrier.receive(&piece(&[b'x'; WORTH_TELLING])).unwrap();
        }
        assert_eq!(carrier.receive(&piece(b"x")), Err(Overrun));
        assert_eq!(
            told(&mut carrier).await,
            json!({"type": "taken", "id": "1", "data": {"bytes": WORTH_TELLING}})
        );
        drop(line);
    }
}
