//! Ports of a sandbox at addresses of this machine.

use std::io;
use std::sync::Arc;

use hyper::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::client::{Body, Error};
use super::life;
use super::sandbox::{PIECE, Sandbox, UNSENT};

/// Connections at a time, as many as a sandbox has; more wait.
const MAX_CONNECTIONS: usize = 16;

impl Sandbox {
    /// Relays the connections of a listener to a TCP port of the sandbox until that ends, or accepting one fails. If the
    /// port cannot be reached, the connection is closed and the error passed to `tell`.
    pub async fn forward(&self, listener: &TcpListener, port: u16, tell: impl Fn(&Error)) -> Error {
        let mut life = match self.life().await {
            Ok(life) => life,
            Err(error) => return error,
        };
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut relaying = JoinSet::new();
        loop {
            let accepted = async {
                // Never closed.
                let permit = Arc::clone(&permits).acquire_owned().await;
                listener.accept().await.map(|(stream, _)| (stream, permit))
            };
            tokio::select! {
                event = life.next() => if let Some(why) = life::end(event) {
                    return Error::Ended(why);
                },
                Some(done) = relaying.join_next() => if let Ok(Err(error)) = done {
                    tell(&error);
                },
                accepted = accepted => match accepted {
                    Ok((stream, permit)) => {
                        let sandbox = self.clone();
                        relaying.spawn(async move {
                            let _permit = permit;
                            sandbox.relay(stream, port).await
                        });
                    }
                    Err(error) => return Error::Broken(error.to_string()),
                },
            }
        }
    }

    /// Relays one connection until the sandbox's end closes.
    async fn relay(&self, stream: TcpStream, port: u16) -> Result<(), Error> {
        let (reading, mut writing) = stream.into_split();
        let (sender, body) = mpsc::channel(UNSENT);
        let answering = async {
            let path = self.path(&format!("/ports/{port}"), &[]);
            let mut response = self
                .client()
                .send(Method::POST, &path, Body::Stream(body), None)
                .await?;
            while let Some(piece) = response.piece().await? {
                if writing.write_all(&piece).await.is_err() {
                    // The client has gone.
                    return Ok(());
                }
            }
            Ok(())
        };
        let sending = async {
            send(reading, sender).await;
            // The answer may go on.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            done = answering => done,
            () = sending => Ok(()),
        }
    }
}

/// Forwards the client's data until end of file.
async fn send(mut reading: OwnedReadHalf, sender: mpsc::Sender<io::Result<Vec<u8>>>) {
    let mut buffer = vec![0; PIECE];
    loop {
        let read = match reading.read(&mut buffer).await {
            Ok(0) => return,
            Ok(count) => Ok(buffer[..count].to_vec()),
            Err(error) => Err(error),
        };
        let broken = read.is_err();
        if sender.send(read).await.is_err() || broken {
            return;
        }
    }
}
