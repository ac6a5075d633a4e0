//! The init's end of the stream to the server; never blocks.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use super::frames::{FrameError, FrameReader, InitRequest, MAX_PIECE, Report, Secret, Stream, write_output};
use crate::step_error::{Step, StepError};
use crate::sys;

/// Send queue length above which output is no longer read from guests: backpressure.
const FULL: usize = 256 * 1024;

/// Standard input and standard output of the container.
#[derive(Debug)]
pub(super) struct Channel {
    input: File,
    output: File,
    reader: FrameReader,
    secret: Secret,
    /// Read buffer.
    piece: Vec<u8>,
    waiting: Vec<u8>,
    sent: usize,
}

/// Cause for the end of the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// The server closed it.
    Gone,
    /// The server sent an invalid frame.
    Senseless(FrameError),
}

impl Channel {
    pub(super) fn open() -> Result<Self, StepError> {
        const STEP: &str = "take over the standard streams";
        let take = |fd: BorrowedFd<'_>| {
            let copy = sys::dup_above(fd, 3).step(STEP)?;
            sys::set_nonblocking(copy.as_fd()).step(STEP)?;
            Ok(File::from(copy))
        };
        Ok(Self {
            input: take(std::io::stdin().as_fd())?,
            output: take(std::io::stdout().as_fd())?,
            reader: FrameReader::default(),
            secret: Secret::default(),
            piece: vec![0; MAX_PIECE],
            waiting: Vec::new(),
            sent: 0,
        })
    }

    pub(super) fn input(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    pub(super) fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Reads available bytes, once.
    pub(super) fn receive(&mut self) -> Result<(), Closed> {
        match self.input.read(&mut self.piece) {
            Ok(0) => Err(Closed::Gone),
            Ok(count) => {
                self.reader.push(&self.piece[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(_) => Err(Closed::Gone),
        }
    }

    pub(super) fn order(&mut self) -> Result<Option<InitRequest>, Closed> {
        self.reader.order().map_err(Closed::Senseless)
    }

    /// Sets the secret that precedes every frame from now on.
    pub(super) fn begin_with(&mut self, secret: Secret) {
        self.secret = secret;
    }

    pub(super) fn say(&mut self, report: &Report) {
        report.write(&self.secret, &mut self.waiting);
    }

    /// Relays one chunk of a call's output, at most `most` bytes, and returns its length.
    pub(super) fn relay(
        &mut self,
        call: u32,
        stream: Stream,
        from: &mut impl Read,
        most: usize,
    ) -> std::io::Result<usize> {
        let most = most.min(self.piece.len());
        let count = from.read(&mut self.piece[..most])?;
        if count > 0 {
            write_output(
                &self.secret,
                call,
                stream,
                &self.piece[..count],
                &mut self.waiting,
            );
        }
        Ok(count)
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() - self.sent >= FULL
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.sent < self.waiting.len()
    }

    /// Writes queued bytes, as far as possible without blocking.
    pub(super) fn flush(&mut self) -> Result<(), Closed> {
        while self.has_waiting() {
            match self.output.write(&self.waiting[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.waiting.drain(..self.sent);
                    self.sent = 0;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Closed::Gone),
            }
        }
        self.waiting.clear();
        self.sent = 0;
        Ok(())
    }
}
