//! E2B's protocol on the listeners of the API, behind the same door and keys.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ringfence_e2b::{Admitted, BuildKey, Client, Error, Target, Tunnel};
use serde::Deserialize;
use serde_json::{Value, json};

use super::budget::BodyShare;
use super::error::{ApiError, Reason};
use super::extract::Owner;
use super::guard::{self, Door};
use super::key_uses::KeyUse;
use super::keys::Grant;
use super::operation_cost::OperationCost;
use super::recording::{self, Recorder};
use super::rights::Right;
use super::state::Api;
use ringfence_http::{self as http, ConnectionSlot, PeerAddress};

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
    let is_visit = matches!(target, Target::Program { .. });
    let answer = |request| answer(&api, &door, target, request);
    match is_visit {
        true => door.admit_visitor(request, answer, refuse).await,
        false => door.admit(request, answer, refuse).await,
    }
}

/// The connection of a request, as far as its key's end concerns it.
struct Connection {
    slot: Option<Arc<ConnectionSlot>>,
    tunnel: Option<Tunnel>,
    is_anonymous: bool,
    /// The answer is made here, and not by a program.
    is_ours: bool,
}

impl Connection {
    fn of(request: &Request, target: &Target, is_anonymous: bool) -> Self {
        Self {
            slot: http::connection(request),
            tunnel: request.extensions().get().cloned(),
            is_anonymous,
            is_ours: !matches!(target, Target::Program { .. }),
        }
    }
}

async fn answer(api: &Arc<Api>, door: &Door, target: Target, mut request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let name = target.operation(request.method(), &path);
    let peer = guard::peer(&request);
    if target == Target::Control {
        let client = match uploader(api, &request).map_or_else(|| client(api, door, &request), Ok) {
            Ok(client) => client,
            Err(error) => return refused(door, error, peer),
        };
        let _share = match share(api, &target, &client, &request) {
            Ok(share) => share,
            Err(error) => return busy(&error),
        };
        // What a key opened ends with it, and is opened anew for the others of its tenant.
        api.e2b
            .forget_ended(&client, |name| api.keys.has_lost(name, Right::Sandboxes));
        let connection = Connection::of(&request, &target, false);
        let answer = Box::pin(api.e2b.control(&client, build_key(api, &client), request));
        let answer = recorded(api, name, &client, json!({ "path": path }), answer);
        return while_keyed(api, &client, connection, answer).await;
    }
    let admitted = match owner(api, door, &target, &request) {
        Some(admitted) => admitted,
        None => match api.e2b.admit(&target, &request) {
            Ok(admitted) => admitted,
            Err(error) => return refused(door, error, peer),
        },
    };
    let client = admitted.client().clone();
    if !api.keys.still_has(&client.name, Right::Sandboxes) {
        let error = match &target {
            // Visitors have no key that could be wrong.
            Target::Program { id, .. } => Error::gone(id),
            _ => Error::unauthenticated("the key that got this token is revoked or has expired"),
        };
        return refused(door, error, peer);
    }
    let _share = match share(api, &target, &client, &request) {
        Ok(share) => share,
        Err(error) => return busy(&error),
    };
    if matches!(target, Target::Program { .. }) {
        guard::remove_keys(api, request.headers_mut());
    }
    let connection = Connection::of(&request, &target, admitted.is_anonymous());
    // Anonymous visitors would fill the log: their requests are no acts of the key's holder.
    let name = name.filter(|_| !admitted.is_anonymous());
    let mut arguments = json!({ "path": path, "sandbox": admitted.sandbox_id() });
    if let Some(file) = named_file(request.uri()) {
        arguments["file"] = file.into();
    }
    let answer = Box::pin(api.e2b.answer(admitted, request));
    let answer = recorded(api, name, &client, arguments, answer);
    while_keyed(api, &client, connection, answer).await
}

/// Answers a request until the client's key ends.
async fn while_keyed(
    api: &Api,
    client: &Client,
    connection: Connection,
    answer: impl Future<Output = Response>,
) -> Response {
    let (uses, name, right) = (&api.key_uses, &client.name, Right::Sandboxes);
    let Connection {
        slot,
        tunnel,
        is_anonymous,
        is_ours,
    } = connection;
    let account = api.keys.allowance_of(name).account;
    let answer = |using: Arc<KeyUse>| async move {
        let response = answer.await;
        if let Some(tunnel) = tunnel {
            tunnel.until(async move { using.ended().await });
        }
        response
    };
    let answered = match is_anonymous {
        true => uses.answer_anonymous(name, right, slot.clone(), answer).await,
        false => {
            let connection = slot.clone().map(|slot| (slot, &account));
            uses.answer(name, right, connection, answer).await
        }
    };
    let answered = match answered {
        // Large answers of E2B's routes are of what reads, by POST as well.
        Ok(response) if is_ours => api.charge_answer(response, &account, &Method::GET, slot).await,
        answered => answered,
    };
    answered.unwrap_or_else(|error| {
        let message = error.message().to_owned();
        match error.reason() {
            Reason::Unauthenticated => Error::unauthenticated(&message).into_response(),
            Reason::Busy => busy(&error),
            _ => Error::internal(message).into_response(),
        }
    })
}

/// Records an operation, and counts it. The answer is boxed: each function that takes a future has room for it twice.
async fn recorded(
    api: &Arc<Api>,
    name: Option<&'static str>,
    client: &Client,
    arguments: Value,
    answer: Pin<Box<impl Future<Output = Response>>>,
) -> Response {
    let Some(name) = name else { return answer.await };
    let answer = within_quota(api, name, client, answer);
    let api = Arc::clone(api);
    recording::record_e2b(Recorder { api, name }, client, arguments, answer).await
}

/// Returns the file that a transfer names. The rest of its query may have a signature, which opens the file.
fn named_file(uri: &Uri) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        path: String,
    }
    let named = Query::<Named>::try_from_uri(uri)
        .ok()
        .filter(|_| uri.path() == "/files");
    named.map(|query| query.0.path)
}

/// Answers a request if the quota of the client's key allows it.
async fn within_quota(
    api: &Api,
    name: &str,
    client: &Client,
    answer: impl Future<Output = Response>,
) -> Response {
    let cost = OperationCost::of(name);
    // No key is read for what no quota limits.
    match cost {
        OperationCost::Nothing => return answer.await,
        OperationCost::Transfer => return api.transfer(answer).await,
        OperationCost::Copy | OperationCost::Place | OperationCost::Run => {}
    }
    let allowance = api.keys.allowance_of(&client.name);
    let answered = api.perform(&allowance, cost, answer).await;
    answered.unwrap_or_else(|error| busy(&error))
}

/// Takes the part of the memory for bodies that a request's may fill, before it is read.
fn share(api: &Api, target: &Target, client: &Client, request: &Request) -> Result<BodyShare, ApiError> {
    let max = target.max_body_in_memory(request.method(), request.uri().path());
    let kept = guard::reserved(request.headers(), max);
    let account = api.keys.allowance_of(&client.name).account;
    api.bodies.take_for(&account, kept)
}

/// Answers a request that may be sent again later.
fn busy(error: &ApiError) -> Response {
    let mut response = Error::busy(error.message().to_owned()).into_response();
    let wait = error.retry_after().map(HeaderValue::from);
    let headers = response.headers_mut();
    headers.extend(wait.map(|wait| (header::RETRY_AFTER, wait)));
    response
}

/// Returns the client whose key a request to the control plane has.
fn client(api: &Api, door: &Door, request: &Request) -> Result<Client, Error> {
    let unauthenticated = || Error::unauthenticated("the key is missing or wrong: send it as `X-API-KEY`");
    let grant = door.grant(api, request).ok_or_else(unauthenticated)?;
    if !grant.has(Right::Sandboxes) {
        return Err(Error::forbidden("the key lacks the right `sandboxes`"));
    }
    holder(door, &grant, request.headers())
}

fn holder(door: &Door, grant: &Grant, headers: &HeaderMap) -> Result<Client, Error> {
    let scope = Owner::default().scope(grant);
    Ok(Client {
        scope: scope.map_err(|error| Error::internal(error.message().to_owned()))?,
        name: grant.client.clone(),
        domain: door.domain(headers),
        most_sandboxes: grant.allowance.most_sandboxes(),
    })
}

/// Lets the owner of a sandbox, whose key a request has, in to its programs. `None`: it must be let in otherwise.
fn owner(api: &Api, door: &Door, target: &Target, request: &Request) -> Option<Admitted> {
    if !matches!(target, Target::Program { .. }) {
        return None;
    }
    let grant = door.grant_of_visitor(api, request);
    // A wrong key is a guess where one can be guessed, else it is the program's. What it asks for may be open to everybody.
    if grant.is_none() && api.keys.has_weak_key() && request.headers().contains_key("x-api-key") {
        door.fails_too_often(guard::peer(request));
    }
    let grant = grant?;
    let client = holder(door, &grant, request.headers()).ok()?;
    let is_right = grant.has(Right::Sandboxes);
    is_right.then(|| api.e2b.admit_owner(&client, target)).flatten()
}

/// Returns a client's key, for what goes on when its request is answered: the build of a template, which a drain waits for.
fn build_key(api: &Arc<Api>, client: &Client) -> BuildKey {
    let using = api.key_uses.begin(&client.name, Right::Sandboxes);
    let work = api.drain.begin().ok();
    // A build does not keep the server.
    let (api, name) = (Arc::downgrade(api), client.name.clone());
    BuildKey {
        end: Box::pin(async move {
            using.ended().await;
            drop(work);
        }),
        begin_run: Box::new(move || {
            let api = api.upgrade().ok_or("the server ends")?;
            let begun = api.begin_work(&api.keys.allowance_of(&name), OperationCost::Run);
            begun.map(drop).map_err(|error| error.message().to_owned())
        }),
    }
}

/// Returns the client to whom the address of an upload was given, while its key has the right to it.
fn uploader(api: &Api, request: &Request) -> Option<Client> {
    let client = api.e2b.uploader(request)?;
    api.keys
        .still_has(&client.name, Right::Sandboxes)
        .then_some(client)
}

/// Answers a request that is not let in, and counts wrong credentials.
fn refused(door: &Door, error: Error, peer: Option<PeerAddress>) -> Response {
    match error.is_unauthenticated() && door.fails_too_often(peer) {
        true => Error::too_many_failures().into_response(),
        false => error.into_response(),
    }
}
