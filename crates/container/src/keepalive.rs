//! Reuses containers for the calls of a scope.
//!
//! [`Containers::call`] runs a request in the container of its scope, conversation and requirements, and
//! creates it if there is none. A container that has served its maximum of calls takes no more, and is
//! removed after the last one that runs in it; an idle one is removed after a timeout. One that has died is
//! replaced, with a warning in the result.

mod exec;
mod key;
mod place;
mod registry;
pub(super) mod reused;
mod serve;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ringfence_exec::local::{Connection, FencedRequest, ProgramEnd, execution_result};
use ringfence_exec::output::Captured;
use ringfence_exec::supervise::cancellation;
use ringfence_policy::{EngineKind, ExecutionResult, Outcome, Request, Scope};
use tokio::time::Instant;

use super::backend::Containers;
use super::error::Error;
use super::init::NotRun;
use super::outputs::Delivered;
use super::pool_key::Making;
use super::retry::Retry;
use super::run_error::RunError;
use super::sandboxes::info::SandboxInfo;
use super::spec::{Image, Name};
use super::supervisor::ContainerSupervisor;
use super::task::too_slow;
pub use key::KeptContainer;
use key::Key;
use place::ReusedContainer;
use reused::Seat;

/// Time for the creation of a container that does not count against the call's timeout.
const FREE: Duration = Duration::from_secs(5);

/// The time that a call has for its container to be created.
#[derive(Clone, Copy)]
struct CreationTimeout {
    since: Instant,
    length: Duration,
}

impl Containers {
    /// Runs a request in the reused container of its key.
    ///
    /// # Errors
    /// If the request could not be run at all. A failed program is not an error.
    pub async fn call(
        &self,
        wanted: KeptContainer<'_>,
        fenced: FencedRequest<'_>,
        mut connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        let FencedRequest { request, fence } = fenced;
        let KeptContainer { engine, keep_alive } = wanted;
        self.admit(engine, request, fence).await?;
        if keep_alive.max_calls == 1 {
            return self.call_alone(wanted, request, connection).await;
        }
        let since = Instant::now();
        let retry = Retry::of(&connection);
        let mut lost = false;
        loop {
            let key = Key::of(request, wanted, &self.settings)?;
            let patience = CreationTimeout {
                since,
                length: request.limits.timeout.as_duration() + FREE,
            };
            let Some((mut seat, warm)) = self.seated(key, patience, &connection).await? else {
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
            match (serve::serve(container, request, late, connection).await, &retry) {
                // Likewise one that died before it received the call; but only once, as a second death has
                // another cause.
                (Err(RunError::NotRun(NotRun::InitLost(_))), Some(retry)) if warm && !lost => {
                    lost = true;
                    seat.found_dead = true;
                    connection = retry.connection();
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
        wanted: KeptContainer<'_>,
        request: &Request,
        connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        let KeptContainer { engine, keep_alive } = wanted;
        let outputs = &self.settings.outputs;
        let output = outputs.open(&request.scope, keep_alive.session.as_ref());
        let output = output.map_err(RunError::Outputs)?;
        let image: Image = keep_alive.image.parse().map_err(RunError::Image)?;
        let making = |supervisor: &ContainerSupervisor| {
            Ok(Making {
                image: self.settings.pinned(supervisor.engine().kind(), &image)?,
                network: keep_alive.network,
                filter: place::filter(keep_alive.network),
            })
        };
        let delivered = Delivered {
            request,
            output_directory: Some(output.path().to_path_buf()),
        };
        let ran = self.run_once(engine, &making, delivered, connection);
        ran.await.map_err(|error| error.of_image(request, &image))
    }

    /// Reserves a container and waits until it is created. Returns `true` with it if it existed before;
    /// `None` if the call is cancelled meanwhile.
    async fn seated(
        &self,
        key: Key,
        patience: CreationTimeout,
        connection: &Connection,
    ) -> Result<Option<(Seat, bool)>, RunError> {
        let seat = self.reused.seat(key)?;
        let warm = seat.slot.container.initialized();
        tokio::select! {
            biased;
            made = self.container(&seat) => drop(made?),
            () = cancellation(connection.cancelled.clone()) => return Ok(None),
            () = tokio::time::sleep_until(patience.since + patience.length) => {
                return Err(too_slow(patience.length).into());
            }
        }
        Ok(Some((seat, warm)))
    }

    /// Returns the container of a reservation; creates it if necessary.
    async fn container<'a>(&self, seat: &'a Seat) -> Result<&'a ReusedContainer, RunError> {
        let make = async {
            let key = seat.shelf.key(seat.number).ok_or(Error::Closing)?;
            let supervisor = self.supervisor(key.engine).await?;
            place::make(&self.settings, supervisor, &key).await
        };
        seat.slot.container.get_or_try_init(|| make).await
    }

    /// Returns `true` if the scope has a reused container of this name.
    pub(super) fn keeps(&self, scope: &Scope, name: &Name) -> bool {
        self.reused.find(scope, name).is_some()
    }

    /// Removes a reused container of a scope, and kills the calls that run there. Returns `false` if there is
    /// none of this name. The next call's result carries a warning.
    pub(super) async fn end_kept(&self, scope: &Scope, name: &Name) -> bool {
        let slot = self.reused.find(scope, name);
        let container = slot.as_ref().and_then(|slot| slot.container.get());
        if let Some(container) = container {
            container.end().await;
        }
        container.is_some()
    }

    /// Lists the reused containers of a scope, or of all, each with its scope.
    pub(super) fn kept(&self, scope: Option<&Scope>) -> Vec<(Scope, SandboxInfo)> {
        self.reused.list(scope)
    }
}

/// Warning about a dead container, in which the caller may have left state.
const LOST: &str = "the container that was kept for these calls had ended, and this one ran in a new one: only files of the \
                    workspace and of /output are still there";

/// Builds the result of a call that was cancelled while it waited for its container.
fn cancelled_before_start(request: &Request, engine: EngineKind) -> ExecutionResult {
    let end = ProgramEnd {
        outcome: Outcome::Cancelled,
        exit_code: -9,
        stdout: Captured::default(),
        stderr: Captured::default(),
    };
    execution_result(engine.runtime(), request, end)
}
