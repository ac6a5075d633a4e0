//! Checks of every request: its host, its origin, its credential and the right that its route needs.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use base64::{Engine, alphabet};
use http_body_util::BodyExt;
use ringfence_e2b::{Domain, Failure, OfProgram, Target};

use super::budget::MAX_OF_CLIENT;
use super::error::{ApiError, Reason};
use super::key_uses::KeyUse;
use super::keys::{Conduct, Grant};
use super::route::Needs;
use super::state::Api;
use super::{body, health, key_store, librechat};
use crate::metrics::{Metrics, Refusal};
use ringfence_http::{self as http, Failures, PeerAddress, single};

/// Identifies a request, in its answer and in a client's log.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Maximum length of a request id that a client chooses.
const MAX_ID: usize = 128;

/// A surface that serves the API: the hosts that it answers for, and the credential that it takes.
#[derive(Debug)]
pub(super) struct Door {
    hosts: Hosts,
    credential: Credential,
    failures: Failures,
    metrics: Arc<Metrics>,
    /// Distinguishes the request ids of this server from those of others.
    series: u64,
    count: AtomicU64,
}

#[derive(Debug)]
enum Hosts {
    /// Any: no browser reaches it, or its names are not known here.
    Any,
    Only(Vec<String>),
    /// The names below a domain.
    Below(Domain),
}

impl Hosts {
    fn have(&self, host: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            // A sandbox has names of its own below ours.
            Self::Only(hosts) => {
                host.is_some_and(|host| http::is_among(hosts, Target::host_of_sandbox(host).unwrap_or(host)))
            }
            Self::Below(domain) => host.is_some_and(|host| domain.has(host)),
        }
    }

    /// Compares the host in a request's target with the header.
    fn is_same(&self, target: &str, host: Option<&str>) -> bool {
        matches!(self, Self::Any) || host == Some(target)
    }

    fn hint(&self) -> String {
        match self {
            Self::Any | Self::Only(_) => {
                "address the server as 127.0.0.1 or localhost, with its port".to_owned()
            }
            Self::Below(domain) => {
                format!("address the server as api.{domain}, and a sandbox as PORT-ID.{domain}")
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Credential {
    /// The kernel has named the peer: it is the server's own user.
    Peer,
    Key,
}

impl Door {
    /// Creates the door of a private Unix socket.
    pub(super) fn of_socket(metrics: Arc<Metrics>) -> Self {
        Self::new(Hosts::Any, Credential::Peer, metrics)
    }

    /// Creates the door of a loopback address, whose `Host` must be a loopback name: a web page that rebinds its own
    /// name to this machine is refused.
    pub(super) fn of_loopback(address: SocketAddr, metrics: Arc<Metrics>) -> Self {
        Self::new(Hosts::Only(http::hosts_of(address)), Credential::Key, metrics)
    }

    /// Creates the door of an address that other machines reach: by the names below a domain or, without one, by names that are
    /// not known here.
    pub(super) fn of_network(domain: Option<Domain>, metrics: Arc<Metrics>) -> Self {
        Self::new(domain.map_or(Hosts::Any, Hosts::Below), Credential::Key, metrics)
    }

    /// Returns the destination of a request of E2B's clients; `None` if it is none.
    pub(super) fn e2b_target(&self, request: &Request) -> Option<Target> {
        match &self.hosts {
            Hosts::Any | Hosts::Only(_) => Target::of(request),
            Hosts::Below(domain) => Target::below(domain, request),
        }
    }

    /// Returns the domain, with the port, of a request to the API below it.
    pub(super) fn domain(&self, headers: &HeaderMap) -> Option<String> {
        match &self.hosts {
            Hosts::Any | Hosts::Only(_) => None,
            Hosts::Below(domain) => domain.of_api(single(headers, "host")?),
        }
    }

    fn new(hosts: Hosts, credential: Credential, metrics: Arc<Metrics>) -> Self {
        let since = UNIX_EPOCH.elapsed().unwrap_or_default();
        Self {
            hosts,
            credential,
            failures: Failures::default(),
            metrics,
            series: since.as_nanos() as u64 ^ u64::from(std::process::id()),
            count: AtomicU64::new(0),
        }
    }

    fn check(&self, request: &Request) -> Result<(), ApiError> {
        self.check_host(request)?;
        let headers = request.headers();
        // Some clients send the server's own address as `Origin`, with http or https. Only this server has pages there.
        let schemes = ["http://", "https://"];
        if !http::is_same_site(headers, single(headers, "host"), &schemes) {
            return Err(ApiError::new(
                Reason::PermissionDenied,
                "the request comes from a web page of another site",
                "call the API from a program, not from a page",
            ));
        }
        Ok(())
    }

    fn check_host(&self, request: &Request) -> Result<(), ApiError> {
        // Probes ask by the address, and learn nothing.
        if matches!(self.hosts, Hosts::Below(_)) && health::is_path(request.uri().path()) {
            return Ok(());
        }
        let host = single(request.headers(), "host");
        let target = request.uri().authority();
        if !self.hosts.have(host) || target.is_some_and(|target| !self.hosts.is_same(target.as_str(), host)) {
            return Err(ApiError::new(
                Reason::ForeignHost,
                "the request names another host than this server's own",
                self.hosts.hint(),
            ));
        }
        Ok(())
    }

    /// Returns the id of a request: the client's, if it is a short word, else a new one.
    fn request_id(&self, headers: &HeaderMap) -> HeaderValue {
        let is_word = |value: &&HeaderValue| {
            let bytes = value.as_bytes();
            let ok = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
            (1..=MAX_ID).contains(&bytes.len()) && bytes.iter().all(ok)
        };
        if let Some(given) = headers.get(REQUEST_ID).filter(is_word) {
            return given.clone();
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:016x}-{count}", self.series);
        HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("-"))
    }

    /// Counts a request without the right credential. Returns `true` if there were too many.
    pub(super) fn fails_too_often(&self, peer: Option<PeerAddress>) -> bool {
        let failed = self.failures.add(peer);
        if let Some(lockout) = failed.lockout {
            self.metrics.warn(&lockout);
        }
        failed.is_one_too_many
    }

    /// Returns the rights of a request's credential; `None` if it is missing or wrong.
    pub(super) fn grant(&self, api: &Api, request: &Request) -> Option<Arc<Grant>> {
        match self.credential {
            Credential::Peer => Some(Arc::clone(&api.owner)),
            Credential::Key => api.keys.find(&key(request.headers())?, self.conduct(request)),
        }
    }

    fn conduct(&self, request: &Request) -> Conduct {
        match self.failures.guesses(peer(request)) {
            true => Conduct::Guessing,
            false => Conduct::Usual,
        }
    }

    /// Returns the rights of a visitor of a sandbox's program, who shows a key in `X-API-Key` alone: `Authorization` is the program's.
    pub(super) fn grant_of_visitor(&self, api: &Api, request: &Request) -> Option<Arc<Grant>> {
        match self.credential {
            Credential::Peer => Some(Arc::clone(&api.owner)),
            Credential::Key => api
                .keys
                .find(single(request.headers(), "x-api-key")?, self.conduct(request)),
        }
    }

    /// Counts a request without the right credential, and returns its error.
    fn unauthenticated(&self, peer: Option<PeerAddress>, uri: &Uri) -> ApiError {
        if self.fails_too_often(peer) {
            return ApiError::too_many_failures();
        }
        if http::has_token(uri) {
            return ApiError::new(
                Reason::Unauthenticated,
                "a token in the URL is no credential: URLs are logged",
                "send the key in a header, or give the client a URL with a user and the key as the password, `http://any:KEY@HOST/…`, and no token",
            );
        }
        ApiError::new(
            Reason::Unauthenticated,
            "there is no key with the request, or it is wrong",
            "send a key as `Authorization: Bearer KEY` or `X-API-Key: KEY`",
        )
    }
}

/// Returns the address that a request comes from. A Unix socket has none.
pub(super) fn peer(request: &Request) -> Option<PeerAddress> {
    request.extensions().get().copied()
}

/// Returns the key of a request. One in a URL is ignored: URLs are logged.
fn key(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    match headers.contains_key("x-api-key") {
        true => single(headers, "x-api-key").map(Cow::Borrowed),
        false => authorization(single(headers, header::AUTHORIZATION.as_str())?),
    }
}

/// Policy of an answer that no browser renders or runs.
const UNRENDERED: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

/// Removes the headers with a key of this server, or with what has the form of one, however it is written: no program of a sandbox gets
/// it.
///
/// A key that can be guessed takes both headers from all requests: a program could tell guesses from the key by what it gets.
pub(super) fn remove_keys(api: &Api, headers: &mut HeaderMap) {
    for name in [HeaderName::from_static("x-api-key"), header::AUTHORIZATION] {
        if api.keys.has_weak_key() || headers.get_all(&name).iter().any(|value| holds_key(api, value)) {
            headers.remove(name);
        }
    }
}

fn holds_key(api: &Api, value: &HeaderValue) -> bool {
    let text = String::from_utf8_lossy(value.as_bytes());
    let (scheme, rest) = text.split_once([' ', '\t']).unwrap_or(("", &text));
    let pair = scheme
        .eq_ignore_ascii_case("basic")
        .then(|| LENIENT.decode(rest.trim()).ok());
    let pair = String::from_utf8_lossy(&pair.flatten().unwrap_or_default()).into_owned();
    let (user, password) = pair.split_once(':').unwrap_or((&pair, ""));
    let is_key = |word: &str| {
        api.keys
            .find(word.trim().trim_matches('"'), Conduct::Usual)
            .is_some()
    };
    let words = [text.as_ref(), rest, user, password];
    key_store::has_id(&text) || key_store::has_id(&pair) || words.into_iter().any(is_key)
}

/// Base64 with padding or without.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the key in a value of `Authorization`: after `Bearer` or Jupyter's `token`, or as the password of any user after `Basic`, in which programs
/// without a setting for headers send what their user's `.netrc` says. No answer asks a browser for a password.
fn authorization(value: &str) -> Option<Cow<'_, str>> {
    let (scheme, rest) = value.split_once(' ')?;
    if ["bearer", "token"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
    {
        return Some(Cow::Borrowed(rest.trim()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(BASE64_STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (_, password) = pair.split_once(':')?;
    Some(Cow::Owned(password.to_owned()))
}

/// Checks a request's host and origin, and gives its answer an id and the security headers.
pub(super) async fn admit(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let is_librechat = librechat::is_path(request.uri().path());
    let answer = door.admit(request, |request| next.run(request), ApiError::into_response);
    match is_librechat {
        true => librechat::in_its_form(answer.await),
        false => answer.await,
    }
}

impl Door {
    /// Answers a request whose host and origin are right by `answer`, others by `refuse`; with an id and the security
    /// headers.
    pub(super) async fn admit<F: Future<Output = Response>>(
        &self,
        request: Request,
        answer: impl FnOnce(Request) -> F,
        refuse: fn(ApiError) -> Response,
    ) -> Response {
        let id = self.request_id(request.headers());
        let mut response = match self.check(&request) {
            Ok(()) => answer(request).await,
            Err(error) => refuse(error),
        };
        self.count(&response);
        let headers = response.headers_mut();
        http::harden(headers);
        headers.insert(REQUEST_ID, id);
        response
    }
}

impl Door {
    /// Like [`Door::admit`], for a request to a program of a sandbox. Below a domain the program has an origin of its own: the sites whose
    /// pages may ask it and the headers of its answers are its own matter. Elsewhere its answers are nothing that a browser renders or keeps.
    pub(super) async fn admit_visitor<F: Future<Output = Response>>(
        &self,
        mut request: Request,
        answer: impl FnOnce(Request) -> F,
        refuse: fn(ApiError) -> Response,
    ) -> Response {
        if !matches!(self.hosts, Hosts::Below(_)) {
            // Those of this origin, at which the console may be.
            request.headers_mut().remove(header::COOKIE);
            let mut response = self.admit(request, answer, refuse).await;
            let headers = response.headers_mut();
            headers.remove(header::SET_COOKIE);
            headers.remove(header::REFRESH);
            headers.insert(header::CONTENT_SECURITY_POLICY, UNRENDERED);
            return response;
        }
        let mut response = match self.check_host(&request) {
            Ok(()) => answer(request).await,
            Err(error) => refuse(error),
        };
        self.count(&response);
        if response.extensions().get::<OfProgram>().is_none() {
            http::harden(response.headers_mut());
        }
        response
    }

    /// Counts an answer that is an error, of the API or of E2B's protocol.
    fn count(&self, response: &Response) {
        let extensions = response.extensions();
        let own = || extensions.get::<Reason>().map(|reason| reason.row().1);
        let kind = match extensions.get::<Failure>() {
            Some(Failure(kind)) => Some(*kind),
            None => own(),
        };
        if let Some(kind) = kind {
            let status = response.status().as_u16();
            self.metrics.refused(Refusal { status, kind });
        }
    }
}

/// Answers a request with a key to what is not the API, at an address that serves the console, too. The console takes no keys: it
/// would answer that the key is wrong.
pub(super) async fn beside_console(
    State((api, door)): State<(Arc<Api>, Arc<Door>)>,
    request: Request,
    next: Next,
) -> Response {
    if door.grant(&api, &request).is_none() {
        let (peer, has_key) = (peer(&request), key(request.headers()).is_some());
        let has_data = request.uri().path().starts_with("/api/");
        let response = next.run(request).await;
        // The console's data is for its own credential, so that was no key. Other answers tell right keys from wrong ones, whatever
        // their status.
        let is_consoles = has_data && response.status().is_success();
        if has_key && !is_consoles {
            door.fails_too_often(peer);
        }
        return response;
    }
    let answer = async |request| {
        let response = next.run(request).await;
        match is_refusal(response.status()) || response.status() == StatusCode::METHOD_NOT_ALLOWED {
            true => ApiError::unknown_path().into_response(),
            false => response,
        }
    };
    door.admit(request, answer, ApiError::into_response).await
}

/// Returns `true` if the console has refused a credential.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS)
}

/// The check of one route.
#[derive(Debug, Clone)]
pub(super) struct Check {
    pub(super) api: Arc<Api>,
    pub(super) door: Arc<Door>,
    pub(super) needs: Needs,
    /// Maximum size of the body, if the route takes one.
    pub(super) max: Option<usize>,
}

/// Checks a request's credential and its right to the route, before its body is read.
pub(super) async fn authorize(State(check): State<Check>, mut request: Request, next: Next) -> Response {
    let right = match check.needs {
        Needs::Nothing => return next.run(request).await,
        Needs::AnyKey => None,
        Needs::Key(right) => Some(right),
    };
    let Some(grant) = check.door.grant(&check.api, &request) else {
        if let Some(connection) = http::connection(&request) {
            connection.forget_client();
        }
        // Who sends no key does not guess.
        let guesser = key(request.headers()).and_then(|_| peer(&request));
        return check.door.unauthenticated(guesser, request.uri()).into_response();
    };
    let right = right.unwrap_or_else(|| grant.first_right());
    if !grant.has(right) {
        let message = format!("this path needs the right `{}`", right.as_str());
        let hint = "use a key with this right";
        return ApiError::new(Reason::PermissionDenied, message, hint).into_response();
    }
    if let Some(max) = check.max.filter(|max| announced(request.headers()) > *max as u64) {
        return body::too_large(max).into_response();
    }
    let share = match check.api.bodies.take(&grant, check.kept(request.headers())) {
        Ok(share) => share,
        Err(error) => return error.into_response(),
    };
    let share = Arc::new(share);
    request.extensions_mut().insert(Arc::clone(&grant));
    // For what goes on without its client.
    request.extensions_mut().insert(Arc::clone(&share));
    let slot = http::connection(&request);
    let (account, method) = (&grant.allowance.account, request.method().clone());
    let connection = slot.clone().map(|slot| (slot, account));
    let answer = |using| {
        request.extensions_mut().insert::<Arc<KeyUse>>(using);
        next.run(request)
    };
    let answered = check
        .api
        .key_uses
        .answer(&grant.client, right, connection, answer);
    let response = answered.await.unwrap_or_else(ApiError::into_response);
    if response.body().size_hint().exact().is_some() {
        let charged = check.api.charge_answer(response, account, &method, slot).await;
        return charged.unwrap_or_else(ApiError::into_response);
    }
    // An answer that is made as it is read may still use the body.
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _kept = &share;
            frame
        }))
    })
}

impl Check {
    /// Returns the memory to reserve for the body, in bytes; 0 if the route streams it.
    fn kept(&self, headers: &HeaderMap) -> usize {
        let max = self.max.filter(|max| *max <= MAX_OF_CLIENT);
        max.map_or(0, |max| reserved(headers, max))
    }
}

/// Returns the memory to reserve for a body of at most `max` bytes: its `Content-Length`, or all if it is chunked.
pub(super) fn reserved(headers: &HeaderMap, max: usize) -> usize {
    match headers.contains_key(header::TRANSFER_ENCODING) {
        true => max,
        false => usize::try_from(announced(headers)).map_or(max, |size| size.min(max)),
    }
}

/// Returns the size of the body that a request announces: one that is too large is refused before it arrives.
fn announced(headers: &HeaderMap) -> u64 {
    let length = single(headers, header::CONTENT_LENGTH.as_str());
    length.and_then(|length| length.parse().ok()).unwrap_or(0)
}
