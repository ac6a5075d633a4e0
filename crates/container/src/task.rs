//! Supervises a container: a task that creates it, ends it in time and removes all of it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::EngineKind;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::attached::AttachedMounts;
use super::cleanup::{Remains, clean_with_retries};
use super::runtime::{Id, Inspected, Status};
use super::spec::Spec;
use super::spec::lower::labels;
use super::state::{Event, Failure, State};
use super::{Attached, ContainerRuntime, Error};

/// Timeout of a container's creation. Its own duration is counted from its start.
const MAKING: Duration = Duration::from_secs(120);
/// Grace period between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Time for an engine to restart before its containers count as lost.
const COME_BACK: Duration = Duration::from_secs(20);
/// Interval of retries during that time.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Parameters of a container to run.
#[derive(Debug)]
pub struct NewContainer {
    pub spec: Spec,
    /// Limit of the container's running time.
    pub max_duration: Duration,
    /// Set to attach to its streams from the first byte on.
    pub attach: bool,
    /// Resources to drop after its removal, such as directories that it mounts.
    pub belongings: Option<Box<dyn Any + Send + Sync>>,
}

/// A command to the supervising task.
#[derive(Debug)]
pub(super) enum Command {
    Pause(oneshot::Sender<Result<(), Error>>),
    Resume(oneshot::Sender<Result<(), Error>>),
    Stop,
}

/// The result of a successful start.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) id: Id,
    pub(super) attached: Option<Attached>,
    pub(super) warnings: Vec<String>,
}

/// The observed status of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    pub state: State,
    /// Exit status of its first process, if it ended by itself.
    pub exit_code: Option<i64>,
    /// Set if the OOM killer killed one of its processes.
    pub oom_killed: bool,
    /// Failures of the removal; the next sweep retries.
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

/// The destination of a container's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Streams {
    /// Our attachment through the engine. If the engine goes away, output is lost, and the container's
    /// further work is useless.
    Ours,
    /// A log, and readers of it.
    Kept,
}

/// The supervising task.
#[derive(Debug)]
pub(super) struct ContainerTask {
    pub(super) engine: ContainerRuntime,
    pub(super) life: watch::Sender<Life>,
    pub(super) commands: mpsc::Receiver<Command>,
    /// Signalled when the task is abandoned because the engine does not respond.
    pub(super) given_up: Arc<Notify>,
}

impl ContainerTask {
    /// Supervises a container from its creation to its removal.
    pub(super) async fn run(
        mut self,
        new_container: NewContainer,
        told: oneshot::Sender<Result<Started, Error>>,
    ) {
        let remains = Remains::of(&new_container.spec);
        let made = tokio::time::timeout(MAKING, self.make(&new_container)).await;
        match made.unwrap_or_else(|_| Err(too_slow(MAKING))) {
            Ok(started) => {
                let deadline = Instant::now() + new_container.max_duration;
                self.happened(Event::Started);
                let id = started.id.clone();
                let streams = match new_container.attach {
                    true => Streams::Ours,
                    false => Streams::Kept,
                };
                // If the receiver is gone, no commands can arrive either.
                let _ = told.send(Ok(started));
                let event = self.supervise(&id, deadline, streams).await;
                self.happened(event);
                self.clear(&remains).await;
            }
            Err(error) => {
                self.happened(Event::Failed(Failure::NotCreated));
                match error {
                    // The name belongs to another owner's container.
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

    async fn make(&self, new_container: &NewContainer) -> Result<Started, Error> {
        let mut spec = new_container.spec.clone();
        // The mounts go once the container has its own copies.
        let mounts = AttachedMounts::attach(&mut spec, &self.engine).map_err(Error::Place)?;
        let spec = &spec;
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
        let attached = match new_container.attach {
            true => Some(self.engine.attach(&id).await?),
            false => None,
        };
        self.engine.start(&id).await?;
        Ok(Started {
            id,
            attached,
            warnings: mounts.warnings.clone(),
        })
    }

    /// Executes commands until the container ends or must end; returns the event that ended it.
    async fn supervise(&mut self, id: &Id, deadline: Instant, streams: Streams) -> Event {
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

    /// Pauses or resumes, if the state permits it.
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

    /// Classifies the end of the container.
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
        // Only a container that was asked to stop gets a grace period.
        let asked = self.life.borrow().state == State::Stopping && self.life.borrow().exit_code.is_none();
        self.happened(Event::Clean);
        let grace = if asked { GRACE } else { Duration::ZERO };
        let problems = clean_with_retries(&self.engine, remains, grace).await;
        let problems = problems.iter().map(Error::to_string).collect();
        self.life.send_modify(|life| life.problems = problems);
        self.happened(Event::Removed);
    }

    /// Advances the state. Only this task generates events, so an illegal one is a bug here.
    fn happened(&self, event: Event) {
        self.life.send_modify(|life| match life.state.next(event) {
            Ok(next) => life.state = next,
            Err(illegal) => debug_assert!(false, "{illegal}"),
        });
    }
}

/// Exit status after SIGKILL.
const KILLED: i64 = 128 + 9;

/// Resolves when the container no longer runs; to `None` if its exit status is unknown.
///
/// The engine's wait call returns as soon as a container ends or is removed, or the engine itself goes away.
async fn gone(engine: &ContainerRuntime, id: &Id, streams: Streams) -> Option<Inspected> {
    let mut lost_since = None;
    loop {
        // The container is inspected in any case: after a restart, an engine knows only what is in its files.
        let waited = engine.wait(id).await;
        if waited.is_err() && streams == Streams::Ours {
            return None;
        }
        match engine.inspect(id).await {
            Ok(found) if found.status == Status::Exited => {
                // The wait call returns the exit status itself; the inspected one may be stale.
                let exit_code = waited.ok().or(found.exit_code);
                let asks_why = exit_code == Some(KILLED) && engine.kind() == EngineKind::Docker;
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

/// Returns the error for a creation that exceeded its timeout.
pub(super) fn too_slow(patience: Duration) -> Error {
    Error::Deadline {
        doing: "make a container",
        patience,
    }
}
