//! Moves bytes between streams.

use std::io::{self, ErrorKind, Read, Write};

use super::cancel::refuse_if_cancelled;

/// Size of a buffer: as much as a pipe holds.
const BUFFER: usize = 64 * 1024;

/// Copies everything up to the end of the input; returns the number of bytes. Each piece leaves at once: the other end may
/// wait for it before it sends more.
pub(super) fn transfer(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<u64> {
    let (mut buffer, mut total) = (vec![0; BUFFER], 0);
    loop {
        let read = match from.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        // The end of the input of a cancelled operation is not the end of what was sent.
        refuse_if_cancelled()?;
        if read == 0 {
            return Ok(total);
        }
        to.write_all(&buffer[..read])?;
        to.flush()?;
        total += read as u64;
    }
}
