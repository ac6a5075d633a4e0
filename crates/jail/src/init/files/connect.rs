//! Connects the streams of the process to a port of the sandbox.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::path::Path;

use super::error::{At, FileError};
use super::stream::transfer;

/// Connects to a TCP port at 127.0.0.1 and writes a line feed. Then relays standard input to the port, and
/// the port's data to `out`, until the port's end of stream.
pub(super) fn connect(port: u16, input: File, out: &mut dyn Write) -> Result<(), FileError> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    relay(address, input, out).at(Path::new(&address.to_string()))
}

fn relay(address: SocketAddrV4, input: File, out: &mut dyn Write) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    // Pieces arrive as somebody wrote them.
    stream.set_nodelay(true)?;
    out.write_all(b"\n")?;
    out.flush()?;
    let sending = stream.try_clone()?;
    std::thread::Builder::new().spawn(move || send(input, sending))?;
    transfer(&mut stream, out).map(drop)
}

/// Sends everything, then the end of the stream. The process's end ends it.
fn send(mut input: File, mut stream: TcpStream) {
    if transfer(&mut input, &mut stream).is_ok() {
        // Fails if the other end has gone, which the receiving side sees.
        let _: io::Result<()> = stream.shutdown(Shutdown::Write);
    }
}
