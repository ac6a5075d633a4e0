//! The sandboxes of this process: each has a keeper, and all are gone when it closes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_policy::Bytes;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cleanup::{Remains, clean};
use super::info::Info;
use super::keeper::{Command, Keeper, Life, Order};
use super::orphans::{self, Swept};
use super::runtime::Id;
use super::spec::{Bind, Name, OciRuntime, Spec, Volume};
use super::state::State;
use super::{Attached, ContainerRuntime, Error, RunResult};
use crate::owner::Owner;

/// Commands to a keeper that wait for their turn.
const QUEUE: usize = 8;

/// What is remembered of what could not be removed. What is beyond that, the next process removes.
const MOST_OWED: usize = 1000;

/// The sandboxes of this process, in one engine.
#[derive(Debug)]
pub struct Manager {
    engine: ContainerRuntime,
    owner: Owner,
    info: Info,
    keepers: Mutex<JoinSet<()>>,
    /// What has a keeper, by name.
    kept: Arc<Mutex<HashSet<String>>>,
    /// What could not be removed, for the engine did not answer.
    owed: Arc<Mutex<Vec<Remains>>>,
}

/// A running sandbox. Dropping it ends it; [`Manager::close`] waits for that.
#[derive(Debug)]
pub struct Sandbox {
    name: Name,
    id: Id,
    engine: ContainerRuntime,
    life: watch::Receiver<Life>,
    commands: mpsc::Sender<Command>,
    given_up: Arc<Notify>,
}

impl Manager {
    /// A manager without sandboxes, in an engine that says this of itself.
    pub fn new(engine: ContainerRuntime, owner: Owner, info: Info) -> Self {
        Self {
            engine,
            owner,
            info,
            keepers: Mutex::default(),
            kept: Arc::default(),
            owed: Arc::default(),
        }
    }

    /// The engine that it uses.
    pub fn engine(&self) -> &ContainerRuntime {
        &self.engine
    }

    /// What the engine said of itself.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Whose its sandboxes are.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// What will make a container for which this was asked; [`OciRuntime::Default`] if it is none that we know.
    ///
    /// # Errors
    /// If the engine would make it with another one.
    pub fn oci_runtime(&self, wanted: OciRuntime) -> Result<OciRuntime, Error> {
        self.info.oci_runtime(self.engine.flavor(), wanted)
    }

    /// Makes a sandbox and starts it; its streams, if they were ordered. If that fails, nothing is left of it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub async fn sandbox(&self, mut order: Order) -> Result<(Sandbox, Option<Attached>), Error> {
        order.spec.oci_runtime = self.oci_runtime(order.spec.oci_runtime)?;
        order.spec.is_filtered()?;
        self.bound_volumes(&mut order.spec).await?;
        order.spec.has_places().map_err(Error::Place)?;
        let name = order.spec.name.clone();
        let (life, watched) = watch::channel(Life::BEGIN);
        let (commands, received) = mpsc::channel(QUEUE);
        let (told, started) = oneshot::channel();
        let given_up = Arc::new(Notify::new());
        let keeper = Keeper {
            engine: self.engine.clone(),
            life,
            commands: received,
            given_up: Arc::clone(&given_up),
        };
        self.spawn(keeper, order, told)?;
        let started = started.await.map_err(|_| Error::Closing)??;
        self.remove_owed();
        let sandbox = Sandbox {
            name,
            id: started.id,
            engine: self.engine.clone(),
            life: watched,
            commands,
            given_up,
        };
        Ok((sandbox, started.attached))
    }

    /// Puts a volume of ours in the place of each that the image declares: the engine would make one on the host's disk,
    /// without a bound.
    async fn bound_volumes(&self, spec: &mut Spec) -> Result<(), Error> {
        let declared = self.engine.image_volumes(&spec.image).await?;
        let is_free = |place: &PathBuf| {
            let mut volumes = spec.volumes.iter().flat_map(|volume| &volume.places);
            let mut binds = spec.binds.iter().map(Bind::guest);
            place != Path::new("/tmp")
                && !volumes.any(|taken| taken == place)
                && !binds.any(|taken| taken == place)
        };
        let own: Vec<Volume> = declared
            .into_iter()
            .filter(is_free)
            .enumerate()
            .map(|(number, place)| Volume {
                name: Name::unused().part(&format!("image-{number}")),
                places: vec![place],
                size: spec.resources.volume(),
            })
            .collect();
        spec.volumes.extend(own);
        Ok(())
    }

    fn spawn(
        &self,
        keeper: Keeper,
        order: Order,
        told: oneshot::Sender<Result<super::keeper::Started, Error>>,
    ) -> Result<(), Error> {
        let remains = Remains::of(&order.spec);
        let names: Vec<String> = order.spec.names().map(|name| name.as_str().to_owned()).collect();
        // Before it exists, so that no sweep takes it for an orphan.
        let mut kept = lock(&self.kept);
        if let Some(name) = names.iter().find(|name| kept.contains(*name)) {
            return Err(Error::NameTaken { name: name.clone() });
        }
        kept.extend(names.iter().cloned());
        drop(kept);
        let place = Place {
            remains,
            names,
            kept: Arc::clone(&self.kept),
            owed: Arc::clone(&self.owed),
            life: keeper.life.subscribe(),
        };
        self.spawn_task(async move {
            let given_up = keeper.given_up.clone();
            tokio::select! {
                () = keeper.keep(order, told) => {}
                () = given_up.notified() => {}
            }
            drop(place);
        });
        Ok(())
    }

    /// Removes what could not be removed before, now that the engine answers.
    fn remove_owed(&self) {
        if !lock(&self.owed).is_empty() {
            let (owed, kept) = (Arc::clone(&self.owed), Arc::clone(&self.kept));
            self.spawn_task(remove(self.engine.clone(), owed, kept));
        }
    }

    /// Has a task done that [`Self::close`] waits for.
    pub(super) fn spawn_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut keepers = lock(&self.keepers);
        while keepers.try_join_next().is_some() {}
        keepers.spawn(task);
    }

    /// Removes what dead processes left in the engine, and what this one could not remove earlier.
    ///
    /// # Errors
    /// If the engine does not answer.
    pub async fn sweep(&self) -> Result<Swept, Error> {
        let is_orphan = |name: &str, owner: &Owner| {
            if *owner == self.owner {
                !lock(&self.kept).contains(name)
            } else {
                owner.is_dead()
            }
        };
        orphans::sweep(&self.engine, &is_orphan).await
    }

    /// Ends every sandbox whose handle was dropped, and waits until nothing is left. The handles come first.
    ///
    /// An engine that does not answer any more is not waited for: what is left there is an orphan of this process.
    pub async fn close(&self) {
        let mut keepers = std::mem::take(&mut *lock(&self.keepers));
        let all = async {
            while keepers.join_next().await.is_some() {}
            remove(
                self.engine.clone(),
                Arc::clone(&self.owed),
                Arc::clone(&self.kept),
            )
            .await;
        };
        tokio::select! {
            () = all => {}
            () = self.engine.silence() => {}
        }
    }
}

/// The place of a sandbox among those that have a keeper; dropping it gives it up.
struct Place {
    remains: Remains,
    names: Vec<String>,
    kept: Arc<Mutex<HashSet<String>>>,
    owed: Arc<Mutex<Vec<Remains>>>,
    life: watch::Receiver<Life>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let life = self.life.borrow();
        let is_left = !matches!(life.state, State::Destroyed(_)) || !life.problems.is_empty();
        let mut owed = lock(&self.owed);
        if is_left && owed.len() < MOST_OWED {
            owed.push(self.remains.clone());
        }
        drop(owed);
        lock(&self.kept).retain(|name| !self.names.contains(name));
    }
}

/// Removes what is owed, until something cannot be removed. Who has a name by now has a keeper, and owes nothing.
async fn remove(engine: ContainerRuntime, owed: Arc<Mutex<Vec<Remains>>>, kept: Arc<Mutex<HashSet<String>>>) {
    let all = lock(&owed).clone();
    for remains in all {
        let is_kept = lock(&kept).contains(remains.container.as_str());
        if !is_kept && !clean(&engine, &remains, Duration::ZERO).await.is_empty() {
            return;
        }
        lock(&owed).retain(|other| *other != remains);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sandbox {
    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Its container.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// What is known of it.
    pub fn life(&self) -> Life {
        self.life.borrow().clone()
    }

    /// Stops its processes where they are. Its time goes on.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn pause(&self) -> Result<(), Error> {
        self.command(Command::Pause).await
    }

    /// Lets its processes go on.
    ///
    /// # Errors
    /// If it is not paused.
    pub async fn resume(&self) -> Result<(), Error> {
        self.command(Command::Resume).await
    }

    /// Runs a command in it. One that goes past its deadline takes the sandbox along: an engine ends the processes of a
    /// container only together.
    ///
    /// # Errors
    /// If it could not be run.
    pub async fn run(&self, command: &[String], deadline: Instant, keep: Bytes) -> Result<RunResult, Error> {
        let mut result = self.engine.run(&self.id, command, deadline, keep).await?;
        result.sandbox_ended = result.status.is_none();
        if result.sandbox_ended {
            let _ = self.commands.send(Command::Stop).await;
        }
        Ok(result)
    }

    /// Ends it and waits until nothing is left.
    pub async fn stop(&self) -> Life {
        let _ = self.commands.send(Command::Stop).await;
        self.ended().await
    }

    /// Has its processes killed, if the engine does so in that time; otherwise their keeper ends them.
    pub(super) async fn kill(&self, patience: Duration) {
        let killed = tokio::time::timeout(patience, self.engine.kill(&self.id)).await;
        if !matches!(killed, Ok(Ok(()))) {
            let _ = self.commands.send(Command::Stop).await;
        }
    }

    /// Waits until nothing is left of it.
    pub async fn ended(&self) -> Life {
        let destroyed = |life: &Life| matches!(life.state, State::Destroyed(_));
        // A keeper goes away only when its work is done.
        let _ = self.life.clone().wait_for(destroyed).await;
        self.life()
    }

    /// Waits until nothing is left of it, or its engine does not answer any more. What is left then is an orphan.
    pub(super) async fn ended_or_lost(&self) -> Life {
        tokio::select! {
            life = self.ended() => life,
            () = self.engine.silence() => {
                self.given_up.notify_one();
                let mut life = self.life();
                life.problems.push(format!(
                    "the container engine does not answer; it may have kept the container {}, which is removed by a later run",
                    self.name
                ));
                life
            }
        }
    }

    async fn command(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), Error>>) -> Command,
    ) -> Result<(), Error> {
        let (told, answer) = oneshot::channel();
        let _ = self.commands.send(command(told)).await;
        // Without an answer there is no sandbox any more.
        answer.await.unwrap_or(Err(Error::Closing))
    }
}

#[cfg(test)]
mod tests;
