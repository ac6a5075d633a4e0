//! Expiry and pauses of sandboxes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ringfence_policy::{Scope, Timeout};
use tokio::sync::oneshot;

use super::{Registry, Sandboxes};
use crate::error::Error;
use crate::events::{EXPIRED, LifeEvent, LifeEventType};
use crate::lock::lock;
use crate::sandbox::Sandbox;
use crate::spec::{OnExpiry, PausedProcesses, SandboxInfo, SandboxState};

/// Lifetime of a sandbox that asks for none.
pub(super) const LIFETIME: Timeout = Timeout::seconds(60 * 60);
/// Longest time until expiry: a day.
const MAX_LIFETIME: Timeout = Timeout::seconds(24 * 60 * 60);

impl Sandboxes {
    /// Sets the time until a sandbox expires, from now on.
    ///
    /// # Errors
    /// If there is none, or the time is too long.
    pub fn set_timeout(&self, scope: &Scope, name: &str, timeout: Timeout) -> Result<SandboxInfo, Error> {
        let expires = expiry(timeout)?;
        let sandbox = self.get(scope, name)?;
        sandbox.paused_by_expiry.store(false, Ordering::Release);
        sandbox.expire_at(expires);
        self.emit(
            scope,
            LifeEvent::new(LifeEventType::ExpiryChanged, &sandbox).until(expires),
        );
        Ok(sandbox.info())
    }

    /// Pauses a sandbox, which keeps its processes; see [`Sandbox::pause`].
    ///
    /// # Errors
    /// If there is none, or it cannot be paused.
    pub async fn pause(&self, scope: &Scope, name: &str) -> Result<SandboxInfo, Error> {
        self.pause_with(scope, name, PausedProcesses::Kept).await
    }

    /// Pauses a sandbox; see [`Sandbox::pause`].
    ///
    /// # Errors
    /// If there is none, or it cannot be paused.
    pub async fn pause_with(
        &self,
        scope: &Scope,
        name: &str,
        processes: PausedProcesses,
    ) -> Result<SandboxInfo, Error> {
        let sandbox = self.get(scope, name)?;
        let (state, scope) = (Arc::clone(&self.state), scope.clone());
        self.shielded(async move {
            if sandbox.pause(processes).await? {
                let event = LifeEvent::new(LifeEventType::Paused, &sandbox);
                lock(&state).readers.send(&scope, event);
            }
            Ok(sandbox.info())
        })
        .await
    }

    /// Resumes a sandbox; see [`Sandbox::resume`]. If its expiry had paused it, its lifetime restarts.
    ///
    /// # Errors
    /// If there is none.
    pub async fn resume(&self, scope: &Scope, name: &str) -> Result<SandboxInfo, Error> {
        let sandbox = self.get(scope, name)?;
        let (state, scope) = (Arc::clone(&self.state), scope.clone());
        self.shielded(async move {
            let has_resumed = sandbox.resume().await?;
            // Only now: a pause by the expiry may have been under way.
            if sandbox.paused_by_expiry.swap(false, Ordering::AcqRel) {
                sandbox.expire_at(expiry(sandbox.request().timeout.unwrap_or(LIFETIME))?);
            }
            if has_resumed {
                let event =
                    LifeEvent::new(LifeEventType::Resumed, &sandbox).until(*sandbox.expiry().borrow());
                lock(&state).readers.send(&scope, event);
            }
            Ok(sandbox.info())
        })
        .await
    }

    /// Runs a change of a sandbox to its end, also if the returned future is dropped: the engine of a container would finish it,
    /// and nobody would know.
    async fn shielded(
        &self,
        change: impl Future<Output = Result<SandboxInfo, Error>> + Send + 'static,
    ) -> Result<SandboxInfo, Error> {
        let (told, changed) = oneshot::channel();
        {
            let mut keepers = lock(&self.keepers);
            while keepers.try_join_next().is_some() {}
            keepers.spawn(async move { drop(told.send(change.await)) });
        }
        let lost = |_| Error::Broken("the server ends".to_owned());
        changed.await.map_err(lost)?
    }
}

impl Registry {
    /// Returns the time until the next sandbox of a scope ends by its expiry; `None` if all of them are paused then.
    pub(super) fn next_expiry(&self, scope: &Scope) -> Option<Duration> {
        let own = self.all.values().filter(|entry| entry.scope == *scope);
        let ending = own.filter_map(|entry| entry.sandbox.as_ref()).filter(|sandbox| {
            match sandbox.request().on_expiry {
                OnExpiry::Kill => true,
                OnExpiry::Pause => sandbox.paused_by_expiry.load(Ordering::Acquire),
            }
        });
        let ends = ending.map(|sandbox| *sandbox.expiry().borrow());
        Some(ends.min()?.duration_since(SystemTime::now()).unwrap_or_default())
    }
}

/// Resolves when a sandbox has expired and is to be ended: one that is to be paused first gets more time then.
pub(super) async fn final_expiry(sandbox: &Sandbox, scope: &Scope, state: &Mutex<Registry>) {
    loop {
        expired(sandbox).await;
        let pauses = match sandbox.request().on_expiry {
            OnExpiry::Kill => false,
            OnExpiry::Pause => sandbox.state() == SandboxState::Running,
        };
        if !pauses || sandbox.pause(sandbox.request().at_expiry).await.is_err() {
            return;
        }
        sandbox.paused_by_expiry.store(true, Ordering::Release);
        let expires = SystemTime::now() + MAX_LIFETIME.as_duration();
        sandbox.expire_at(expires);
        let event = LifeEvent::new(LifeEventType::Paused, sandbox).because(EXPIRED);
        lock(state).readers.send(scope, event.until(expires));
    }
}

/// Resolves at the expiry of a sandbox, which may change meanwhile.
async fn expired(sandbox: &Sandbox) {
    let mut expiry = sandbox.expiry();
    loop {
        let left = expiry.borrow_and_update().duration_since(SystemTime::now());
        let Ok(left) = left else { return };
        tokio::select! {
            // The clock of the machine may be set: looked at again at least once a minute.
            () = tokio::time::sleep(left.min(Duration::from_secs(60))) => {}
            changed = expiry.changed() => if changed.is_err() {
                return std::future::pending().await;
            },
        }
    }
}

pub(super) fn expiry(timeout: Timeout) -> Result<SystemTime, Error> {
    if timeout > MAX_LIFETIME {
        return Err(Error::Invalid(format!(
            "a sandbox lives for at most {MAX_LIFETIME}, and not {timeout}"
        )));
    }
    Ok(SystemTime::now() + timeout.as_duration())
}
