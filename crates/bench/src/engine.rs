//! The bench's own server, and requests to it.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ringfence_exec::local::{Connection, Fence};
use ringfence_exec::runner::RunSpec;
use ringfence_policy::{ExecutionResult, Language, Limits, Outcome, Request, Scope, SessionId, Target};
use ringfence_server::client::Client;
use ringfence_server::wire::{Run, SessionAction, SessionRequest};
use tokio::runtime::Runtime;

use super::process::{descendants, program};

/// The world of the server that the rows share.
pub(super) const WORLD: &str = "engine";

const START_LIMIT: Duration = Duration::from_secs(10);

/// A server process, stopped when dropped.
#[derive(Debug)]
pub(super) struct Engine {
    child: Child,
    socket: PathBuf,
}

impl Engine {
    /// Starts a server by this command and waits until it listens on the socket.
    pub(super) fn start(mut command: Command, socket: PathBuf) -> anyhow::Result<Self> {
        let engine = Self {
            child: command.spawn().context("starting a server")?,
            socket,
        };
        let since = Instant::now();
        while UnixStream::connect(&engine.socket).is_err() {
            if since.elapsed() > START_LIMIT {
                bail!("the server did not start; `ringfence serve` says why");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(engine)
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Connects to the server.
    pub(super) async fn connect(&self) -> anyhow::Result<Client> {
        Client::connect(&self.socket)
            .await
            .context("connecting to the server")
    }

    /// Waits until the server answers from its pool.
    pub(super) fn warm_up(&self, runtime: &Runtime) -> anyhow::Result<()> {
        runtime.block_on(async {
            let mut client = self.connect().await?;
            let since = Instant::now();
            let request = request("print(1)")?;
            // Without namespaces there is no pool, and every run is cold.
            while !send(&mut client, &request).await?.meta.warm && since.elapsed() < START_LIMIT / 5 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            self.settle();
            Ok(())
        })
    }

    /// Waits until the server's number of processes is stable: used workers are being replaced.
    pub(super) fn settle(&self) -> usize {
        let since = Instant::now();
        let mut count = descendants(self.id()).len();
        let mut same = 0;
        while same < 10 && since.elapsed() < START_LIMIT / 5 {
            std::thread::sleep(Duration::from_millis(20));
            let now = descendants(self.id()).len();
            same = if now == count { same + 1 } else { 0 };
            count = now;
        }
        count
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The standard library can only send SIGKILL, which would leave control groups until the next start.
        let id = self.child.id().to_string();
        let asked = program("/bin/sh", None)
            .args(["-c", "kill -s TERM \"$1\"", "sh", &id])
            .status();
        let since = Instant::now();
        while asked.is_ok() && since.elapsed() < START_LIMIT {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a request to run Python.
pub(super) fn python(code: &str) -> Request {
    Request {
        name: "bench".to_owned(),
        ..Request::new(Language::Python, code)
    }
}

/// Creates a request to a server to run Python, as any client would.
pub(super) fn request(code: &str) -> anyhow::Result<Run> {
    request_within(code, Limits::DEFAULT)
}

pub(super) fn request_within(code: &str, limits: Limits) -> anyhow::Result<Run> {
    let request = Request {
        limits,
        ..python(code)
    };
    let spec = RunSpec::new(request, Target::Local, Fence::Default);
    Run::of(&spec, None).context("making a request")
}

/// Creates a request to run Python in a session.
pub(super) fn request_in(session: &SessionId, code: &str) -> anyhow::Result<Run> {
    let mut run = request(code)?;
    run.session = Some(session.clone());
    Ok(run)
}

/// Sends a request to run code in a session, and checks the value of its last expression.
pub(super) async fn send_for_value(client: &mut Client, run: &Run, expected: &str) -> anyhow::Result<()> {
    let result = send(client, run).await?;
    let value = result.meta.session.and_then(|session| session.value);
    if value.as_deref() != Some(expected) {
        bail!(
            "an evaluation gave {value:?} instead of {expected}: {}",
            result.stderr.trim()
        );
    }
    Ok(())
}

/// Sends a request about sessions.
pub(super) async fn sessions(client: &mut Client, action: SessionAction) -> anyhow::Result<()> {
    let scope = Scope::local();
    client.sessions(&SessionRequest { scope, action }).await?;
    Ok(())
}

/// Sends a request and returns its result, whatever the outcome.
pub(super) async fn send(client: &mut Client, run: &Run) -> anyhow::Result<ExecutionResult> {
    Ok(client.run(run.clone(), Connection::none()).await?)
}

/// Sends a request of a program that prints `1`, and checks the result.
pub(super) async fn send_print(client: &mut Client, run: &Run) -> anyhow::Result<ExecutionResult> {
    let result = send(client, run).await?;
    if result.meta.outcome != Outcome::Exited || result.stdout != "1\n" {
        bail!(
            "a run gave {:?} instead of 1: {}",
            result.stdout,
            result.stderr.trim()
        );
    }
    Ok(result)
}
