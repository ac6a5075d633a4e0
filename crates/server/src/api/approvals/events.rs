//! `GET /v1/approvals/events`: questions as they are asked and end.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use hyper::body::Bytes;
use ringfence_records::approval::{Error, Id};
use serde_json::{Value, json};

use crate::api::content::Content;
use crate::api::error::{ApiError, Reason};
use crate::api::events::{COMMENT, HEARTBEAT, MEDIA, accepts};
use crate::api::keys::Grant;
use crate::api::rights::Right;
use crate::api::route::{self, Route};
use crate::api::state::Api;
use crate::api::stream;
use crate::questions::hub::{MAX_VIEWERS, Viewer, Watcher};
use crate::questions::{self, Question, Reach, now, shown_state};

const CONTENT: Content = Content::new(&[MEDIA], |_| {
    schemars::json_schema!({
        "type": "string",
        "description": "Events: first `waiting` with `{\"now\", \"waiting\": [ID]}`, all questions that wait; then `question` with each \
            of them, and with each new one; `over` with `{\"id\", \"state\", \"by\"}` for one that waits no longer; `error` with \
            `{\"error\"}`, which is the last. Comments keep the connection open. A client that comes back has missed nothing \
            that still waits.",
    })
});

pub(super) fn route() -> Route {
    route::route(
        Method::GET,
        "/v1/approvals/events",
        "Follow questions as they are asked and end. Meanwhile somebody counts as there to be asked. `Accept` must name `text/event-stream`.",
        vec![CONTENT],
        |method| on(method, follow),
    )
    .with_right(Right::Approvals)
}

async fn follow(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if !accepts(&headers) {
        return Err(ApiError::new(
            Reason::NotAcceptable,
            "the answer is a stream of events, which `Accept` does not name",
            "send `Accept: text/event-stream`",
        ));
    }
    let reach = grant.reach()?;
    let viewer = api.questions.enter(Watcher::Client(reach.clone()));
    let viewer = viewer.ok_or_else(|| {
        ApiError::new(
            Reason::LimitExceeded,
            format!("{MAX_VIEWERS} streams of these questions are open"),
            "close some of them",
        )
    })?;
    let following = Following {
        api,
        reach,
        viewer,
        phase: Phase::Entering,
        shown: BTreeSet::new(),
        queue: VecDeque::new(),
        number: 0,
    };
    let body = stream::body(following, |following| Box::pin(next(following)));
    Ok(([(header::CONTENT_TYPE, MEDIA)], body).into_response())
}

/// A stream of questions. It keeps ids, and reads a question when its client takes it.
struct Following {
    api: Arc<Api>,
    reach: Reach,
    viewer: Viewer,
    phase: Phase,
    /// Questions that waited at the last look.
    shown: BTreeSet<Id>,
    queue: VecDeque<Pending>,
    /// Number of events sent.
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not yet registered as somebody who can be asked.
    Entering,
    Open,
    Ended,
}

/// An event to be sent.
enum Pending {
    Waiting,
    Asked(Id),
    Over(Id),
}

async fn next(mut following: Following) -> Option<(Bytes, Following)> {
    let text = match following.step().await {
        Ok(text) => text?,
        Err(error) => {
            following.phase = Phase::Ended;
            following.event("error", &ApiError::from(error).to_json())
        }
    };
    Some((text.into(), following))
}

impl Following {
    /// Returns the next event or comment; `None` at the end.
    async fn step(&mut self) -> Result<Option<String>, Error> {
        loop {
            while let Some(pending) = self.queue.pop_front() {
                if let Some(text) = self.render(pending).await? {
                    return Ok(Some(text));
                }
            }
            let waited = match self.phase {
                Phase::Entering => tokio::time::timeout(HEARTBEAT, self.viewer.is_registered()).await,
                Phase::Open => tokio::time::timeout(HEARTBEAT, self.viewer.changed()).await,
                Phase::Ended => return Ok(None),
            };
            if waited.is_err() {
                return Ok(Some(COMMENT.to_owned()));
            }
            self.look().await?;
        }
    }

    /// Compares the questions that wait with those at the last look.
    async fn look(&mut self) -> Result<(), Error> {
        let service = &self.api.questions.sources().approvals;
        let waiting = questions::waiting(service, &self.reach).await?;
        let order: Vec<Id> = waiting.into_iter().map(|request| request.id).collect();
        let now: BTreeSet<Id> = order.iter().cloned().collect();
        let over = self.shown.difference(&now).cloned().map(Pending::Over);
        self.queue.extend(over);
        if self.phase == Phase::Entering {
            self.phase = Phase::Open;
            self.queue.push_back(Pending::Waiting);
        }
        let asked = order.into_iter().filter(|id| !self.shown.contains(id));
        self.queue.extend(asked.map(Pending::Asked));
        self.shown = now;
        Ok(())
    }

    /// Renders an event; `None` for a question that is over already, as the next look shows.
    async fn render(&mut self, pending: Pending) -> Result<Option<String>, Error> {
        let service = self.api.questions.sources().approvals.clone();
        let (name, data) = match pending {
            Pending::Waiting => {
                let ids: Vec<&Id> = self.shown.iter().collect();
                ("waiting", json!({"now": now(), "waiting": ids}))
            }
            Pending::Asked(id) => match questions::find(&service, &self.reach, &id).await? {
                Some(request) => ("question", json!(Question::of(&request, &self.reach))),
                None => return Ok(None),
            },
            Pending::Over(id) => {
                let found = questions::find(&service, &self.reach, &id).await?;
                let by = found.as_ref().and_then(|request| request.by.as_deref());
                let by = by.map(ringfence_gateway_protocol::visible);
                let state = found.as_ref().map(|request| shown_state(request.state).as_str());
                ("over", json!({"id": id, "state": state, "by": by}))
            }
        };
        Ok(Some(self.event(name, &data)))
    }

    fn event(&mut self, name: &str, data: &Value) -> String {
        self.number += 1;
        format!("event: {name}\nid: {}\ndata: {data}\n\n", self.number)
    }
}
