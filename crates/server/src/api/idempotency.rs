//! Answers by `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): a request that is sent again is not carried
//! out again.
//!
//! A request with a key goes on if its client leaves (but not if the key of the API is revoked), and its answer is kept for two minutes. A repetition with
//! the same body gets that answer; one with another body is a conflict. Before the
//! answer, a repetition is told that the request is in progress.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use ringfence_records::audit::Digest;
use tokio::task::JoinSet;

use super::budget::BodyShare;
use super::error::{ApiError, Reason};
use super::key_uses::KeyUse;
use super::keys::Grant;
use super::tenant::Account;
use super::{body, events};
use ringfence_http::single;

/// Names a request, so that it is carried out once.
pub(super) const HEADER: &str = "Idempotency-Key";
/// Marks an answer that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Time for which an answer is kept.
const KEEPING: Duration = Duration::from_secs(120);
/// Maximum length of a key.
const MAX_KEY: usize = 255;
/// Maximum number of requests of one account that are remembered, and of all.
const MAX_OF_CLIENT: usize = 256;
const MAX: usize = 2048;
/// Maximum size of the answers that are kept for one account.
const MAX_BYTES: usize = 8 << 20;

/// The requests that had a key.
#[derive(Debug, Default)]
pub(super) struct Idempotency {
    requests: Mutex<HashMap<Name, Remembered>>,
    tasks: Mutex<JoinSet<()>>,
}

/// The name of a request: a key is its account's, and for one path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name {
    account: Account,
    /// Path and query.
    target: String,
    key: String,
}

#[derive(Debug)]
struct Remembered {
    body: Digest,
    /// `None` while it is carried out.
    answer: Option<(Instant, Answer)>,
}

/// An answer to give again.
#[derive(Debug, Clone)]
enum Answer {
    Whole(Whole),
    /// The answer was larger than all answers that are kept for a client.
    TooLarge,
}

#[derive(Debug, Clone)]
struct Whole {
    status: StatusCode,
    media: Option<HeaderValue>,
    body: Bytes,
}

/// Carries out a request with a key once; see the module. Others pass.
pub(super) async fn once(State(known): State<Arc<Idempotency>>, request: Request, next: Next) -> Response {
    let key = match key(request.headers()) {
        Ok(Some(key)) => key,
        Ok(None) => return next.run(request).await,
        Err(error) => return error.into_response(),
    };
    match carry_out(&known, key, request, next).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

/// Refuses a key on a route that keeps no answers: nobody may count on it.
pub(super) async fn refuse(request: Request, next: Next) -> Response {
    match request.headers().contains_key(HEADER) {
        true => not_kept("this path keeps no answers").into_response(),
        false => next.run(request).await,
    }
}

async fn carry_out(
    known: &Arc<Idempotency>,
    key: String,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if events::accepts(request.headers()) {
        return Err(not_kept("answers of events are not kept"));
    }
    let grant = request.extensions().get::<Arc<Grant>>();
    let name = Name {
        account: grant
            .map(|grant| grant.allowance.account.clone())
            .unwrap_or_default(),
        target: request.uri().to_string(),
        key,
    };
    let (parts, body) = request.into_parts();
    let bytes = body::whole(Request::from_parts(parts.clone(), body)).await?;
    if let Some(answer) = known.begin(&name, Digest::of(&bytes))? {
        return replayed(answer);
    }
    let (done, answered) = tokio::sync::oneshot::channel();
    let under_way = UnderWay {
        requests: Arc::clone(known),
        name: Some(name),
        // Until the end: the body is in memory.
        _share: parts.extensions.get::<Arc<BodyShare>>().cloned(),
    };
    let using = parts.extensions.get::<Arc<KeyUse>>().cloned();
    let request = Request::from_parts(parts, Body::from(bytes));
    known.spawn(async move {
        let ended = async {
            match using {
                Some(using) => using.ended().await,
                None => std::future::pending().await,
            }
        };
        let response = tokio::select! {
            biased;
            () = ended => ApiError::key_ended().into_response(),
            response = async { kept(next.run(request).await, under_way).await } => response,
        };
        // The client may have left.
        let _ = done.send(response);
    });
    answered.await.map_err(|_| ApiError::panicked())
}

/// A request that is carried out. Dropped without an answer, it is forgotten.
struct UnderWay {
    requests: Arc<Idempotency>,
    name: Option<Name>,
    _share: Option<Arc<BodyShare>>,
}

impl UnderWay {
    fn end(mut self, answer: Answer) {
        if let Some(name) = self.name.take() {
            self.requests.end(&name, answer);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.requests.requests().remove(&name);
        }
    }
}

/// Keeps an answer, and returns it. One that says that nothing was begun is not kept.
async fn kept(response: Response, under_way: UnderWay) -> Response {
    if is_refusal(response.status()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    // The answers of these routes are whole in memory already.
    match body.collect().await {
        Ok(collected) => {
            let body = collected.to_bytes();
            under_way.end(match body.len() > MAX_BYTES {
                true => Answer::TooLarge,
                false => Answer::Whole(Whole {
                    status: parts.status,
                    media: parts.headers.get(header::CONTENT_TYPE).cloned(),
                    body: body.clone(),
                }),
            });
            Response::from_parts(parts, Body::from(body))
        }
        Err(_) => ApiError::panicked().into_response(),
    }
}

/// Returns `true` for answers that ask to send the request again.
fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}

fn replayed(answer: Answer) -> Result<Response, ApiError> {
    let Answer::Whole(Whole { status, media, body }) = answer else {
        return Err(ApiError::new(
            Reason::Conflict,
            "the request was carried out, and its answer was too large to keep",
            "look at what it has made, or send it with another key to carry it out again",
        ));
    };
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    headers.extend(media.map(|media| (header::CONTENT_TYPE, media)));
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

impl Idempotency {
    fn requests(&self) -> MutexGuard<'_, HashMap<Name, Remembered>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a request that begins. Returns the answer that it had, if it is a repetition.
    fn begin(&self, name: &Name, body: Digest) -> Result<Option<Answer>, ApiError> {
        let mut requests = self.requests();
        let now = Instant::now();
        let is_fresh = |at: Instant| now.duration_since(at) < KEEPING;
        requests.retain(|_, known| known.answer.as_ref().is_none_or(|(at, _)| is_fresh(*at)));
        if let Some(known) = requests.get(name) {
            if known.body != body {
                return Err(ApiError::new(
                    Reason::Conflict,
                    "another body was sent with this key before",
                    "use a new key for each request",
                ));
            }
            let (_, answer) = known.answer.as_ref().ok_or_else(|| {
                ApiError::new(
                    Reason::InProgress,
                    "the request with this key is being carried out",
                    "send it again later for its answer",
                )
            })?;
            return Ok(Some(answer.clone()));
        }
        make_room(&mut requests, &name.account, Needed::Request)?;
        let remembered = Remembered { body, answer: None };
        requests.insert(name.clone(), remembered);
        Ok(None)
    }

    /// Forgets the answers to an account.
    pub(super) fn forget(&self, account: &Account) {
        self.requests().retain(|name, _| name.account != *account);
    }

    fn end(&self, name: &Name, answer: Answer) {
        let mut requests = self.requests();
        let size = match &answer {
            Answer::Whole(whole) => whole.body.len(),
            Answer::TooLarge => 0,
        };
        // Only its own answers give way.
        let has_room = make_room(&mut requests, &name.account, Needed::Answer(size)).is_ok();
        if let Some(known) = requests.get_mut(name) {
            let answer = if has_room { answer } else { Answer::TooLarge };
            known.answer = Some((Instant::now(), answer));
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Ends what is being carried out, and waits for that.
    pub(super) async fn close(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
    }
}

/// The room that is needed for an account.
#[derive(Debug, Clone, Copy)]
enum Needed {
    /// For one more request.
    Request,
    /// For an answer of so many bytes to one that is remembered.
    Answer(usize),
}

/// Forgets the oldest answers to an account until there is room.
fn make_room(
    requests: &mut HashMap<Name, Remembered>,
    account: &Account,
    needed: Needed,
) -> Result<(), ApiError> {
    let (more, size) = match needed {
        Needed::Request => (1, 0),
        Needed::Answer(size) => (0, size),
    };
    loop {
        let own = requests.iter().filter(|(name, _)| name.account == *account);
        let (mut count, mut bytes, mut oldest) = (0, size, None);
        for (name, known) in own {
            count += 1;
            let Some((at, answer)) = &known.answer else {
                continue;
            };
            if let Answer::Whole(whole) = answer {
                bytes += whole.body.len();
            }
            if oldest.as_ref().is_none_or(|(first, _)| at < first) {
                oldest = Some((*at, name.clone()));
            }
        }
        let oldest = if count + more > MAX_OF_CLIENT || bytes > MAX_BYTES {
            oldest
        } else if requests.len() + more > MAX {
            oldest_of_most(requests)
        } else {
            return Ok(());
        };
        let Some((_, oldest)) = oldest else {
            return Err(ApiError::new(
                Reason::Busy,
                "too many requests with an `Idempotency-Key` are being carried out",
                "send it again after `Retry-After`",
            ));
        };
        requests.remove(&oldest);
    }
}

/// Returns the oldest answer of the account with the most: it must not take the places of others.
fn oldest_of_most(requests: &HashMap<Name, Remembered>) -> Option<(Instant, Name)> {
    let mut answers: HashMap<&Account, Vec<(Instant, &Name)>> = HashMap::new();
    for (name, known) in requests {
        if let Some((at, _)) = &known.answer {
            answers.entry(&name.account).or_default().push((*at, name));
        }
    }
    let most = answers.into_values().max_by_key(Vec::len)?;
    let (at, name) = most.into_iter().min_by_key(|(at, _)| *at)?;
    Some((at, name.clone()))
}

/// Returns the key of a request.
fn key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    if !headers.contains_key(HEADER) {
        return Ok(None);
    }
    let key = single(headers, HEADER).filter(|key| (1..=MAX_KEY).contains(&key.len()));
    let key = key.filter(|key| key.bytes().all(|byte| byte.is_ascii_graphic()));
    key.map(|key| Some(key.to_owned())).ok_or_else(|| {
        ApiError::new(
            Reason::Malformed,
            format!("`{HEADER}` must be one word of 1 to {MAX_KEY} visible ASCII characters"),
            "send a random UUID, a new one for each request",
        )
    })
}

fn not_kept(what: &str) -> ApiError {
    ApiError::new(
        Reason::Malformed,
        format!("{what}, so `{HEADER}` has no effect here"),
        "leave it out; a repetition would be carried out again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(client: &str, key: &str) -> Name {
        Name {
            account: Account::of_client(client),
            target: "/v1/run".to_owned(),
            key: key.to_owned(),
        }
    }

    fn answer(size: usize) -> Answer {
        Answer::Whole(Whole {
            status: StatusCode::OK,
            media: None,
            body: vec![b'a'; size].into(),
        })
    }

    fn begin(known: &Idempotency, name: &Name, body: &str) -> Result<Option<usize>, u16> {
        let begun = known.begin(name, Digest::of(body.as_bytes()));
        let begun = begun.map_err(|error| error.into_response().status().as_u16())?;
        Ok(begun.map(|answer| match answer {
            Answer::Whole(whole) => whole.body.len(),
            Answer::TooLarge => usize::MAX,
        }))
    }

    #[test]
    fn a_request_is_carried_out_once_for_its_client_and_body() {
        let known = Idempotency::default();
        let one = name("one", "k");
        assert_eq!(begin(&known, &one, "a"), Ok(None));
        assert_eq!(begin(&known, &one, "a"), Err(409));
        known.end(&one, answer(3));
        assert_eq!(begin(&known, &one, "a"), Ok(Some(3)));
        assert_eq!(begin(&known, &one, "b"), Err(409));
        assert_eq!(begin(&known, &name("other", "k"), "b"), Ok(None));
    }

    #[test]
    fn what_is_kept_is_bounded_for_each_client() {
        let known = Idempotency::default();
        let many: Vec<Name> = (0..=MAX_OF_CLIENT)
            .map(|at| name("one", &at.to_string()))
            .collect();
        for name in &many[..MAX_OF_CLIENT] {
            assert_eq!(begin(&known, name, ""), Ok(None));
        }
        assert_eq!(begin(&known, &many[MAX_OF_CLIENT], ""), Err(429));
        assert_eq!(begin(&known, &name("other", ""), ""), Ok(None));
        known.end(&many[0], answer(MAX_BYTES));
        assert_eq!(begin(&known, &many[0], ""), Ok(Some(MAX_BYTES)));
        known.end(&many[1], answer(MAX_BYTES));
        // The older one gave way.
        assert_eq!(begin(&known, &many[0], ""), Ok(None));
        assert_eq!(begin(&known, &many[2], ""), Err(409));
    }

    #[test]
    fn accounts_with_many_answers_give_way_to_others() {
        let known = Idempotency::default();
        let all = (0..MAX).map(|at| name(&format!("many {}", at / MAX_OF_CLIENT), &at.to_string()));
        for name in all {
            assert_eq!(begin(&known, &name, ""), Ok(None));
            known.end(&name, answer(1));
        }
        assert_eq!(begin(&known, &name("other", "a"), ""), Ok(None));
        assert_eq!(known.requests.lock().unwrap().len(), MAX);
    }

    #[test]
    fn a_key_is_one_short_word() {
        let check = |keys: &[&str], expected: Option<Option<&str>>| {
            let mut headers = HeaderMap::new();
            for key in keys {
                headers.append(HEADER, HeaderValue::from_str(key).unwrap());
            }
            let found = key(&headers).ok();
            assert_eq!(found.as_ref().map(Option::as_deref), expected, "{keys:?}");
        };
        check(&[], Some(None));
        check(&["\"8e03978e\""], Some(Some("\"8e03978e\"")));
        for wrong in [&[""][..], &["a b"], &["ä"], &[&"a".repeat(256)], &["a", "b"]] {
            check(wrong, None);
        }
    }
}
