//! Pauses: a freezer stops the processes, and clocks stop meanwhile.

use std::time::Duration;

use tokio::sync::{Mutex, RwLock, RwLockReadGuard, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::error::Error;
use super::place::Freezer;
use super::spec::SandboxState;

/// Time that a pause waits for programs that are being started. A program inside can hold that up, but not prevent it.
const STARTING: Duration = Duration::from_secs(2);

/// The pauses of one sandbox.
#[derive(Debug)]
pub(crate) struct Pauses {
    freezer: Freezer,
    state: watch::Sender<SandboxState>,
    /// Held while the sandbox is being paused or resumed.
    turn: Mutex<()>,
    /// Read while something is being started, which a freeze must not cut in two.
    starting: RwLock<()>,
}

impl Pauses {
    pub(crate) fn new(freezer: Freezer) -> Self {
        Self {
            freezer,
            state: watch::Sender::new(SandboxState::Running),
            turn: Mutex::default(),
            starting: RwLock::default(),
        }
    }

    pub(crate) fn state(&self) -> SandboxState {
        *self.state.borrow()
    }

    /// Returns the state, which changes with it.
    pub(crate) fn watch(&self) -> watch::Receiver<SandboxState> {
        self.state.subscribe()
    }

    /// Freezes the processes that there are after `first`, during which nothing is started. `false` if the sandbox was paused.
    pub(crate) async fn pause(&self, first: impl Future<Output = Result<(), Error>>) -> Result<bool, Error> {
        let _turn = self.turn.lock().await;
        if self.state() == SandboxState::Paused {
            return Ok(false);
        }
        self.freezer.check()?;
        let starting = timeout(STARTING, self.starting.write()).await;
        let pausing = RunningOnDrop(Some(&self.state));
        self.state.send_replace(SandboxState::Paused);
        drop(starting);
        first.await?;
        self.freezer.pause().await?;
        pausing.done();
        Ok(true)
    }

    /// Thaws the processes. `false` if the sandbox ran.
    pub(crate) async fn resume(&self) -> Result<bool, Error> {
        let _turn = self.turn.lock().await;
        let is_paused = self.state() == SandboxState::Paused;
        if is_paused {
            self.freezer.resume().await?;
            self.state.send_replace(SandboxState::Running);
        }
        Ok(is_paused)
    }

    /// Keeps a pause from beginning before the answer is dropped, or a time has passed.
    pub(crate) async fn starting(&self) -> RwLockReadGuard<'_, ()> {
        self.starting.read().await
    }

    /// Returns a clock that stops while the sandbox is paused.
    pub(crate) fn clock(&self) -> Clock {
        Clock(self.state.subscribe())
    }
}

/// A pause that ends unless it is finished.
struct RunningOnDrop<'a>(Option<&'a watch::Sender<SandboxState>>);

impl RunningOnDrop<'_> {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for RunningOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.0 {
            state.send_replace(SandboxState::Running);
        }
    }
}

/// A clock that stops while a sandbox is paused.
#[derive(Debug, Clone)]
pub(crate) struct Clock(watch::Receiver<SandboxState>);

impl Clock {
    /// Returns an alarm after a time of this clock.
    pub(crate) fn alarm(&self, after: Duration) -> Alarm {
        Alarm {
            state: self.0.clone(),
            due: Instant::now() + after,
            paused: None,
        }
    }

    /// Awaits a future for at most this time of this clock; `None` on timeout.
    pub(crate) async fn timeout<T>(&self, after: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut limit = self.alarm(after);
        tokio::select! {
            resolved = future => Some(resolved),
            () = limit.reached() => None,
        }
    }
}

/// A time limit that does not run while a sandbox is paused.
#[derive(Debug)]
pub(crate) struct Alarm {
    state: watch::Receiver<SandboxState>,
    due: Instant,
    /// Beginning of the present pause.
    paused: Option<Instant>,
}

impl Alarm {
    /// Resets the alarm.
    pub(crate) fn set(&mut self, after: Duration) {
        self.due = Instant::now() + after;
        self.paused = None;
    }

    /// Resolves when it is reached. Cancel safe.
    pub(crate) async fn reached(&mut self) {
        loop {
            let is_paused = *self.state.borrow_and_update() == SandboxState::Paused;
            match (is_paused, self.paused) {
                (true, None) => self.paused = Some(Instant::now()),
                (false, Some(since)) => {
                    self.due += since.elapsed();
                    self.paused = None;
                }
                (true, Some(_)) | (false, None) => {}
            }
            let changed = match is_paused {
                true => self.state.changed().await,
                false => tokio::select! {
                    () = sleep_until(self.due) => return,
                    changed = self.state.changed() => changed,
                },
            };
            // The sandbox is gone.
            if changed.is_err() {
                return sleep_until(self.due).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_alarm_stands_still_in_a_pause() {
        let state = watch::Sender::new(SandboxState::Running);
        let seconds = Duration::from_secs;
        let mut alarm = Clock(state.subscribe()).alarm(seconds(10));
        let began = Instant::now();
        let pausing = async {
            tokio::time::advance(seconds(4)).await;
            state.send_replace(SandboxState::Paused);
            // The alarm notices.
            tokio::task::yield_now().await;
            tokio::time::advance(seconds(1000)).await;
            state.send_replace(SandboxState::Running);
        };
        tokio::join!(alarm.reached(), pausing);
        assert_eq!(began.elapsed().as_secs(), 1010);
        // Also if nobody waits when it goes on.
        alarm.set(seconds(10));
        state.send_replace(SandboxState::Paused);
        assert!(timeout(seconds(60), alarm.reached()).await.is_err());
        state.send_replace(SandboxState::Running);
        let began = Instant::now();
        alarm.reached().await;
        assert_eq!(began.elapsed().as_secs(), 10);
    }
}
