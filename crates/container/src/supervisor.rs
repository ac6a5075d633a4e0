//! Supervises the containers of this process: each has a task of its own; closing removes all of them.

use std::collections::HashSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ringfence_exec::owner::Owner;
use ringfence_exec::processors;
use ringfence_policy::Bytes;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::cleanup::{Remains, clean};
use super::counters;
use super::info::Info;
use super::init::Finished;
use super::orphans::{self, Swept};
use super::runtime::Id;
use super::spec::{Bind, Name, OciRuntime, Spec, Volume};
use super::state::State;
use super::task::{Command, ContainerTask, Life, NewContainer};
use super::{Attached, ContainerRuntime, Error, RunResult, Use};

/// Capacity of a task's command queue.
const QUEUE: usize = 8;

/// Limit of failed removals that are remembered. Further ones are left to the next process's sweep.
const MOST_OWED: usize = 1000;

/// Interval of the measurements of a container's memory.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// Timeout of the question for a container's process: an engine that stands still holds up no call.
const INSPECTING: Duration = Duration::from_millis(500);

/// The containers of this process in one engine.
#[derive(Debug)]
pub struct ContainerSupervisor {
    engine: ContainerRuntime,
    owner: Owner,
    info: Info,
    tasks: Mutex<JoinSet<()>>,
    /// Names of the containers and volumes that have a supervising task.
    supervised: Arc<Mutex<HashSet<String>>>,
    /// Removals that failed because the engine did not respond.
    owed: Arc<Mutex<Vec<Remains>>>,
}

/// A running container. Dropping it ends it; [`ContainerSupervisor::close`] waits for its removal.
#[derive(Debug)]
pub struct Container {
    name: Name,
    id: Id,
    engine: ContainerRuntime,
    warnings: Vec<String>,
    life: watch::Receiver<Life>,
    commands: mpsc::Sender<Command>,
    given_up: Arc<Notify>,
    /// Its first process, once the engine has named it.
    pid: OnceLock<u32>,
    /// Processor seconds at the end of the last call.
    cpu_seconds: Mutex<f64>,
}

impl ContainerSupervisor {
    /// Creates a supervisor without containers, for an engine with these capabilities.
    pub fn new(engine: ContainerRuntime, owner: Owner, info: Info) -> Self {
        Self {
            engine,
            owner,
            info,
            tasks: Mutex::default(),
            supervised: Arc::default(),
            owed: Arc::default(),
        }
    }

    pub fn engine(&self) -> &ContainerRuntime {
        &self.engine
    }

    /// Returns the engine's capabilities.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Returns the owner recorded on its containers.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Resolves the OCI runtime of a container; [`OciRuntime::Default`] if the engine's default is unknown to
    /// us.
    ///
    /// # Errors
    /// If the engine would use another OCI runtime than the one requested.
    pub fn oci_runtime(&self, wanted: OciRuntime) -> Result<OciRuntime, Error> {
        self.info.oci_runtime(self.engine.kind(), wanted)
    }

    /// Creates and starts a container; returns its streams if requested. Removes everything on failure.
    ///
    /// # Errors
    /// If the container cannot be created.
    pub async fn create(
        &self,
        mut new_container: NewContainer,
    ) -> Result<(Container, Option<Attached>), Error> {
        new_container.spec.oci_runtime = self.oci_runtime(new_container.spec.oci_runtime)?;
        new_container.spec.is_filtered()?;
        processors::check(new_container.spec.resources.cpus)?;
        new_container.spec.process_limit = self.info.process_limit();
        self.bound_volumes(&mut new_container.spec).await?;
        new_container.spec.has_places().map_err(Error::Place)?;
        let name = new_container.spec.name.clone();
        let (life, watched) = watch::channel(Life::BEGIN);
        let (commands, received) = mpsc::channel(QUEUE);
        let (told, started) = oneshot::channel();
        let given_up = Arc::new(Notify::new());
        let task = ContainerTask {
            engine: self.engine.clone(),
            life,
            commands: received,
            given_up: Arc::clone(&given_up),
        };
        self.spawn(task, new_container, told)?;
        let started = started.await.map_err(|_| Error::Closing)??;
        self.remove_owed();
        let container = Container {
            name,
            id: started.id,
            engine: self.engine.clone(),
            warnings: started.warnings,
            life: watched,
            commands,
            given_up,
            pid: OnceLock::new(),
            cpu_seconds: Mutex::default(),
        };
        Ok((container, started.attached))
    }

    /// Shadows each volume that the image declares with a bounded one: the engine would create it on the
    /// host's disk, without a limit.
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
        task: ContainerTask,
        new_container: NewContainer,
        told: oneshot::Sender<Result<super::task::Started, Error>>,
    ) -> Result<(), Error> {
        let remains = Remains::of(&new_container.spec);
        let names: Vec<String> = new_container
            .spec
            .names()
            .map(|name| name.as_str().to_owned())
            .collect();
        // Registered before creation, so that no sweep removes it as an orphan.
        let mut supervised = lock(&self.supervised);
        if let Some(name) = names.iter().find(|name| supervised.contains(*name)) {
            return Err(Error::NameTaken { name: name.clone() });
        }
        supervised.extend(names.iter().cloned());
        drop(supervised);
        let registration = Registration {
            remains,
            names,
            supervised: Arc::clone(&self.supervised),
            owed: Arc::clone(&self.owed),
            life: task.life.subscribe(),
        };
        self.spawn_task(async move {
            let given_up = task.given_up.clone();
            tokio::select! {
                () = task.run(new_container, told) => {}
                () = given_up.notified() => {}
            }
            drop(registration);
        });
        Ok(())
    }

    /// Retries failed removals, now that the engine responds.
    fn remove_owed(&self) {
        if !lock(&self.owed).is_empty() {
            let (owed, supervised) = (Arc::clone(&self.owed), Arc::clone(&self.supervised));
            self.spawn_task(remove(self.engine.clone(), owed, supervised));
        }
    }

    /// Spawns a task that [`Self::close`] waits for.
    pub(super) fn spawn_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Removes orphans of dead processes, and leftovers of this one.
    ///
    /// # Errors
    /// If the engine does not respond.
    pub async fn sweep(&self) -> Result<Swept, Error> {
        let is_orphan = |name: &str, owner: &Owner| {
            if *owner == self.owner {
                !lock(&self.supervised).contains(name)
            } else {
                owner.is_dead()
            }
        };
        orphans::sweep(&self.engine, &is_orphan).await
    }

    /// Waits for the removal of every container. Handles must be dropped first.
    ///
    /// If the engine stops responding, this does not wait: the remains are orphans of this process.
    pub async fn close(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        let all = async {
            while tasks.join_next().await.is_some() {}
            remove(
                self.engine.clone(),
                Arc::clone(&self.owed),
                Arc::clone(&self.supervised),
            )
            .await;
        };
        tokio::select! {
            () = all => {}
            () = self.engine.silence() => {}
        }
    }
}

/// The registration of a supervised container; dropping it removes the registration.
struct Registration {
    remains: Remains,
    names: Vec<String>,
    supervised: Arc<Mutex<HashSet<String>>>,
    owed: Arc<Mutex<Vec<Remains>>>,
    life: watch::Receiver<Life>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let life = self.life.borrow();
        let is_left = !matches!(life.state, State::Destroyed(_)) || !life.problems.is_empty();
        let mut owed = lock(&self.owed);
        if is_left && owed.len() < MOST_OWED {
            owed.push(self.remains.clone());
        }
        drop(owed);
        lock(&self.supervised).retain(|name| !self.names.contains(name));
    }
}

/// Retries failed removals until one fails again. Skips names that are in use again.
async fn remove(
    engine: ContainerRuntime,
    owed: Arc<Mutex<Vec<Remains>>>,
    supervised: Arc<Mutex<HashSet<String>>>,
) {
    let all = lock(&owed).clone();
    for remains in all {
        let is_supervised = lock(&supervised).contains(remains.container.as_str());
        if !is_supervised && !clean(&engine, &remains, Duration::ZERO).await.is_empty() {
            return;
        }
        lock(&owed).retain(|other| *other != remains);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Container {
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns its id in the engine.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Runs a call, and adds to its result what the container counts of all processes meanwhile.
    pub(super) async fn metered<E>(
        &self,
        call: impl Future<Output = Result<Finished, E>>,
    ) -> Result<Finished, E> {
        let mut most = None;
        let mut finished = tokio::select! {
            finished = call => finished?,
            never = self.watch_memory(&mut most) => match never {},
        };
        if let Some(used) = self.use_since_last().await {
            finished.add_counted(used.cpu_seconds, most.max(used.memory_peak_bytes));
        }
        Ok(finished)
    }

    /// Returns its usage; processor time is that since the last time. What calls used that ran at the same time is counted
    /// once, for the first that ends.
    pub(super) async fn use_since_last(&self) -> Option<Use> {
        let used = self.measure().await?;
        let mut last = lock(&self.cpu_seconds);
        let since_last = used.cpu_seconds.map(|now| {
            let since_last = (now - *last).max(0.0);
            *last = last.max(now);
            since_last
        });
        Some(Use {
            cpu_seconds: since_last,
            ..used
        })
    }

    /// Measures it; `None` if it has ended, or the engine does not respond in time.
    async fn measure(&self) -> Option<Use> {
        let pid = match self.pid.get() {
            Some(pid) => *pid,
            None => {
                let inspected = tokio::time::timeout(INSPECTING, self.engine.inspect(&self.id)).await;
                let pid = inspected.ok()?.ok()?.pid?;
                *self.pid.get_or_init(|| pid)
            }
        };
        match counters::read(&self.id, pid) {
            Some(used) => Some(used),
            None => self.engine.measure(&self.id).await,
        }
    }

    /// Keeps the most memory that was in use, as long as the engine does not: only some tell the peak. Never returns.
    async fn watch_memory(&self, most: &mut Option<u64>) -> Infallible {
        loop {
            tokio::time::sleep(MEASURE_EVERY).await;
            match self.measure().await {
                Some(used) if used.memory_peak_bytes.is_none() => *most = (*most).max(used.memory_bytes),
                Some(_) => return std::future::pending().await,
                None => {}
            }
        }
    }

    /// Returns warnings about its mounts.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the container's observed status.
    pub fn life(&self) -> Life {
        self.life.borrow().clone()
    }

    /// Freezes the container's processes. Its running time continues to count.
    ///
    /// # Errors
    /// If the container is not running.
    pub async fn pause(&self) -> Result<(), Error> {
        self.command(Command::Pause).await
    }

    /// Resumes the container's processes.
    ///
    /// # Errors
    /// If the container is not paused.
    pub async fn resume(&self) -> Result<(), Error> {
        self.command(Command::Resume).await
    }

    /// Runs a command in it until its end, or until `interrupted` ends the whole container: an engine cannot
    /// kill one process of a container.
    ///
    /// # Errors
    /// If the command could not be run.
    pub async fn run(
        &self,
        command: &[String],
        interrupted: impl Future<Output = ()>,
        keep: Bytes,
    ) -> Result<RunResult, Error> {
        let mut result = self.engine.run(&self.id, command, interrupted, keep).await?;
        result.container_ended = result.status.is_none();
        if result.container_ended {
            let _ = self.commands.send(Command::Stop).await;
        }
        Ok(result)
    }

    /// Ends the container and waits for its removal.
    pub async fn stop(&self) -> Life {
        let _ = self.commands.send(Command::Stop).await;
        self.ended().await
    }

    /// Kills the container's processes if the engine responds within `patience`; otherwise leaves that to the
    /// supervising task.
    pub(super) async fn kill(&self, patience: Duration) {
        let killed = tokio::time::timeout(patience, self.engine.kill(&self.id)).await;
        if !matches!(killed, Ok(Ok(()))) {
            let _ = self.commands.send(Command::Stop).await;
        }
    }

    /// Waits for its removal.
    pub async fn ended(&self) -> Life {
        let destroyed = |life: &Life| matches!(life.state, State::Destroyed(_));
        // The task exits only after the removal.
        let _ = self.life.clone().wait_for(destroyed).await;
        self.life()
    }

    /// Waits for its removal, or until the engine stops responding. The remains are orphans then.
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
        // Without a reply, the container no longer exists.
        answer.await.unwrap_or(Err(Error::Closing))
    }
}

#[cfg(test)]
mod tests;
