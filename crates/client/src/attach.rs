//! Processes with the caller's standard streams or terminal.

use std::io::{self, Read};
use std::task::Poll;

use hyper::Method;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::client::{Body, Error};
use super::events::{Event, Events};
use super::sandbox::{Ended, Input, Sandbox, follow, pieces, write};
use super::terminal::{self, RawMode};

impl Sandbox {
    /// Runs a process, as `POST …/exec` describes it, with the caller's standard streams. Returns its end.
    ///
    /// The process ends with the caller, however that ends: the server kills it when the connection closes.
    ///
    /// # Errors
    /// If it cannot be started, or the connection breaks.
    pub async fn attach(&self, process: Value, input: Input) -> Result<Ended, Error> {
        // Before the terminal is raw: from then on no signal may end this process.
        let ending = match input {
            Input::Terminal => Some(EndingSignals::new().map_err(|error| Error::Broken(error.to_string()))?),
            Input::None | Input::Stdin => None,
        };
        let raw = match input {
            Input::Terminal => RawMode::enter().map_err(|error| Error::Broken(error.to_string()))?,
            Input::None | Input::Stdin => None,
        };
        let attached = self.attached(process, input);
        let ended = match ending {
            None => attached.await,
            Some(ending) => tokio::select! {
                ended = attached => ended,
                signal = ending.received() => Ok(signalled(signal)),
            },
        };
        drop(raw);
        ended
    }

    async fn attached(&self, mut process: Value, input: Input) -> Result<Ended, Error> {
        if input == Input::Terminal {
            let (columns, rows) = terminal::size().unwrap_or((80, 24));
            process["terminal"] = json!({"columns": columns, "rows": rows});
        }
        process["stdin"] = (input != Input::None).into();
        let (pid, events) = self.started(&process).await?;
        let below = |what: &str, parameters: &[(&str, &str)]| {
            self.path(&format!("/processes/{pid}{what}"), parameters)
        };
        let (pressed, keys) = mpsc::channel(1);
        let feeding = async {
            if input != Input::None {
                // The input of a terminal has no end.
                let end = if input == Input::Stdin { "true" } else { "false" };
                let path = below("/stdin", &[("end", end)]);
                let from = Keys {
                    from: io::stdin(),
                    pressed: (input == Input::Terminal).then_some(pressed),
                };
                let input = Body::Stream(pieces(from));
                // A process that stops reading is not an error; one whose input broke off reads its end.
                if self.client.order(Method::POST, &path, input).await.is_err() {
                    let _ = self.client.order(Method::POST, &path, Body::Empty).await;
                }
            }
        };
        let resizing = self.follow_size(below("/resize", &[]), input);
        let following = follow(events, write);
        let interrupting = async {
            match input {
                Input::Terminal => self.interrupted_by_key(below("/resize", &[]), keys).await,
                Input::None | Input::Stdin => self.pass_interrupts(below("/signal", &[])).await,
            }
        };
        tokio::pin!(feeding, resizing, following, interrupting);
        let mut fed = false;
        loop {
            tokio::select! {
                ended = &mut following => return ended,
                () = &mut feeding, if !fed => fed = true,
                () = &mut resizing => {}
                () = &mut interrupting => return Ok(signalled(SignalKind::interrupt())),
            }
        }
    }

    /// Passes every SIGINT on to a process. Resolves at one while the sandbox is paused: the process cannot respond to it.
    async fn pass_interrupts(&self, path: String) {
        let Ok(mut interrupts) = signal(SignalKind::interrupt()) else {
            return std::future::pending().await;
        };
        while interrupts.recv().await.is_some() {
            let interrupt = Body::Json(json!({"signal": "SIGINT"}));
            tokio::select! {
                passed = self.client.order(Method::POST, &path, interrupt) => if is_paused(&passed) {
                    return;
                },
                // Nobody waits longer than for a second one.
                _ = interrupts.recv() => return,
            }
        }
        std::future::pending().await
    }

    /// Resolves when Ctrl-C is pressed in the caller's terminal while the sandbox is paused: the process does not read it.
    async fn interrupted_by_key(&self, path: String, mut keys: mpsc::Receiver<()>) {
        while keys.recv().await.is_some() {
            // Without effect, and refused while the sandbox is paused.
            let (columns, rows) = terminal::size().unwrap_or((80, 24));
            let size = Body::Json(json!({"columns": columns, "rows": rows}));
            if is_paused(&self.client.order(Method::POST, &path, size).await) {
                return;
            }
        }
        std::future::pending().await
    }

    /// Starts a process that ends with the connection. Returns its id, and the events of its output.
    async fn started(&self, process: &Value) -> Result<(u64, Events), Error> {
        let path = self.path("/exec", &[]);
        let accept = Some("text/event-stream");
        let body = Body::Json(process.clone());
        let response = self.client.send(Method::POST, &path, body, accept).await?;
        let mut events = Events::of(response);
        match events.next().await? {
            Some(Event { name, data }) if name == "started" => match data["pid"].as_u64() {
                Some(pid) => Ok((pid, events)),
                None => Err(Error::Broken("it named no process".to_owned())),
            },
            _ => Err(Error::Broken("it did not start the process".to_owned())),
        }
    }

    /// Passes on the size of the caller's terminal whenever it changes.
    async fn follow_size(&self, path: String, input: Input) {
        let changes = signal(SignalKind::window_change());
        if input == Input::Terminal
            && let Ok(mut changes) = changes
        {
            while changes.recv().await.is_some() {
                if let Some((columns, rows)) = terminal::size() {
                    let size = Body::Json(json!({"columns": columns, "rows": rows}));
                    let _ = self.client.order(Method::POST, &path, size).await;
                }
            }
        }
        std::future::pending().await
    }
}

/// The signals that end a caller whose terminal must be restored before. Without a terminal they end it at once.
struct EndingSignals([(SignalKind, Signal); 4]);

impl EndingSignals {
    fn new() -> io::Result<Self> {
        let caught = |kind| Ok::<_, io::Error>((kind, signal(kind)?));
        Ok(Self([
            caught(SignalKind::terminate())?,
            caught(SignalKind::hangup())?,
            // Not those of keys, which are bytes now, but of other programs.
            caught(SignalKind::interrupt())?,
            caught(SignalKind::quit())?,
        ]))
    }

    /// Returns the first one.
    async fn received(mut self) -> SignalKind {
        std::future::poll_fn(|context| {
            let mut all = self.0.iter_mut();
            let received =
                all.find_map(|(kind, signal)| signal.poll_recv(context).is_ready().then_some(*kind));
            received.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

fn signalled(number: SignalKind) -> Ended {
    Ended(json!({"outcome": "signalled", "exit_code": -number.as_raw_value()}))
}

/// Returns `true` for the refusal of an operation on a process of a paused sandbox.
fn is_paused(done: &Result<(), Error>) -> bool {
    matches!(done, Err(Error::Refused { kind, .. }) if kind == "conflict")
}

/// The byte of Ctrl-C in a raw terminal.
const INTERRUPT_KEY: u8 = 3;

/// Input that says when it has Ctrl-C.
struct Keys<R> {
    from: R,
    /// `None` where it is a byte like others.
    pressed: Option<mpsc::Sender<()>>,
}

impl<R: Read> Read for Keys<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        if let Some(pressed) = &self.pressed
            && buffer[..read].contains(&INTERRUPT_KEY)
        {
            // One that is not yet handled is enough.
            let _ = pressed.try_send(());
        }
        Ok(read)
    }
}
