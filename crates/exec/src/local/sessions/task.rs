//! The task that owns a session: runs its evaluations one at a time, enforces its idle time, lifetime and
//! disk limit.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_policy::ExecutionResult;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::super::connection::Connection;
use super::super::error::Error as LocalError;
use super::super::run;
use super::super::session_error::Error;
use super::super::settings::SessionSettings;
use super::ending::{Key, Reason};
use super::evaluation::{self, Evaluable, GRACE, Stops};
use super::evaluation_call::EvaluationCall;
use super::forking;
use super::interpreter::{Evaluations, Interpreter};
use super::live::{Call, Live, Slot, State, Unborn};
use super::registry::SharedRegistry;
use crate::supervise::cancellation;

/// Minimum interval for measuring a host directory while no evaluation runs.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// The state of a session's task.
pub(super) struct SessionTask {
    pub(super) key: Key,
    pub(super) live: Arc<Live>,
    pub(super) calls: mpsc::Receiver<Call>,
    pub(super) registry: SharedRegistry,
    pub(super) settings: SessionSettings,
    /// Limits the number of concurrent runs.
    pub(super) gate: Arc<Semaphore>,
}

impl SessionTask {
    /// Runs the session to its end, once it has its interpreter.
    pub(super) async fn keep(mut self, born: oneshot::Receiver<Interpreter>) {
        let Ok(mut interpreter) = born.await else {
            return self.leave(Reason::Removed);
        };
        self.live.facts().memory = interpreter.guest.group.as_ref().map(|group| group.memory_gauge());
        let reason = self.supervise(&mut interpreter).await;
        self.leave(reason);
        // Remaining callers retry with a new session, and need not wait for the end of this one.
        while self.calls.try_recv().is_ok() {}
        interpreter.guest.end().await;
        // Callers of `gone` need not wait for the forks, which live in cells within this session's cell.
        drop(self.calls);
        interpreter.close().await;
    }

    async fn supervise(&mut self, interpreter: &mut Interpreter) -> Reason {
        loop {
            let (due, over) = self.due();
            let (output, disk) = (&interpreter.guest.output, interpreter.made_for.limits.disk.0);
            let call = tokio::select! {
                biased;
                () = cancellation(Some(self.live.stopped())) => return Reason::Removed,
                exit = &mut interpreter.guest.exited => Err(exit.ok()),
                () = run::disk_limit_exceeded(output, disk, |took| MEASURE_EVERY.max(took * 20)) => return Reason::Disk,
                () = babble(&interpreter.guest.control) => return Reason::Broken,
                () = tokio::time::sleep_until(due.into()) => return over,
                call = self.calls.recv() => Ok(call),
            };
            let call = match call {
                Ok(call) => call,
                Err(exit) => return interpreter.ended(exit),
            };
            let ended = match call {
                Some(Call::Evaluate(slot, reply)) => self.evaluate(interpreter, slot, reply).await,
                Some(Call::Fork(slot, reply)) => match slot.take() {
                    Some(unborn) => self.fork(interpreter, unborn, reply).await,
                    None => None,
                },
                None => Some(Reason::Removed),
            };
            if let Some(reason) = ended {
                return reason;
            }
        }
    }

    /// Returns the time at which the session's idle time or lifetime will be over.
    fn due(&self) -> (Instant, Reason) {
        let settings = self.settings;
        let (idle, lifetime) = (settings.idle.as_duration(), settings.lifetime.as_duration());
        let since = match self.live.facts().state {
            State::Idle(since) => since,
            State::Evaluating => Instant::now(),
        };
        let (unused, old) = (since + idle, self.live.created() + lifetime);
        if unused < old {
            (unused, Reason::Idle(idle))
        } else {
            (old, Reason::Old(lifetime))
        }
    }

    /// Evaluates the work in the slot. Returns the reason if the session ended.
    async fn evaluate(
        &mut self,
        interpreter: &mut Interpreter,
        slot: Slot<EvaluationCall>,
        mut reply: oneshot::Sender<Result<ExecutionResult, LocalError>>,
    ) -> Option<Reason> {
        let gate = Arc::clone(&self.gate);
        let _turn = tokio::select! {
            biased;
            turn = gate.acquire_owned() => turn.ok()?,
            // The caller's deadline passed first.
            () = reply.closed() => return None,
        };
        let mut work = slot.take()?;
        if let Err(error) = self.admit(interpreter, &mut work) {
            let _ = reply.send(Err(error));
            return None;
        }
        if let Err(error) = supply(interpreter, &work).await {
            let _ = reply.send(Err(error));
            return None;
        }
        let (number, former) = {
            let mut facts = self.live.facts();
            facts.state = State::Evaluating;
            facts.evaluations += 1;
            (facts.evaluations, facts.former.take())
        };
        let connection = std::mem::replace(&mut work.connection, Connection::none());
        let stopped = self.live.stopped();
        let evaluating = evaluation::evaluate(
            &mut interpreter.guest,
            Evaluable {
                request: &work.request,
                number: number as u32,
                since: work.since,
                after_interrupt: interpreter.interrupted,
            },
            connection,
            Stops {
                abandoned: reply.closed(),
                shutdown: cancellation(Some(stopped)),
            },
        );
        let evaluated = evaluating.await;
        interpreter.interrupted = evaluated.interrupted;
        let ended = evaluated.ended;
        let evaluations = Evaluations {
            id: &self.key.1,
            count: number,
        };
        let result = interpreter.result(&work, evaluated, evaluations, former);
        if let Some(host_output) = &work.host_output {
            host_output.swap_exchange(&mut interpreter.exchange);
        }
        self.live.facts().state = State::Idle(Instant::now());
        // Before the reply, so that the caller's next request finds a new session.
        if let Some(reason) = ended {
            self.leave(reason);
        }
        let _ = reply.send(Ok(result));
        ended
    }

    /// Forks the session. Returns the reason if the session ended.
    async fn fork(
        &mut self,
        interpreter: &mut Interpreter,
        unborn: Unborn,
        reply: oneshot::Sender<Result<(), LocalError>>,
    ) -> Option<Reason> {
        let id = self.key.1.clone();
        let forking::Forked { guest, broken } = forking::fork(interpreter, &id).await;
        let born = match guest {
            Ok(guest) => {
                {
                    let evaluations = self.live.facts().evaluations;
                    let mut facts = unborn.live.facts();
                    facts.evaluations = evaluations;
                    facts.forked_from = Some(id);
                }
                unborn.bear(interpreter.fork(guest)).await;
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.live.facts().state = State::Idle(Instant::now());
        let ended = broken.then_some(Reason::Broken);
        if let Some(reason) = ended {
            self.leave(reason);
        }
        let _ = reply.send(born);
        ended
    }

    fn admit(&self, interpreter: &Interpreter, work: &mut EvaluationCall) -> Result<(), LocalError> {
        let id = self.key.1.clone();
        if work.connection.is_cancelled() {
            return Err(Error::Cancelled(id).into());
        }
        interpreter.fit(work)?;
        match interpreter.served.unkept(&work.request.trusted)? {
            Some(path) => Err(Error::Outdated { id, path }.into()),
            None => Ok(()),
        }
    }

    /// Removes the session from the registry, and records the reason.
    fn leave(&self, reason: Reason) {
        let mut book = self.registry.lock();
        let own = |live: &Arc<Live>| Arc::ptr_eq(live, &self.live);
        if book.live.get(&self.key).is_some_and(own) {
            book.live.remove(&self.key);
            book.endings.remember(&self.key, reason);
        }
    }
}

/// Resolves when the interpreter sends something without a request, or closes the channel.
async fn babble(control: &UnixStream) {
    loop {
        if control.readable().await.is_err() {
            return;
        }
        match control.try_read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return tokio::time::sleep(GRACE).await,
            Ok(_) => return,
        }
    }
}

/// Gives an idle session the files that its next evaluation finds.
async fn supply(interpreter: &mut Interpreter, work: &EvaluationCall) -> Result<(), LocalError> {
    let output = &interpreter.guest.output;
    if let Some(host_output) = &work.host_output {
        host_output.swap_exchange(&mut interpreter.exchange);
        host_output.fill(output.open()).await;
    }
    let given = match output.open() {
        Ok(output) => work.request_files.copy_to(output).await,
        Err(error) => Err(LocalError::Files(error)),
    };
    if let (Err(_), Some(host_output)) = (&given, &work.host_output) {
        host_output.swap_exchange(&mut interpreter.exchange);
    }
    given
}
