//! `GET /v1/usage`, and the quotas of keys, which are checked before work begins.

use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use ringfence_policy::Scope;
use ringfence_sandbox::Consumption;

use super::content::Content;
use super::error::{ApiError, Reason};
use super::keys::Grant;
use super::operation_cost::{Begun, OperationCost};
use super::recording::Recorder;
use super::rights::Right;
use super::route::{Needs, Route};
use super::state::Api;
use super::stream;
use super::tenant::{Allowance, OWNER, scope_of};
use crate::usage::{self, Exceeded, Figures, UsageError, UsageReport};

/// Maximum age of a measurement of sandboxes before it is repeated for a request: each reads several files of every sandbox,
/// on the thread that serves all.
const FRESH: Duration = Duration::from_millis(250);

/// Interval at which sandboxes are measured and the usage is written.
const INTERVAL: Duration = Duration::from_secs(10);

pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        method: Method::GET,
        path: "/v1/usage",
        needs: Needs::AnyKey,
        summary: "Show what the key, or its tenant, has used today (UTC) and in all, and its quotas; with the right `admin`, for all keys.",
        recorded: None,
        parameters: &[],
        request: None,
        answers: vec![Content::json::<UsageReport>()],
        handler: |method| on(method, show),
    }]
}

async fn show(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
) -> Result<Response, ApiError> {
    api.measure_if_old();
    let only = (!grant.has(Right::Admin)).then_some(grant.client.as_str());
    let mut report = api.usage.report(only).map_err(|error| {
        ApiError::new(
            Reason::Internal,
            format!("cannot use the stored keys: {error}"),
            "check the directory `api-keys` in the state directory",
        )
    })?;
    for key in &mut report.keys {
        let account = key.account();
        key.sandboxes = scope_of(&account).map_or(0, |scope| api.sandboxes.count(&scope));
    }
    Ok(Json(report).into_response())
}

/// Answers a request of a sandbox's route within the quota of its key.
pub(super) async fn within(State(recorder): State<Recorder>, request: Request, next: Next) -> Response {
    let Some(grant) = request.extensions().get::<Arc<Grant>>().cloned() else {
        return next.run(request).await;
    };
    let cost = OperationCost::of(recorder.name);
    let answered = recorder
        .api
        .perform(&grant.allowance, cost, next.run(request))
        .await;
    answered.unwrap_or_else(IntoResponse::into_response)
}

impl Api {
    /// Begins a run of a client's, if its quota allows one more.
    pub(super) fn begin(&self, grant: &Grant) -> Result<Begun, ApiError> {
        if grant.is_owner() {
            return Ok(Begun(None));
        }
        self.begin_work(&grant.allowance, OperationCost::Run)
    }

    /// Checks that a client has not used up its quota.
    pub(super) fn check_quota(&self, grant: &Grant) -> Result<(), ApiError> {
        self.begin_work(&grant.allowance, OperationCost::Place).map(drop)
    }

    /// Awaits the answer to a client's request if its quota allows it and the server does not drain. A request that is refused
    /// takes its run back; one that fails may have run. What begins is under way until its answer is sent.
    pub(super) async fn perform(
        &self,
        allowance: &Allowance,
        cost: OperationCost,
        answer: impl Future<Output = Response>,
    ) -> Result<Response, ApiError> {
        match cost {
            OperationCost::Nothing => return Ok(answer.await),
            OperationCost::Transfer => return Ok(self.transfer(answer).await),
            OperationCost::Copy | OperationCost::Place | OperationCost::Run => {}
        }
        let work = self.drain.begin()?;
        let begun = self.begin_work(allowance, cost)?;
        let response = answer.await;
        if response.status().is_client_error() {
            begun.take_back();
        }
        Ok(stream::holding(response, work))
    }

    /// Awaits the answer to a request for the content of files, or with it. A drain waits for those that have begun before it; the others
    /// go on all the same: a program under way may wait for one.
    pub(super) async fn transfer(&self, answer: impl Future<Output = Response>) -> Response {
        let work = self.drain.begin().ok();
        stream::holding(answer.await, work)
    }

    /// Begins work that counts against an allowance.
    pub(super) fn begin_work(&self, allowance: &Allowance, cost: OperationCost) -> Result<Begun, ApiError> {
        let Allowance { account, quota } = allowance;
        let is_free = matches!(
            cost,
            OperationCost::Nothing | OperationCost::Transfer | OperationCost::Copy
        );
        if account.as_str() == OWNER || is_free {
            return Ok(Begun(None));
        }
        if quota
            .cpu_seconds
            .or(quota.memory_gib_seconds)
            .or(quota.egress_bytes)
            .is_some()
        {
            self.measure_if_old();
        }
        if cost == OperationCost::Place {
            self.usage.check(account, quota)?;
            return Ok(Begun(None));
        }
        self.usage.begin(account, quota)?;
        Ok(Begun(Some((Arc::clone(&self.usage), account.clone()))))
    }

    /// Adds what sandboxes have used since this was called last; containers that live are measured at intervals.
    pub(super) fn measure(&self) {
        for (owner, used) in self.sandboxes.consumed() {
            self.add_consumed(&owner, used);
        }
    }

    fn measure_if_old(&self) {
        let mut last = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= FRESH) {
            *last = Some(Instant::now());
            self.measure();
        }
    }

    fn add_consumed(&self, owner: &Scope, used: Consumption) {
        self.usage.add(owner, Figures::of_sandboxes(&used));
    }

    /// Measures sandboxes and writes the usage at intervals, until `stop` resolves. `tell` is told of the first of the failures
    /// to write.
    pub async fn keep_usage(&self, stop: impl Future<Output = ()>, tell: impl Fn(&UsageError)) {
        let keep = async {
            let mut has_failed = false;
            loop {
                tokio::time::sleep(INTERVAL).await;
                let add = |owner: &Scope, used| self.add_consumed(owner, used);
                self.sandboxes.consumed_in_containers(add).await;
                let written = self.write_usage().await;
                if let (Err(error), false) = (&written, has_failed) {
                    tell(error);
                }
                has_failed = written.is_err();
            }
        };
        tokio::select! {
            () = stop => {}
            never = keep => { let _: Infallible = never; }
        }
    }

    /// Writes the usage to its file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn write_usage(&self) -> Result<(), UsageError> {
        self.measure();
        let usage = Arc::clone(&self.usage);
        let written = tokio::task::spawn_blocking(move || usage.save()).await;
        // A task that panicked has written nothing, and the next one writes all.
        written.unwrap_or(Ok(()))
    }
}

impl From<Exceeded> for ApiError {
    fn from(exceeded: Exceeded) -> Self {
        let at = ringfence_sandbox::rfc3339(usage::next_day());
        Self::quota_exceeded(
            exceeded.to_string(),
            format!("wait until {at}, when the day ends (UTC), or ask the operator for a larger quota"),
            usage::seconds_left(),
        )
    }
}
