//! The host side of a container's init process: starts calls there and distrusts its reports.
//!
//! [`connect`] performs the handshake over the attached streams. It returns an [`InitClient`], which runs calls,
//! and a [`Carrier`], which its owner drives until it ends. After that, the container must be removed.

mod call;
mod connection;
mod error;
mod file;
mod flow;
mod mux;
mod process;
mod start;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::guest_paths::OUTPUT;
use ringfence_jail::init::frames::{
    FrameReader, Hello, InitRequest, Leftovers, Ready, Report, Secret, VERSION,
};
use ringfence_network::egress::Outlet;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

pub use call::Finished;
pub use error::{InitLost, NotRun};
pub(crate) use file::{FixedFile, fixed};
pub use file::{INSIDE, file};
pub use mux::AT_ONCE;
use mux::Mux;
pub use process::{Process, ProcessControl, ProcessEvent};
pub use start::{NotForAgents, start};

/// The Python source that interpreters in a container run.
const PYTHON: &str = concat!(
    include_str!("../python/forks.py"),
    include_str!("../../exec/python/bridge.py"),
    include_str!("../../exec/python/worker.py")
);
/// Timeout of the handshake. A container under gVisor starts slowly on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Size of one read, in bytes.
const READ_SIZE: usize = 64 * 1024;

/// A handle for running concurrent calls in a container.
#[derive(Debug, Clone)]
pub struct InitClient {
    line: Arc<Mux>,
    ready: Ready,
    /// Egress outlet of the processes that [`Self::start`] starts.
    outlet: Option<Outlet>,
    /// Variables of these processes beside those that the init has, once there are any.
    environment: Arc<OnceLock<Vec<(String, String)>>>,
}

/// The I/O driver of the connection between an [`InitClient`] and its container.
#[derive(Debug)]
pub struct Carrier<R, W> {
    line: Arc<Mux>,
    frames: FrameReader,
    reader: R,
    writer: W,
}

/// The availability of a warm interpreter for calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpreter {
    /// Python guests are forked from a warm interpreter.
    Warm,
    /// No interpreter is started; each call names its program.
    None,
}

/// The wishes of a server about a container's init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    pub interpreter: Interpreter,
    /// Paths of mount points to examine.
    pub mount_points: Vec<String>,
    /// Fate of the processes that a call leaves.
    pub leftovers: Leftovers,
}

impl Greeting {
    /// Returns the greeting of a container whose calls are runs of their own.
    pub const fn of_runs(interpreter: Interpreter, mount_points: Vec<String>) -> Self {
        Self {
            interpreter,
            mount_points,
            leftovers: Leftovers::Kill,
        }
    }

    /// Returns the greeting of a sandbox.
    pub const fn of_sandbox() -> Self {
        Self {
            interpreter: Interpreter::None,
            mount_points: Vec::new(),
            leftovers: Leftovers::Keep,
        }
    }
}

/// Performs the handshake with a container's init over these streams.
///
/// # Errors
/// If the init does not complete the handshake within the timeout, or answers with anything but `Ready`.
pub async fn connect<R, W>(
    mut reader: R,
    mut writer: W,
    greeting: Greeting,
) -> Result<(InitClient, Carrier<R, W>), InitLost>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let secret = secret()?;
    let mut frames = FrameReader::of_init(secret);
    let hello = hello(secret, greeting);
    let greeting = greet(&mut reader, &mut writer, &hello, &mut frames);
    let ready = timeout(TIMEOUT, greeting).await.map_err(|_| InitLost::Silent)??;
    let line = Arc::new(Mux::new());
    let carrier = Carrier {
        line: Arc::clone(&line),
        frames,
        reader,
        writer,
    };
    let client = InitClient {
        line,
        ready,
        outlet: None,
        environment: Arc::default(),
    };
    Ok((client, carrier))
}

/// Generates the secret that authenticates the init's frames. No guest in the container may guess it.
fn secret() -> Result<Secret, InitLost> {
    let mut secret = Secret::default();
    match rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty()) {
        Ok(count) if count == secret.len() => Ok(secret),
        _ => Err(InitLost::Secret),
    }
}

fn hello(secret: Secret, greeting: Greeting) -> InitRequest {
    let python: &[&str] = match greeting.interpreter {
        Interpreter::Warm => &["-I", "-B", "-X", "utf8", "-c", PYTHON, ""],
        Interpreter::None => &[],
    };
    InitRequest::Hello(Hello {
        version: VERSION,
        secret,
        python: python.iter().map(|&word| word.to_owned()).collect(),
        // The files of a sandbox stay there.
        output: match greeting.leftovers {
            Leftovers::Kill => OUTPUT.to_owned(),
            Leftovers::Keep => String::new(),
        },
        mount_points: greeting.mount_points,
        leftovers: greeting.leftovers,
    })
}

async fn greet<R, W>(
    reader: &mut R,
    writer: &mut W,
    hello: &InitRequest,
    frames: &mut FrameReader,
) -> Result<Ready, InitLost>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut bytes = Vec::new();
    hello.write(&mut bytes);
    writer.write_all(&bytes).await.map_err(|_| InitLost::Gone)?;
    writer.flush().await.map_err(|_| InitLost::Gone)?;
    match next(reader, frames).await? {
        Report::Ready(ready) if ready.version == VERSION => Ok(ready),
        Report::Ready(ready) => Err(InitLost::Version(ready.version)),
        Report::Broken(why) => Err(InitLost::Broken(why)),
        other => Err(InitLost::Senseless(format!("{other:?} before it was ready"))),
    }
}

async fn next<R: AsyncRead + Unpin>(reader: &mut R, frames: &mut FrameReader) -> Result<Report, InitLost> {
    let mut buffer = vec![0; READ_SIZE];
    loop {
        match frames.report() {
            Ok(Some(report)) => return Ok(report),
            Ok(None) => {}
            Err(error) => return Err(InitLost::Senseless(error.to_string())),
        }
        match reader.read(&mut buffer).await {
            Ok(count) if count > 0 => frames.push(&buffer[..count]),
            _ => return Err(InitLost::Gone),
        }
    }
}

impl InitClient {
    /// Returns a client whose processes have a network that leads only through `outlet`, as soon as that leads to a host.
    #[must_use]
    pub fn through(self, outlet: Outlet) -> Self {
        Self {
            outlet: Some(outlet),
            ..self
        }
    }

    /// Returns the outlet of these processes.
    pub const fn outlet(&self) -> Option<&Outlet> {
        self.outlet.as_ref()
    }

    /// Gives variables to the processes that start from now on. Those of the first call stay.
    pub fn equip(&self, variables: impl IntoIterator<Item = (String, String)>) {
        self.environment.get_or_init(|| variables.into_iter().collect());
    }

    /// Returns the number of bytes that these processes sent to hosts and received from them so far.
    pub fn egress_bytes(&self) -> u64 {
        self.outlet.as_ref().map_or(0, Outlet::bytes)
    }

    /// Returns the init's description of its container.
    pub const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Returns `true` unless the connection is known to be closed.
    pub fn is_connected(&self) -> bool {
        self.line.is_open()
    }

    /// Returns the number of running calls.
    pub fn running(&self) -> usize {
        self.line.running()
    }

    /// Kills all processes of the container but the init, and resolves once they are gone.
    ///
    /// # Errors
    /// If the connection is closed.
    pub async fn end_all(&self) -> Result<(), InitLost> {
        self.line.end_all().await
    }

    /// Closes the connection, which kills all calls and processes of the container.
    pub fn release(&self) {
        self.line.close(InitLost::Released);
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Carrier<R, W> {
    /// Drives the connection until the container ends, the init fails or [`InitClient::release`] is called. Calls
    /// that are still running then end with an unknown outcome.
    pub async fn carry(self) -> InitLost {
        let Self {
            line,
            mut frames,
            mut reader,
            mut writer,
        } = self;
        let parted = tokio::select! {
            biased;
            parted = line.closed() => parted,
            parted = receive(&line, &mut reader, &mut frames) => parted,
            parted = speak(&line, &mut writer) => parted,
        };
        line.close(parted.clone());
        // End of file on its input ends the init. If the shutdown fails, the container is removed all the
        // same.
        let _ = writer.shutdown().await;
        parted
    }
}

async fn receive<R: AsyncRead + Unpin>(line: &Mux, reader: &mut R, frames: &mut FrameReader) -> InitLost {
    loop {
        let heard = next(reader, frames).await.and_then(|report| line.receive(report));
        if let Err(parted) = heard {
            return parted;
        }
    }
}

async fn speak<W: AsyncWrite + Unpin>(line: &Mux, writer: &mut W) -> InitLost {
    loop {
        let bytes = line.outgoing().await;
        let sent = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        if sent.await.is_err() {
            return InitLost::Gone;
        }
    }
}
