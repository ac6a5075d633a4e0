//! The interpreter that has imported the packages of a launcher's programs, which are forked from it.
//!
//! Packages are code of strangers, so it is a guest: a session without a network, in a cell of its own. Each fork
//! moves into another cell, and the launcher checks it from outside. Interpreters of other scopes or other packages have
//! other launchers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_jail::protocol::Guest as Origin;
use ringfence_policy::{Limits, Network, Request, Timeout};
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::super::guest::{self, Groups, Guest, Plan};
use super::super::job;
use super::super::launcher::{LauncherClient, Zygote};
use super::super::settings::{Settings, Warmth};
use super::{LauncherState, Terms, Text};

/// Idle time after which the interpreter is ended: it holds the packages in memory.
const IDLE: Duration = Duration::from_secs(600);
/// Timeout of each step of a fork.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Message that asks the interpreter to let itself be forked.
const FORK: &[u8] = b"F";
/// Answer of the interpreter once it has been forked.
const FORKED: u8 = 0;
/// Report of the interpreter once it has imported the packages.
const READY: u8 = b'R';
/// Report of the interpreter if it has other threads, which a fork would lose.
const THREADS: u8 = b'T';
/// Report of a fork in whose workspace modules have names of imported ones.
const SHADOWED: u8 = b'S';
/// Capacity of the queue of calls; beyond it programs import the packages themselves.
const MAX_QUEUED: usize = 64;

/// The handle of a launcher's interpreter with packages.
#[derive(Debug)]
pub(super) struct Preloaded {
    shared: Arc<Shared>,
    calls: mpsc::Sender<Call>,
    closing: watch::Sender<bool>,
    task: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Shared(Mutex<Facts>);

#[derive(Debug, Default)]
struct Facts {
    state: State,
    /// Limits of the last program that had to import its packages itself.
    wanted: Option<Limits>,
}

#[derive(Debug, Clone, Default, PartialEq)]
enum State {
    /// No interpreter is started. The next program that could have used one starts it.
    #[default]
    Absent,
    Starting,
    Ready {
        /// Id of the interpreter at the launcher.
        id: u64,
        limits: Limits,
    },
    /// Starting the interpreter failed. It is not tried again.
    Failed(&'static str),
}

#[derive(Debug)]
enum Call {
    /// Starts the interpreter, with the limits of the plan.
    Start(Box<Plan>, Limits),
    /// Forks the interpreter. The answer is `None` if that is impossible.
    Fork(Box<Plan>, oneshot::Sender<Option<Guest>>),
}

/// The conditions under which an interpreter is replaced.
#[derive(Debug, Clone, Copy)]
struct Lifetime {
    /// Time limit for the imports.
    patience: Timeout,
    forks: u64,
    age: Duration,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        self.lock().state = state;
    }
}

impl Facts {
    /// Returns the number of the interpreter if programs with these limits can be forked from it. Otherwise one is wanted
    /// from which they can.
    fn usable(&mut self, limits: &Limits) -> Option<u64> {
        let mut wanted = *limits;
        match &self.state {
            // A fork's rlimits, which follow from these, cannot be higher.
            State::Ready { id, limits: own } if limits.disk <= own.disk && limits.pids <= own.pids => {
                return Some(*id);
            }
            State::Ready { limits: own, .. } => {
                (wanted.disk, wanted.pids) = (limits.disk.max(own.disk), limits.pids.max(own.pids));
            }
            State::Absent => {}
            State::Starting | State::Failed(_) => return None,
        }
        self.wanted = Some(wanted);
        None
    }
}

impl LauncherState {
    /// Starts the task of the interpreter with packages. It starts none before a program could have used it.
    pub(in super::super) fn keep_preloaded(&self, settings: &Settings) {
        let Warmth::Pool {
            renew_after,
            renew_every,
            ..
        } = settings.warmth
        else {
            return;
        };
        // Nothing else bounds its memory.
        if self.packages.is_none() || self.groups.is_none() || !self.has_cells() {
            return;
        }
        let lifetime = Lifetime {
            patience: settings.preload_timeout,
            forks: renew_after,
            age: renew_every,
        };
        let shared = Arc::new(Shared::default());
        let (calls, called) = mpsc::channel(MAX_QUEUED);
        let (closing, closed) = watch::channel(false);
        let keeper = Keeper {
            launcher: Arc::clone(&self.launcher),
            groups: self.groups.clone(),
            shared: Arc::clone(&shared),
            closed,
            lifetime,
            ended: JoinSet::new(),
        };
        let mut task = JoinSet::new();
        task.spawn(keeper.keep(called));
        let _ = self.preloaded.set(Preloaded {
            shared,
            calls,
            closing,
            task,
        });
    }

    /// Returns an interpreter that has imported the packages, for a program or a session that can use one; otherwise
    /// `None`, and one is started for the next.
    pub(super) async fn preloaded_python(
        &self,
        request: &Request,
        job: impl FnOnce() -> Vec<u8>,
    ) -> Option<Guest> {
        let preloaded = self.preloaded.get()?;
        // It has no network and cannot be given one. Its numerical libraries have one thread, to be forked.
        if request.network != Network::None || request.limits.cpus.get() > 1.0 {
            return None;
        }
        let of = preloaded.shared.lock().usable(&request.limits)?;
        let plan = self.plan(
            Origin::ForkOf { of },
            Text::Job(Vec::new()),
            Terms::of(request),
            None,
        );
        let (reply, replied) = oneshot::channel();
        preloaded.calls.try_send(Call::Fork(Box::new(plan), reply)).ok()?;
        let mut guest = replied.await.ok().flatten()?;
        // Only now: the launcher has looked at it, and a program that had run before could have ended already.
        guest.job = job();
        Some(guest)
    }

    /// Starts the interpreter with packages, if a program would have used it.
    pub(super) fn preload_packages(&self) {
        let Some(preloaded) = self.preloaded.get() else {
            return;
        };
        let wanted = preloaded.shared.lock().wanted.take();
        let Some(limits) = wanted else { return };
        let terms = Terms {
            limits: &limits,
            below: None,
            has_network: false,
            initial_files: None,
        };
        // Packages write nothing to a workspace while no program runs there. The programs have it.
        let dirs = self.dirs_in(None);
        let workspace = self.extra.workspace.as_ref().map(|_| dirs.workspace(&self.extra));
        let origin = Origin::Session {
            hidden: workspace.into_iter().collect(),
        };
        let plan = self.plan(origin, Text::Job(job::PRELOADED.to_vec()), terms, None);
        // A full queue means that there is one.
        let _ = preloaded.calls.try_send(Call::Start(Box::new(plan), limits));
    }

    /// Returns the permanent reason for which programs have to import their packages themselves, if there is
    /// one.
    pub(super) fn preload_failure(&self) -> Option<&'static str> {
        match self.preloaded.get()?.shared.lock().state {
            State::Failed(reason) => Some(reason),
            State::Absent | State::Starting | State::Ready { .. } => None,
        }
    }
}

impl Preloaded {
    /// Ends the interpreter, and waits for that.
    pub(super) async fn close(mut self) {
        self.closing.send_replace(true);
        drop(self.calls);
        while self.task.join_next().await.is_some() {}
    }
}

/// The task that owns an interpreter with packages.
#[derive(Debug)]
struct Keeper {
    launcher: Arc<LauncherClient>,
    groups: Option<Arc<Groups>>,
    shared: Arc<Shared>,
    closed: watch::Receiver<bool>,
    lifetime: Lifetime,
    /// Interpreters that are being ended. Each goes with the last of its forks.
    ended: JoinSet<()>,
}

/// An interpreter that has imported the packages.
#[derive(Debug)]
struct Interpreter {
    guest: Guest,
    forks: u64,
    born: Instant,
    used: Instant,
}

impl Keeper {
    async fn keep(mut self, mut calls: mpsc::Receiver<Call>) {
        let mut current: Option<Interpreter> = None;
        loop {
            let due = current.as_ref().map(|one| self.due(one));
            let call = tokio::select! {
                call = calls.recv() => call,
                () = until(due) => {
                    self.end(&mut current, State::Absent);
                    continue;
                }
            };
            while self.ended.try_join_next().is_some() {}
            match call {
                None => break,
                Some(Call::Start(plan, limits)) => {
                    self.end(&mut current, State::Absent);
                    current = self.start(*plan, limits).await;
                }
                Some(Call::Fork(plan, reply)) => {
                    let forked = match &mut current {
                        Some(interpreter) => self.fork(interpreter, *plan).await,
                        None => Ok(None),
                    };
                    let guest = forked.unwrap_or_else(|reason| {
                        self.end(&mut current, State::Failed(reason));
                        None
                    });
                    if let Err(Some(guest)) = reply.send(guest) {
                        // Whoever asked has gone.
                        self.ended.spawn(async move { drop(guest.close().await) });
                    }
                }
            }
        }
        self.end(&mut current, State::Absent);
        while self.ended.join_next().await.is_some() {}
    }

    /// Returns the time at which an interpreter is ended: when it is idle or old, or has too many forks that
    /// share its memory layout.
    fn due(&self, interpreter: &Interpreter) -> Instant {
        let Lifetime { forks, age, .. } = self.lifetime;
        match forks > 0 && interpreter.forks >= forks {
            true => interpreter.born,
            false => (interpreter.used + IDLE).min(interpreter.born + age),
        }
    }

    fn end(&mut self, current: &mut Option<Interpreter>, state: State) {
        if let Some(interpreter) = current.take() {
            self.ended
                .spawn(async move { drop(interpreter.guest.close().await) });
            self.shared.set(state);
        }
    }

    /// Starts an interpreter, and waits until it has imported the packages.
    async fn start(&mut self, plan: Plan, limits: Limits) -> Option<Interpreter> {
        if self.shared.lock().state != State::Absent {
            return None;
        }
        self.shared.set(State::Starting);
        let mut zygote = self.launcher.zygote();
        let settled = zygote.wait_for(|state| *state != Zygote::Cold);
        if !matches!(timeout(TIMEOUT, settled).await, Ok(Ok(state)) if *state == Zygote::Warm) {
            self.shared.set(State::Absent);
            return None;
        }
        let Ok(mut guest) = guest::start(&self.launcher, self.groups.as_deref(), plan).await else {
            // Programs start in the same way, and say why.
            self.shared.set(State::Absent);
            return None;
        };
        let mut closed = self.closed.clone();
        let imported = tokio::select! {
            imported = timeout(self.lifetime.patience.as_duration(), imported(&mut guest)) => imported,
            _ = closed.wait_for(|closed| *closed) => Ok(Ok(())),
        };
        let failure = match imported {
            Ok(Ok(())) => {
                let id = guest.id;
                self.shared.set(State::Ready { id, limits });
                let now = Instant::now();
                return Some(Interpreter {
                    guest,
                    forks: 0,
                    born: now,
                    used: now,
                });
            }
            Ok(Err(reason)) => reason,
            Err(_) => "importing them takes too long",
        };
        self.shared.set(State::Failed(failure));
        self.ended.spawn(async move { drop(guest.close().await) });
        None
    }

    /// Forks an interpreter; `None` if that is impossible now.
    ///
    /// # Errors
    /// If it is of no more use.
    async fn fork(&self, interpreter: &mut Interpreter, plan: Plan) -> Result<Option<Guest>, &'static str> {
        let begun = guest::begin(&self.launcher, self.groups.as_deref(), plan).await;
        // The launcher is about to die, or there are no control groups left: programs say why.
        let Ok(begun) = begun else { return Ok(None) };
        let forked = begun.forked_by(&mut interpreter.guest, FORK, TIMEOUT).await;
        let answer = timeout(TIMEOUT, interpreter.guest.control.read_u8()).await;
        (interpreter.forks, interpreter.used) = (interpreter.forks + 1, Instant::now());
        match (forked, answer) {
            (Ok(mut guest), Ok(Ok(FORKED))) => match timeout(TIMEOUT, guest.greeted()).await {
                Ok(Ok(READY)) => Ok(Some(guest)),
                // Its programs import those of the workspace.
                Ok(Ok(SHADOWED)) => {
                    drop(guest.close().await);
                    Ok(None)
                }
                _ => {
                    drop(guest.close().await);
                    Err("a copy of their interpreter does not answer")
                }
            },
            (Ok(guest), _) => {
                drop(guest.close().await);
                Err("their interpreter does not answer")
            }
            (Err(_), _) => Err("their interpreter cannot be copied"),
        }
    }
}

/// Waits until an interpreter has imported the packages.
async fn imported(guest: &mut Guest) -> Result<(), &'static str> {
    const GONE: &str = "their interpreter ends while it imports them";
    guest.greeted().await.map_err(|_| GONE)?;
    match guest.control.read_u8().await {
        Ok(READY) => Ok(()),
        Ok(THREADS) => Err("they leave threads running, which no copy of an interpreter would have"),
        Ok(_) | Err(_) => Err(GONE),
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
