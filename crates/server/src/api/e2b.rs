//! E2B's protocol on the listeners of the API, behind the same door and keys.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ringfence_e2b::{Client, Error, Target};

use super::Api;
use super::error::{ApiError, Reason};
use super::guard::Door;
use super::keys::Right;
use super::recording::{self, Recorder};
use super::sandboxes::Owner;
use super::usage::Work;
use crate::http::{self, ConnectionSlot};

/// A door by which E2B's clients come in, too.
#[derive(Debug, Clone)]
pub(super) struct Entrance {
    pub(super) api: Arc<Api>,
    pub(super) door: Arc<Door>,
}

/// Answers the requests of E2B's clients, and passes others on.
pub(super) async fn dispatch(State(entrance): State<Entrance>, request: Request, next: Next) -> Response {
    let Some(target) = entrance.door.e2b_target(&request) else {
        return next.run(request).await;
    };
    let Entrance { api, door } = entrance;
    let refuse = |refusal: ApiError| Error::forbidden(refusal.message()).into_response();
    door.admit(request, |request| answer(&api, &door, target, request), refuse)
        .await
}

async fn answer(api: &Arc<Api>, door: &Door, target: Target, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let name = target.operation(request.method(), &path);
    if target == Target::Control {
        let client = match client(api, door, request.headers()) {
            Ok(client) => client,
            Err(error) => return refused(door, error),
        };
        // What a key opened ends with it, and is opened anew for the others of its tenant.
        api.e2b
            .forget_ended(&client, |name| !api.keys.still_has(name, Right::Sandboxes));
        let connection = http::connection(&request);
        let answer = recorded(api, name, &client, &path, api.e2b.control(&client, request));
        return while_keyed(api, &client, connection, answer).await;
    }
    let admitted = match api.e2b.admit(&target, &request) {
        Ok(admitted) => admitted,
        Err(error) => return refused(door, error),
    };
    let client = admitted.client().clone();
    if !api.keys.still_has(&client.name, Right::Sandboxes) {
        let error = Error::unauthenticated("the key that made the sandbox is revoked or has expired");
        return refused(door, error);
    }
    let connection = http::connection(&request);
    let answer = recorded(api, name, &client, &path, api.e2b.answer(admitted, request));
    while_keyed(api, &client, connection, answer).await
}

/// Answers a request until the client's key ends.
async fn while_keyed(
    api: &Api,
    client: &Client,
    connection: Option<Arc<ConnectionSlot>>,
    answer: impl Future<Output = Response>,
) -> Response {
    let uses = &api.key_uses;
    let answered = uses
        .answer(&client.name, Right::Sandboxes, connection, |_| answer)
        .await;
    answered.unwrap_or_else(|error| {
        let message = error.message().to_owned();
        let error = match error.reason() {
            Reason::Unauthenticated => Error::unauthenticated(&message),
            Reason::Busy => Error::busy(message),
            _ => Error::internal(message),
        };
        error.into_response()
    })
}

async fn recorded(
    api: &Arc<Api>,
    name: Option<&'static str>,
    client: &Client,
    path: &str,
    answer: impl Future<Output = Response>,
) -> Response {
    let Some(name) = name else { return answer.await };
    let answer = within_quota(api, name, client, answer);
    let api = Arc::clone(api);
    recording::record_e2b(Recorder { api, name }, client, path, answer).await
}

/// Answers a request if the quota of the client's key allows it.
async fn within_quota(
    api: &Api,
    name: &str,
    client: &Client,
    answer: impl Future<Output = Response>,
) -> Response {
    let work = Work::of(name);
    // No key is read for what no quota limits.
    if work == Work::Nothing {
        return answer.await;
    }
    let share = api.keys.share_of(&client.name);
    let answered = api.perform(&share, work, answer).await;
    answered.unwrap_or_else(|error| {
        let mut response = Error::busy(error.message().to_owned()).into_response();
        let wait = error.retry_after().map(HeaderValue::from);
        let headers = response.headers_mut();
        headers.extend(wait.map(|wait| (header::RETRY_AFTER, wait)));
        response
    })
}

/// Returns the client whose key a request to the control plane has.
fn client(api: &Api, door: &Door, headers: &HeaderMap) -> Result<Client, Error> {
    let unauthenticated = || Error::unauthenticated("the key is missing or wrong: send it as `X-API-KEY`");
    let grant = door.grant(api, headers).ok_or_else(unauthenticated)?;
    if !grant.has(Right::Sandboxes) {
        return Err(Error::forbidden("the key lacks the right `sandboxes`"));
    }
    let scope = api.scope(&grant, &Owner::default());
    Ok(Client {
        scope: scope.map_err(|error| Error::internal(error.message().to_owned()))?,
        name: grant.client.clone(),
        domain: door.domain(headers),
    })
}

/// Answers a request that is not let in, and counts wrong credentials.
fn refused(door: &Door, error: Error) -> Response {
    match error.is_unauthenticated() && door.fails_too_often() {
        true => Error::too_many_failures().into_response(),
        false => error.into_response(),
    }
}
