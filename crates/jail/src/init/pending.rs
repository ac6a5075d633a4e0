//! A write queue.

use std::io::{ErrorKind, Write};

/// Bytes in order, and the number already written.
#[derive(Debug, Default)]
pub(super) struct Pending {
    bytes: Vec<u8>,
    taken: usize,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes without blocking and returns the number of bytes; `Err` if the reader is gone.
    pub(super) fn forward(&mut self, mut out: impl Write) -> Result<usize, ()> {
        let before = self.taken;
        while !self.is_empty() {
            match out.write(&self.bytes[self.taken..]) {
                Ok(count) => self.taken += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(()),
            }
        }
        Ok(self.taken - before)
    }
}
