//! The engine's end of the agent in a container: starts calls there, and believes no more of it than it must.
//!
//! [`connect`] greets an agent over the streams that it is attached to. What comes of it are two things: an [`Agent`], to run
//! calls with, and a [`Carrier`], which its owner lets run until it ends. Once it has ended the container is to be removed.

mod call;
mod connection;
mod file;
mod line;
mod start;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use super::exchange::OUTPUT;
use ringfence_jail::agent::frames::{FrameReader, Hello, Order, Ready, Report, Secret, VERSION};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

pub use call::{Finished, NotRun};
pub use file::{INSIDE, file};
pub use line::AT_ONCE;
use line::Line;
pub use start::{NotForAgents, start};

/// What runs in the Pythons of a container.
const PYTHON: &str = concat!(
    include_str!("../../python/forks.py"),
    include_str!("../../python/bridge.py"),
    include_str!("../../python/worker.py")
);
/// How long an agent may take to come up. A container under gVisor starts slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much is read at once.
const READ_SIZE: usize = 64 * 1024;

/// An agent that calls can be run with, at the same time.
#[derive(Debug, Clone)]
pub struct Agent {
    line: Arc<Line>,
    ready: Ready,
}

/// What carries bytes between an [`Agent`] and its container.
#[derive(Debug)]
pub struct Carrier<R, W> {
    line: Arc<Line>,
    frames: FrameReader,
    reader: R,
    writer: W,
}

/// Why there is no connection to an agent any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Parted {
    /// The container has ended, or the container engine.
    #[error("the container ended")]
    Gone,
    /// It sent what makes no sense.
    #[error("the agent in the container sent what makes no sense: {0}")]
    Senseless(String),
    /// It said that it cannot go on.
    #[error("the agent in the container broke: {0}")]
    Broken(String),
    /// It did not end a call in time.
    #[error("the agent in the container does not answer")]
    Silent,
    /// It is of another version.
    #[error("the agent in the container speaks version {0} of its protocol, and not {VERSION}")]
    Version(u32),
    /// There are no random numbers.
    #[error("this machine has no random numbers")]
    Secret,
    /// Nobody wants it any more.
    #[error("the container was given up")]
    Released,
}

impl Parted {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Gone | Self::Released | Self::Secret => "try again: the next call starts a new container",
            Self::Senseless(_) | Self::Broken(_) | Self::Silent | Self::Version(_) => {
                "try again: the next call starts a new container; if that does not help, look at the log of the container engine"
            }
        }
    }
}

/// Whether an agent keeps a warm interpreter for the calls to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpreter {
    /// Pythons are forked from it.
    Warm,
    /// There is none, and it costs nothing; a call names its program.
    None,
}

/// Greets the agent behind these streams.
///
/// # Errors
/// If it does not answer as one.
pub async fn connect<R, W>(
    mut reader: R,
    mut writer: W,
    interpreter: Interpreter,
) -> Result<(Agent, Carrier<R, W>), Parted>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let secret = secret()?;
    let mut frames = FrameReader::of_agent(secret);
    let hello = hello(secret, interpreter);
    let greeting = greet((&mut reader, &mut writer), &hello, &mut frames);
    let ready = timeout(PATIENCE, greeting).await.map_err(|_| Parted::Silent)??;
    let line = Arc::new(Line::new());
    let carrier = Carrier {
        line: Arc::clone(&line),
        frames,
        reader,
        writer,
    };
    Ok((Agent { line, ready }, carrier))
}

/// Nobody in the container may guess it.
fn secret() -> Result<Secret, Parted> {
    let mut secret = Secret::default();
    match rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty()) {
        Ok(count) if count == secret.len() => Ok(secret),
        _ => Err(Parted::Secret),
    }
}

fn hello(secret: Secret, interpreter: Interpreter) -> Order {
    let python: &[&str] = match interpreter {
        Interpreter::Warm => &["-I", "-B", "-X", "utf8", "-c", PYTHON, ""],
        Interpreter::None => &[],
    };
    Order::Hello(Hello {
        version: VERSION,
        secret,
        python: python.iter().map(|&word| word.to_owned()).collect(),
        output: OUTPUT.to_owned(),
    })
}

async fn greet<R, W>(
    (reader, writer): (&mut R, &mut W),
    hello: &Order,
    frames: &mut FrameReader,
) -> Result<Ready, Parted>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut bytes = Vec::new();
    hello.write(&mut bytes);
    writer.write_all(&bytes).await.map_err(|_| Parted::Gone)?;
    writer.flush().await.map_err(|_| Parted::Gone)?;
    match next(reader, frames).await? {
        Report::Ready(ready) if ready.version == VERSION => Ok(ready),
        Report::Ready(ready) => Err(Parted::Version(ready.version)),
        Report::Broken(why) => Err(Parted::Broken(why)),
        other => Err(Parted::Senseless(format!("{other:?} before it was ready"))),
    }
}

async fn next<R: AsyncRead + Unpin>(reader: &mut R, frames: &mut FrameReader) -> Result<Report, Parted> {
    let mut buffer = vec![0; READ_SIZE];
    loop {
        match frames.report() {
            Ok(Some(report)) => return Ok(report),
            Ok(None) => {}
            Err(error) => return Err(Parted::Senseless(error.to_string())),
        }
        match reader.read(&mut buffer).await {
            Ok(count) if count > 0 => frames.push(&buffer[..count]),
            _ => return Err(Parted::Gone),
        }
    }
}

impl Agent {
    /// What there is in its container.
    pub const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Whether calls can be run with it, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.line.is_open()
    }

    /// How many calls run.
    pub fn running(&self) -> usize {
        self.line.running()
    }

    /// Ends the connection, and with it all calls and the container's processes.
    pub fn release(&self) {
        self.line.close(Parted::Released);
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Carrier<R, W> {
    /// Carries until the container ends, the agent breaks, or nobody wants it any more. All calls that still run have then
    /// ended as unknown.
    pub async fn carry(self) -> Parted {
        let Self {
            line,
            mut frames,
            mut reader,
            mut writer,
        } = self;
        let parted = tokio::select! {
            biased;
            parted = line.closed() => parted,
            parted = hear(&line, &mut reader, &mut frames) => parted,
            parted = speak(&line, &mut writer) => parted,
        };
        line.close(parted.clone());
        // The end of its input ends the agent. If that cannot be told, its container is removed all the same.
        let _ = writer.shutdown().await;
        parted
    }
}

async fn hear<R: AsyncRead + Unpin>(line: &Line, reader: &mut R, frames: &mut FrameReader) -> Parted {
    loop {
        let heard = next(reader, frames).await.and_then(|report| line.receive(report));
        if let Err(parted) = heard {
            return parted;
        }
    }
}

async fn speak<W: AsyncWrite + Unpin>(line: &Line, writer: &mut W) -> Parted {
    loop {
        let bytes = line.outgoing().await;
        let sent = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        if sent.await.is_err() {
            return Parted::Gone;
        }
    }
}
