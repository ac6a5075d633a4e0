//! Connects the streams of the process to a port of the sandbox.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::Path;

use super::error::{At, FileError};
use super::stream::transfer;

/// Connects to a TCP port at 127.0.0.1 and writes a line feed; then standard input goes there, and what comes from
/// there goes to `out`, until that ends.
pub(super) fn connect(port: u16, input: File, out: &mut dyn Write) -> Result<(), FileError> {
    let nowhere = Path::new("");
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).at(nowhere)?;
    // Pieces arrive as somebody wrote them.
    stream.set_nodelay(true).at(nowhere)?;
    out.write_all(b"\n").and_then(|()| out.flush()).at(nowhere)?;
    let sending = stream.try_clone().at(nowhere)?;
    let send = move || send(input, sending);
    std::thread::Builder::new().spawn(send).at(nowhere)?;
    let mut receiving = stream;
    transfer(&mut receiving, &mut Unbuffered(out))
        .map(drop)
        .at(nowhere)
}

/// An output that keeps nothing back: the other end may wait for it before it sends more.
struct Unbuffered<'a>(&'a mut dyn Write);

impl Write for Unbuffered<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.0.write(bytes)?;
        self.0.flush()?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Sends everything, then the end of the stream. The process's end ends it.
fn send(mut input: File, mut stream: TcpStream) {
    if transfer(&mut input, &mut stream).is_ok() {
        // Fails if the other end has gone, which the receiving side sees.
        let _: io::Result<()> = stream.shutdown(Shutdown::Write);
    }
}
