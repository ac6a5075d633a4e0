//! The task that owns a sandbox: makes it, ends it in time, and leaves nothing of it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::cleanup::{Remains, clean};
use super::runtime::{Id, Inspected, Status};
use super::spec::{Spec, labels};
use super::state::{Event, Failure, State};
use super::{Attached, ContainerRuntime, Error, Flavor};

/// How long an engine may take to make a container. Its own time begins when it runs.
const MAKING: Duration = Duration::from_secs(120);
/// How long a container may take to end politely.
const GRACE: Duration = Duration::from_secs(2);
/// How long an engine that has gone away may take to come back before its containers count as lost.
const COME_BACK: Duration = Duration::from_secs(20);
/// How often it is asked meanwhile.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// What is to be kept.
#[derive(Debug)]
pub struct Order {
    /// The container.
    pub spec: Spec,
    /// How long it may run.
    pub max_duration: Duration,
    /// Whether its streams are wanted, from its first byte on.
    pub attach: bool,
    /// What is dropped once nothing is left of it, such as directories that it sees.
    pub belongings: Option<Box<dyn Any + Send + Sync>>,
}

/// What a keeper is told to do.
#[derive(Debug)]
pub(super) enum Command {
    Pause(oneshot::Sender<Result<(), Error>>),
    Resume(oneshot::Sender<Result<(), Error>>),
    Stop,
}

/// What a sandbox is once it runs.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) id: Id,
    pub(super) attached: Option<Attached>,
}

/// What is known of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Where it is.
    pub state: State,
    /// How its first process ended, if it ended by itself.
    pub exit_code: Option<i64>,
    /// Whether the kernel killed a process of it for want of memory.
    pub oom_killed: bool,
    /// What could not be removed; the next sweep tries again.
    pub problems: Vec<String>,
}

impl Life {
    pub(super) const BEGIN: Self = Self {
        state: State::Creating,
        exit_code: None,
        oom_killed: false,
        problems: Vec::new(),
    };
}

/// Where a container's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Streams {
    /// To us, through the engine. When that goes away they are lost, and what the container does then is of no use.
    Ours,
    /// To a log, and to whoever asks.
    Kept,
}

/// A keeper at work.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) engine: ContainerRuntime,
    pub(super) life: watch::Sender<Life>,
    pub(super) commands: mpsc::Receiver<Command>,
    /// Told when nobody waits for its work any more, because the engine does not answer.
    pub(super) given_up: Arc<Notify>,
}

impl Keeper {
    /// Keeps a sandbox from its first moment to its last.
    pub(super) async fn keep(mut self, order: Order, told: oneshot::Sender<Result<Started, Error>>) {
        let remains = Remains::of(&order.spec);
        let made = tokio::time::timeout(MAKING, self.make(&order)).await;
        match made.unwrap_or_else(|_| Err(too_slow(MAKING))) {
            Ok(started) => {
                let deadline = Instant::now() + order.max_duration;
                self.happened(Event::Started);
                let id = started.id.clone();
                let streams = match order.attach {
                    true => Streams::Ours,
                    false => Streams::Kept,
                };
                // If nobody waits for it any more, nobody can send commands either.
                let _ = told.send(Ok(started));
                let event = self.attend(&id, deadline, streams).await;
                self.happened(event);
                self.clear(&remains).await;
            }
            Err(error) => {
                self.happened(Event::Failed(Failure::NotCreated));
                match error {
                    // What has the name is somebody else's.
                    Error::NameTaken { .. } => {
                        self.happened(Event::Clean);
                        self.happened(Event::Removed);
                    }
                    _ => self.clear(&remains).await,
                }
                let _ = told.send(Err(error));
            }
        }
    }

    async fn make(&self, order: &Order) -> Result<Started, Error> {
        let spec = &order.spec;
        for volume in &spec.volumes {
            let labels = labels(&spec.owner, &spec.scope);
            self.engine.create_volume(volume, labels).await?;
        }
        let id = match self.engine.create(spec).await {
            Err(error @ Error::NameTaken { .. }) => {
                for volume in &spec.volumes {
                    self.engine.remove_volume(&volume.name).await?;
                }
                return Err(error);
            }
            made => made?,
        };
        let attached = match order.attach {
            true => Some(self.engine.attach(&id).await?),
            false => None,
        };
        self.engine.start(&id).await?;
        Ok(Started { id, attached })
    }

    /// Does what it is told until the sandbox shall end, or has ended; what made it.
    async fn attend(&mut self, id: &Id, deadline: Instant, streams: Streams) -> Event {
        let engine = self.engine.clone();
        let gone = gone(&engine, id, streams);
        tokio::pin!(gone);
        loop {
            tokio::select! {
                biased;
                end = &mut gone => return self.judge(end),
                () = tokio::time::sleep_until(deadline) => return Event::Failed(Failure::TimedOut),
                command = self.commands.recv() => match command {
                    Some(Command::Pause(told)) => self.change(Event::Paused, engine.pause(id), told).await,
                    Some(Command::Resume(told)) => self.change(Event::Resumed, engine.resume(id), told).await,
                    Some(Command::Stop) | None => return Event::Stop,
                },
            }
        }
    }

    /// Pauses or resumes, if that makes sense.
    async fn change(
        &self,
        event: Event,
        doing: impl Future<Output = Result<(), Error>>,
        told: oneshot::Sender<Result<(), Error>>,
    ) {
        let state = self.life.borrow().state;
        let done = match state.next(event) {
            Ok(_) => doing.await,
            Err(illegal) => Err(Error::Illegal(illegal)),
        };
        if done.is_ok() {
            self.happened(event);
        }
        let _ = told.send(done);
    }

    /// What it means that the container does not run any more.
    fn judge(&self, end: Option<Inspected>) -> Event {
        let Some(end) = end else {
            return Event::Failed(Failure::Vanished);
        };
        self.life.send_modify(|life| {
            life.exit_code = end.exit_code;
            life.oom_killed = end.oom_killed;
        });
        match end.exit_code {
            Some(0) => Event::Stop,
            Some(KILLED) if end.oom_killed => Event::Failed(Failure::OutOfMemory),
            _ => Event::Failed(Failure::Crashed),
        }
    }

    async fn clear(&self, remains: &Remains) {
        // Only one that was asked to end is given time for it.
        let asked = self.life.borrow().state == State::Stopping && self.life.borrow().exit_code.is_none();
        self.happened(Event::Clean);
        let grace = if asked { GRACE } else { Duration::ZERO };
        let problems = clean(&self.engine, remains, grace).await;
        let problems = problems.iter().map(Error::to_string).collect();
        self.life.send_modify(|life| life.problems = problems);
        self.happened(Event::Removed);
    }

    /// Goes on to the next state. The keeper alone makes events, so an illegal one is a mistake in it.
    fn happened(&self, event: Event) {
        self.life.send_modify(|life| match life.state.next(event) {
            Ok(next) => life.state = next,
            Err(illegal) => debug_assert!(false, "{illegal}"),
        });
    }
}

/// The status of a process that the kernel killed.
const KILLED: i64 = 128 + 9;

/// Ends when the container does not run any more; `None` if nothing is known of how it ended.
///
/// The engine answers the moment a container ends, is removed, or the engine itself goes away.
async fn gone(engine: &ContainerRuntime, id: &Id, streams: Streams) -> Option<Inspected> {
    let mut lost_since = None;
    loop {
        // What it answers is looked up anyway: an engine may go away, come back, and know no more than its files.
        let waited = engine.wait(id).await;
        if waited.is_err() && streams == Streams::Ours {
            return None;
        }
        match engine.inspect(id).await {
            Ok(found) if found.status == Status::Exited => {
                // Whoever waited was told the status itself; what is looked up may be older.
                let exit_code = waited.ok().or(found.exit_code);
                let asks_why = exit_code == Some(KILLED) && engine.flavor() == Flavor::Docker;
                let oom_killed = found.oom_killed || asks_why && engine.told_of_memory(id).await;
                return Some(Inspected {
                    exit_code,
                    oom_killed,
                    ..found
                });
            }
            Ok(found) if found.status == Status::Removing => return None,
            Ok(_) => lost_since = None,
            Err(Error::NotFound { .. }) => return None,
            Err(_) => {
                let since = *lost_since.get_or_insert_with(Instant::now);
                if since.elapsed() > COME_BACK {
                    return None;
                }
            }
        }
        if waited.is_err() || lost_since.is_some() {
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

/// What it means that there is no container after so long.
pub(super) fn too_slow(patience: Duration) -> Error {
    Error::Deadline {
        doing: "make a container",
        patience,
    }
}
