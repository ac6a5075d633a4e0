//! Runs a server as a process that speaks MCP on its standard streams.

use std::sync::Arc;
use std::time::Duration;

use ringfence_exec::lines::LineSplitter;
use ringfence_exec::local::{Chunk, Connection, Fence, Local, Stream};
use ringfence_policy::{Bytes, EnvName, Mount, Network, Request, Trusted};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::super::journal::Journal;
use super::super::process;
use super::wire::{Incoming, MAX_MESSAGE, Outgoing, TransportEnd, read, too_long};

/// Maximum number of buffered chunks per stream.
const IN_FLIGHT: usize = 4;

/// Grace period after its standard input is closed.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum number of ignored lines that are not messages: some servers print a greeting.
const MAX_STRAY: usize = 1000;

/// Command and limits of the process.
#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) command: Vec<String>,
    pub(super) env: Vec<(EnvName, String)>,
    pub(super) mounts: Vec<Mount>,
    pub(super) trusted: Trusted,
    pub(super) network: Network,
    pub(super) memory: Bytes,
    pub(super) fence: Fence,
}

/// Runs the process and relays messages.
pub(super) async fn carry(local: Arc<Local>, start: Start, carried: TransportEnd, journal: Journal) {
    let fence = start.fence;
    let request = request(start);
    let TransportEnd { out, back } = carried;
    let (stdin, read_by_it) = mpsc::channel(IN_FLIGHT);
    let (written_by_it, output) = mpsc::channel(IN_FLIGHT);
    let (cancel, cancelled) = watch::channel(false);
    let connection = Connection {
        stdin: Some(read_by_it),
        output: Some(written_by_it),
        cancelled: Some(cancelled),
        bridge: None,
    };
    let mut hearing = OutputReader {
        back: back.clone(),
        lines: LineSplitter::new(MAX_MESSAGE),
        stray: 0,
        journal,
    };
    let running = local.run(&request, fence, None, connection);
    let talking = async {
        tokio::select! {
            () = send(out, stdin) => None,
            // A server that does not read must not block a client that is done.
            () = back.closed() => None,
            heard = hearing.receive(output) => heard.err(),
        }
    };
    tokio::pin!(running);
    let result = tokio::select! {
        result = &mut running => result,
        why = talking => {
            let grace = if why.is_none() { GRACE } else { Duration::ZERO };
            if let Some(why) = why {
                let _ = back.send(Incoming::Ended(why)).await;
            }
            tokio::select! {
                result = &mut running => result,
                () = tokio::time::sleep(grace) => {
                    cancel.send_replace(true);
                    running.await
                }
            }
        }
    };
    let how = result.map_or_else(|error| error.explain(), |result| process::words(&result));
    let _ = back.send(Incoming::Ended(how)).await;
}

/// Writes messages, one per line, until the channel is closed.
async fn send(mut out: mpsc::Receiver<Outgoing>, stdin: mpsc::Sender<Vec<u8>>) {
    while let Some(message) = out.recv().await {
        let (Outgoing::Request(_, mut line) | Outgoing::Notice(mut line)) = message else {
            continue;
        };
        line.push(b'\n');
        if stdin.send(line).await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Reader of the process's output.
struct OutputReader {
    back: mpsc::Sender<Incoming>,
    lines: LineSplitter,
    stray: usize,
    journal: Journal,
}

impl OutputReader {
    async fn receive(&mut self, mut output: mpsc::Receiver<Chunk>) -> Result<(), String> {
        while let Some(Chunk { stream, bytes }) = output.recv().await {
            match stream {
                Stream::Stdout => self.lines(&bytes).await?,
                Stream::Stderr => self.journal.keep(&bytes),
            }
        }
        // The end of the process tells the reason.
        std::future::pending().await
    }

    async fn lines(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.lines.push(bytes);
        while let Some(line) = self.lines.next_line() {
            let message = read(line.whole().ok_or_else(too_long)?.trim_ascii())?;
            self.message(message).await?;
        }
        Ok(())
    }

    async fn message(&mut self, message: Option<Value>) -> Result<(), String> {
        if let Some(message) = message {
            let _ = self.back.send(Incoming::Said(message)).await;
            return Ok(());
        }
        self.stray += 1;
        match self.stray < MAX_STRAY {
            true => Ok(()),
            false => Err("its standard output has lines that are not messages of the protocol".to_owned()),
        }
    }
}

fn request(start: Start) -> Request {
    Request {
        name: start.command.first().cloned().unwrap_or_default(),
        args: start.command,
        env: start.env,
        ..process::request(start.memory, start.network, start.mounts, start.trusted)
    }
}
