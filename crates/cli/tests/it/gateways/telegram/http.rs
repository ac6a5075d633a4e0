//! A minimal HTTP server: requests with a body over persistent connections, answered completely, late or not
//! at all.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The response to a request.
pub(super) enum Reply {
    /// A status, a content type and a body.
    Whole(u16, &'static str, String),
    /// None: the connection ends.
    Dropped,
}

/// A server that runs until it is dropped.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Creates a server that answers each request by its path and body.
    pub(super) fn new(answer: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, answer) = (Arc::new(AtomicBool::new(false)), Arc::new(answer));
        let stopped = Arc::clone(&stop);
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let answer = Arc::clone(&answer);
                // It ends with its connection.
                std::thread::spawn(move || drop(attend(stream, &*answer)));
            }
        });
        Self {
            address,
            stop,
            accepting: Some(accepting),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn attend(stream: TcpStream, answer: &impl Fn(&str, &[u8]) -> Reply) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            if header.trim().is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        match answer(&path, &body) {
            Reply::Whole(status, kind, body) => write!(
                writer,
                "HTTP/1.1 {status} Some\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )?,
            Reply::Dropped => return writer.shutdown(std::net::Shutdown::Both),
        }
    }
}
