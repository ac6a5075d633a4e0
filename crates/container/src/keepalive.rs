//! Reuses containers for the calls of a scope.
//!
//! [`Containers::call`] runs a request in the container of its scope, conversation and requirements, and
//! creates it if there is none. A container that has served its maximum of calls takes no more, and is
//! removed after the last one that runs in it; an idle one is removed after a timeout. One that has died is
//! replaced, with a warning in the result.

mod exec;
mod place;
mod registry;
mod serve;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_exec::local::{Chunk, Connection, Fence, cancellation, told};
use ringfence_exec::output::Capture;
use ringfence_policy::{
    self as policy, EngineKind, ExecutionResult, KeepAlive, Limits, Mount, Outcome, Request, Scope, Trusted,
};
use tokio::sync::{Notify, OnceCell, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::agent::NotRun;
use super::backend::Settings;
use super::layout;
use super::manager::Manager;
use super::pool_key::Making;
use super::sandboxes::SandboxInfo;
use super::spec::{Bind, Image, Name};
use super::task::too_slow;
use super::{Containers, Error, RunError};
use place::Container;
use registry::{Left, Number, Registry, Rule};

/// Limit of reused containers of a process.
const MOST: usize = 16;
/// Time for the creation of a container that does not count against the call's timeout.
const FREE: Duration = Duration::from_secs(5);

/// Registry key: calls with equal keys share a container.
#[derive(Debug, Clone, PartialEq)]
struct Key {
    scope: Scope,
    engine: EngineKind,
    keep_alive: KeepAlive,
    /// Egress policy of its calls, if hosts are allowed: a container has one policy.
    reach: policy::Network,
    workspace: Option<std::path::PathBuf>,
    mounts: Vec<Mount>,
    trusted: Trusted,
    /// Bind mounts, of protected entries and trusted paths too, with the identities of their sources: a container
    /// keeps the files that were there when it was created.
    shown: Vec<Bind>,
    /// Resource limits, without the timeout and the output limit, which are per call.
    limits: Limits,
}

/// The reused containers of both engines.
#[derive(Debug)]
pub(super) struct Kept {
    shelf: Arc<Shelf>,
    reaper: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Shelf {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    book: Registry<Key, Arc<Slot>>,
    closed: bool,
}

/// A registry entry, whose container the first call creates.
#[derive(Debug)]
struct Slot {
    container: OnceCell<Container>,
    since: Instant,
}

/// The connection of a call's retry. Impossible with input or a bridge, which the first attempt consumes.
#[derive(Debug)]
pub(super) struct Again {
    output: Option<mpsc::Sender<Chunk>>,
    cancelled: Option<watch::Receiver<bool>>,
}

/// A call's reservation in a container; released on drop.
#[derive(Debug)]
struct Seat {
    shelf: Arc<Shelf>,
    number: Number,
    slot: Arc<Slot>,
    /// Set if the call found the container dead.
    found_dead: bool,
}

impl Containers {
    /// Runs a request in the reused container of its key.
    ///
    /// # Errors
    /// If the request could not be run at all. A failed program is no error.
    pub async fn call(
        &self,
        (engine, keep_alive): (EngineKind, &KeepAlive),
        (request, fence): (&Request, Fence),
        mut connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        self.admit(engine, request, fence).await?;
        let wanted = (engine, keep_alive);
        if keep_alive.max_calls == 1 {
            return self.call_alone(wanted, request, connection).await;
        }
        let since = Instant::now();
        let again = Again::of(&connection);
        let mut lost = false;
        loop {
            let patience = (since, request.limits.timeout.as_duration() + FREE);
            let Some((mut seat, warm)) = self.seated((wanted, request), patience, &connection).await? else {
                return Ok(cancelled_before_start(request, engine));
            };
            let container = self.container(&seat).await?;
            // A container that has died unnoticed is replaced.
            if warm && !container.is_alive() {
                lost = true;
                seat.found_dead = true;
                continue;
            }
            let late = since.elapsed().saturating_sub(FREE);
            match (serve::serve(container, request, late, connection).await, &again) {
                // Likewise one that died before it received the call; but only once, as a second death has
                // another cause.
                (Err(RunError::NotRun(NotRun::InitLost(_))), Some(again)) if warm && !lost => {
                    lost = true;
                    seat.found_dead = true;
                    connection = again.connection();
                }
                (served, _) => {
                    let mut result = served?;
                    result.meta.warm = warm;
                    result.meta.warnings.extend(lost.then(|| LOST.to_owned()));
                    result.duration = since.elapsed().as_secs_f64();
                    return Ok(result);
                }
            }
        }
    }

    /// Runs a request in a container that serves nothing else.
    async fn call_alone(
        &self,
        (engine, keep_alive): (EngineKind, &KeepAlive),
        request: &Request,
        connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        let outputs = &self.settings.outputs;
        let output = outputs.open(&request.scope, keep_alive.session.as_ref());
        let output = output.map_err(RunError::Outputs)?;
        let image: Image = keep_alive.image.parse().map_err(RunError::Image)?;
        let making = |manager: &Manager| {
            Ok(Making {
                image: self.pinned(manager.engine().kind(), &image)?,
                network: keep_alive.network,
                filter: place::filter(keep_alive.network),
            })
        };
        let directory = Some(output.path().to_path_buf());
        let ran = self.run_once((engine, &making), request, directory, connection);
        ran.await.map_err(|error| error.of_image(request, &image))
    }

    /// Reserves a container and waits until it is created. Returns `true` with it if it existed before;
    /// `None` if the call is cancelled meanwhile.
    async fn seated(
        &self,
        (wanted, request): ((EngineKind, &KeepAlive), &Request),
        (since, patience): (Instant, Duration),
        connection: &Connection,
    ) -> Result<Option<(Seat, bool)>, RunError> {
        let seat = self.kept.seat(Key::of(request, wanted, &self.settings)?)?;
        let warm = seat.slot.container.initialized();
        tokio::select! {
            biased;
            made = self.container(&seat) => drop(made?),
            () = cancellation(connection.cancelled.clone()) => return Ok(None),
            () = tokio::time::sleep_until(since + patience) => return Err(too_slow(patience).into()),
        }
        Ok(Some((seat, warm)))
    }

    /// Returns the container of a reservation; creates it if necessary.
    async fn container<'a>(&self, seat: &'a Seat) -> Result<&'a Container, RunError> {
        let make = async {
            let key = seat.shelf.key(seat.number).ok_or(Error::Closing)?;
            let manager = self.manager(key.engine).await?;
            place::make(self, manager, &key).await
        };
        seat.slot.container.get_or_try_init(|| make).await
    }

    /// Returns `true` if the scope has a reused container of this name.
    pub(super) fn keeps(&self, scope: &Scope, name: &Name) -> bool {
        self.kept.find(scope, name).is_some()
    }

    /// Removes a reused container of a scope, and kills the calls that run there. Returns `false` if there is
    /// none of this name. The next call's result carries a warning.
    pub(super) async fn end_kept(&self, scope: &Scope, name: &Name) -> bool {
        let slot = self.kept.find(scope, name);
        let container = slot.as_ref().and_then(|slot| slot.container.get());
        if let Some(container) = container {
            container.end().await;
        }
        container.is_some()
    }

    /// Lists the reused containers of a scope.
    pub(super) fn kept(&self, scope: &Scope) -> Vec<SandboxInfo> {
        self.kept.list(scope)
    }
}

impl Key {
    fn of(
        request: &Request,
        (engine, keep_alive): (EngineKind, &KeepAlive),
        settings: &Settings,
    ) -> Result<Self, RunError> {
        let asked = (request.workspace.as_deref(), request.mounts.as_slice());
        let shown = layout::shown(asked, &request.trusted, settings)?;
        Ok(Self {
            scope: request.scope.clone(),
            engine,
            keep_alive: keep_alive.clone(),
            reach: request.network.clone(),
            workspace: request.workspace.clone(),
            mounts: request.mounts.clone(),
            trusted: request.trusted.clone(),
            shown,
            limits: Limits {
                timeout: Limits::DEFAULT.timeout,
                max_output: Limits::DEFAULT.max_output,
                ..request.limits
            },
        })
    }

    fn rule(&self) -> Rule {
        Rule {
            max_calls: self.keep_alive.max_calls,
            idle: Duration::from_millis(self.keep_alive.idle_ms),
        }
    }
}

impl Kept {
    pub(super) fn new() -> Self {
        let state = State {
            book: Registry::new(MOST),
            closed: false,
        };
        Self {
            shelf: Arc::new(Shelf {
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
            reaper: Mutex::default(),
        }
    }

    /// Reserves a container for a call with this key.
    fn seat(&self, key: Key) -> Result<Seat, RunError> {
        let mut state = self.shelf.state();
        if state.closed {
            return Err(Error::Closing.into());
        }
        let rule = key.rule();
        let now = Instant::now();
        let slot = || {
            Arc::new(Slot {
                container: OnceCell::new(),
                since: now,
            })
        };
        let taken = state.book.take(key, rule, now, slot);
        let taken = taken.map_err(|_| RunError::KeptFull(MOST))?;
        drop(state);
        drop(taken.evicted);
        self.reap();
        Ok(Seat {
            shelf: Arc::clone(&self.shelf),
            number: taken.number,
            slot: taken.what,
            found_dead: false,
        })
    }

    /// Starts the task that removes idle containers, if necessary.
    fn reap(&self) {
        let mut reaper = self.reaper.lock().unwrap_or_else(PoisonError::into_inner);
        if reaper.is_empty() {
            let shelf = Arc::clone(&self.shelf);
            reaper.spawn(async move { shelf.reap().await });
        }
    }

    /// Returns the live container of this name.
    fn find(&self, scope: &Scope, name: &Name) -> Option<Arc<Slot>> {
        let is_it = |slot: &Slot| {
            let container = slot.container.get();
            container.is_some_and(|container| container.is_alive() && container.sandbox().name() == name)
        };
        let state = self.shelf.state();
        let mut own = state.book.iter().filter(|(key, ..)| key.scope == *scope);
        own.find_map(|(_, slot, ..)| is_it(slot).then(|| Arc::clone(slot)))
    }

    fn list(&self, scope: &Scope) -> Vec<SandboxInfo> {
        let (state, now) = (self.shelf.state(), Instant::now());
        let own = state.book.iter().filter(|(key, ..)| key.scope == *scope);
        own.filter_map(|(key, slot, calls, due)| {
            let container = slot.container.get().filter(|container| container.is_alive())?;
            let idle = Duration::from_millis(key.keep_alive.idle_ms);
            Some(SandboxInfo {
                name: container.sandbox().name().as_str().to_owned(),
                engine: key.engine,
                template: format!("kept, {calls} call{}", if calls == 1 { "" } else { "s" }),
                state: container.sandbox().life().state.to_string(),
                age_seconds: now.saturating_duration_since(slot.since).as_secs_f64(),
                left_seconds: due
                    .map_or(idle, |due| due.saturating_duration_since(now))
                    .as_secs_f64(),
            })
        })
        .collect()
    }

    /// Ends all containers with what runs in them. Their managers' shutdown waits for the removal.
    pub(super) async fn close(&self) {
        let mut reaper = {
            let mut reaper = self.reaper.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *reaper)
        };
        reaper.shutdown().await;
        let slots = {
            let mut state = self.shelf.state();
            state.closed = true;
            state.book.clear()
        };
        for container in slots.iter().filter_map(|slot| slot.container.get()) {
            container.end().await;
        }
    }
}

impl Shelf {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, number: Number) -> Option<Key> {
        self.state().book.key(number).cloned()
    }

    /// Removes idle containers when they are due. Never returns.
    async fn reap(&self) {
        loop {
            let due = self.state().book.next_due();
            let changed = self.changed.notified();
            match due {
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
            let overdue = self.state().book.overdue(Instant::now());
            drop(overdue);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let condition = match self.slot.container.get() {
            None => Left::Unmade,
            Some(_) if self.found_dead => Left::Dead,
            // A container that died during its call is found by the next one, which warns.
            Some(_) => Left::Well,
        };
        let gone = self
            .shelf
            .state()
            .book
            .left(self.number, condition, Instant::now());
        drop(gone);
        self.shelf.changed.notify_one();
    }
}

impl Again {
    /// Prepares a retry, if one is possible.
    pub(super) fn of(connection: &Connection) -> Option<Self> {
        let Connection {
            stdin,
            output,
            cancelled,
            bridge,
        } = connection;
        (stdin.is_none() && bridge.is_none()).then(|| Self {
            output: output.clone(),
            cancelled: cancelled.clone(),
        })
    }

    pub(super) fn connection(&self) -> Connection {
        Connection {
            output: self.output.clone(),
            cancelled: self.cancelled.clone(),
            ..Connection::none()
        }
    }
}

/// Warning about a dead container, in which the caller may have left state.
const LOST: &str = "the container that was kept for these calls had ended, and this one ran in a new one: only files of the \
                    workspace and of /output are still there";

/// Builds the result of a call that was cancelled while it waited for its container.
fn cancelled_before_start(request: &Request, engine: EngineKind) -> ExecutionResult {
    let nothing = || Capture::new(request.limits.max_output).finish();
    told(
        (engine.runtime(), request),
        (nothing(), nothing()),
        (Outcome::Cancelled, -9),
    )
}
