//! Provides test servers on this machine, well-behaved and not.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A server's reaction to a request.
pub enum Reply {
    /// Sends this and hangs up.
    Whole(Vec<u8>),
    /// Sends the first text, then the second endlessly.
    Endless(&'static str, &'static str),
    /// Sends nothing and keeps the connection open.
    Silence,
}

impl Reply {
    pub fn text(head: &str, body: &str) -> Self {
        let length = body.len();
        Self::Whole(format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes())
    }

    pub fn redirect(location: &str) -> Self {
        Self::text(&format!("302 Found\r\nLocation: {location}"), "")
    }
}

/// A server, with its received requests.
pub struct Server {
    pub port: u16,
    requests: Arc<Mutex<Vec<String>>>,
    /// Stops the server on drop.
    _tasks: JoinSet<()>,
}

impl Server {
    /// Starts a server that passes each request to `reply`.
    pub async fn start(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen(Ipv4Addr::LOCALHOST, None, Arc::new(reply)).await
    }

    pub async fn start_at(address: Ipv4Addr, reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen(address, None, Arc::new(reply)).await
    }

    pub async fn secure(
        acceptor: TlsAcceptor,
        reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Ipv4Addr::LOCALHOST, Some(acceptor), Arc::new(reply)).await
    }

    async fn listen<F>(address: Ipv4Addr, acceptor: Option<TlsAcceptor>, reply: Arc<F>) -> Self
    where
        F: Fn(&str) -> Reply + Send + Sync + 'static,
    {
        let listener = TcpListener::bind((IpAddr::V4(address), 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                match &acceptor {
                    None => talk(stream, &*reply, &seen).await,
                    Some(acceptor) => match acceptor.accept(stream).await {
                        Ok(stream) => talk(stream, &*reply, &seen).await,
                        Err(_) => seen.lock().unwrap().push("no tls".to_owned()),
                    },
                }
            }
        });
        Self {
            port,
            requests,
            _tasks: tasks,
        }
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn talk<S>(mut stream: S, reply: &(dyn Fn(&str) -> Reply + Send + Sync), seen: &Mutex<Vec<String>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = read(&mut stream).await;
    let reply = reply(&request);
    seen.lock().unwrap().push(request);
    match reply {
        Reply::Whole(bytes) => {
            // The client may be gone.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Endless(first, rest) => {
            let mut sent = stream.write_all(first.as_bytes()).await;
            while sent.is_ok() {
                sent = stream.write_all(rest.as_bytes()).await;
            }
        }
        // Until the client hangs up.
        Reply::Silence => drop(stream.read(&mut [0]).await),
    }
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !is_whole(&text) {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => text.push_str(&String::from_utf8_lossy(&buffer[..count])),
        }
    }
    text
}

fn is_whole(text: &str) -> bool {
    // The first byte of a TLS handshake: a plain-text server responds without waiting for more.
    if text.starts_with('\x16') {
        return true;
    }
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse()
            .ok()
    });
    body.len() >= length.unwrap_or(0)
}
