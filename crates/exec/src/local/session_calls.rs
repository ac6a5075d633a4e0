//! The calls of sessions: evaluate, create, fork, list, remove.

use std::sync::Arc;

use ringfence_policy::{ExecutionResult, Language, Limits, Request, Scope, SessionId};

use super::Local;
use super::error::Error as LocalError;
use super::exchange::Exchange;
use super::launchers::Kind;
use super::session_error::Error;
use super::sessions::{Called, EvaluationCall, Interpreter, Live, SessionInfo, SessionLookup, Unborn};
use super::settings::Fence;

impl Local {
    /// Evaluates the request's code in the session of this name, creating it if there is none.
    pub(super) async fn evaluate(
        &self,
        id: &SessionId,
        mut work: EvaluationCall,
    ) -> Result<ExecutionResult, LocalError> {
        check(&work.request, work.fence)?;
        let key = (work.request.scope.clone(), id.clone());
        loop {
            let live = match self.sessions.find_or_make(&key, &self.gate)? {
                SessionLookup::Live(live) => live,
                SessionLookup::New(unborn) => {
                    // Variables come with each evaluation.
                    let request = Request {
                        env: Vec::new(),
                        ..work.request.clone()
                    };
                    self.bear(unborn, &request, work.fence).await?
                }
            };
            match live.evaluate(work).await {
                Called::Done(result) => return result,
                Called::Back(back) => work = back,
                Called::NotBegun(work) if work.connection.is_cancelled() => {
                    return Err(Error::Cancelled(key.1).into());
                }
                Called::NotBegun(_) => return Err(Error::Busy(key.1).into()),
                Called::Lost => return Err(Error::Closing.into()),
            }
        }
    }

    /// Creates the session of requests like this one before its first use. Variables of the request reach an interpreter that
    /// is started cold.
    ///
    /// # Errors
    /// If the name is taken, there are too many, or the interpreter cannot be started.
    pub async fn new_session(
        &self,
        id: &SessionId,
        request: &Request,
        fence: Fence,
    ) -> Result<(), LocalError> {
        check(request, fence)?;
        let key = (request.scope.clone(), id.clone());
        let unborn = self.sessions.make(&key, &self.gate)?;
        self.bear(unborn, request, fence).await.map(drop)
    }

    /// Forks a session into a cell of its own, once no evaluation runs.
    ///
    /// # Errors
    /// If there is no such session, the new name is taken, there are too many, or it cannot be forked.
    pub async fn fork_session(
        &self,
        scope: &Scope,
        from: &SessionId,
        to: &SessionId,
    ) -> Result<(), LocalError> {
        let original = self.sessions.find(&(scope.clone(), from.clone()))?;
        let key = (scope.clone(), to.clone());
        let unborn = self.sessions.make(&key, &self.gate)?;
        match original.fork(unborn).await {
            Called::Done(result) => result,
            Called::NotBegun(_) => Err(Error::Busy(from.clone()).into()),
            Called::Back(_) | Called::Lost => Err(Error::Unknown(from.clone()).into()),
        }
    }

    /// Returns the sessions of a scope, sorted by name.
    pub fn sessions(&self, scope: &Scope) -> Vec<SessionInfo> {
        self.sessions.infos(scope)
    }

    /// Ends a session, evaluating or not, and waits for that. Its forks live on.
    ///
    /// # Errors
    /// If the scope has no session of this name.
    pub async fn remove_session(&self, scope: &Scope, id: &SessionId) -> Result<(), LocalError> {
        let live = self.sessions.find(&(scope.clone(), id.clone()))?;
        live.stop();
        live.gone().await;
        Ok(())
    }

    /// Resolves once the scope has no session of this name, or the one that it has now has ended.
    pub async fn session_ended(&self, scope: &Scope, id: &SessionId) {
        if let Ok(live) = self.sessions.find(&(scope.clone(), id.clone())) {
            live.gone().await;
        }
    }

    /// Starts a session's interpreter.
    async fn bear(&self, unborn: Unborn, request: &Request, fence: Fence) -> Result<Arc<Live>, LocalError> {
        let served = self
            .launchers
            .serve(request, Kind::of(fence), &self.settings, &self.groups)
            .await?;
        // A per-process limit on processor time must cover the session's lifetime.
        let held = Request {
            code: String::new(),
            limits: Limits {
                timeout: self.settings.sessions.lifetime,
                ..request.limits
            },
            ..request.clone()
        };
        let (guest, origin) = match served.session(&held, &self.settings).await {
            Ok(started) => started,
            Err(error) => {
                self.retire(served, None, None);
                return Err(error);
            }
        };
        let groups = guest.group.as_ref().and(self.groups.get());
        let interpreter = Interpreter {
            cgroup: groups.map(|groups| groups.version().to_owned()),
            guest,
            served,
            origin,
            made_for: held,
            fence,
            interrupted: false,
            exchange: Exchange::default(),
        };
        Ok(unborn.bear(interpreter).await)
    }
}

fn check(request: &Request, fence: Fence) -> Result<(), Error> {
    if request.language != Language::Python {
        return Err(Error::Language(request.language));
    }
    if fence.is_none() {
        return Err(Error::Unfenced);
    }
    Ok(())
}
