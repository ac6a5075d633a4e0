//! A server that is reached over HTTP, as MCP streams it: a POST for each message, answers as JSON or as events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming as Body};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::events::Events;
use super::wire::{Carried, Incoming, MAX_MESSAGE, Outgoing, read, too_long};
use crate::assessor::Key;
use crate::egress::{AttemptLog, Guard};
use crate::fetch::{Scheme, Trust, Url, secure};

/// How long a connection may take, and a message to which there is no answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the end of a session may take.
const GRACE: Duration = Duration::from_secs(1);

/// Exchanges at once.
const AT_ONCE: usize = 32;

/// How much is buffered of the head of an answer.
const MAX_BUFFER: usize = 64 * 1024;

/// The shortest credential that is looked for in answers: shorter ones are found by chance.
const MIN_ECHO: usize = 8;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("ringfence/", env!("CARGO_PKG_VERSION")));
const EITHER: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Headers that say how a message is framed, or what we say of it ourselves.
const OURS: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A header with a credential.
#[derive(Debug, Clone)]
pub struct Credential {
    header: HeaderName,
    prefix: String,
    /// Read for each message.
    key: Key,
}

impl Credential {
    /// The header of this name, with what stands before the value in it. `None`: that header is not free.
    pub fn new(header: &str, prefix: String, key: Key) -> Option<Self> {
        let header = HeaderName::try_from(header).ok()?;
        let is_free = !OURS.contains(&header.as_str());
        is_free.then_some(Self { header, prefix, key })
    }
}

/// Where a server is, and how it is gone to.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) url: Url,
    pub(super) credentials: Vec<Credential>,
    pub(super) guard: Guard,
    pub(super) trust: Arc<Trust>,
}

/// What was agreed on.
#[derive(Debug, Default)]
struct Agreed {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

/// One message on its way.
struct Job {
    id: Option<u64>,
    method: Method,
    body: Vec<u8>,
}

/// Carries messages until there are no more.
pub(super) async fn carry(site: Arc<Site>, carried: Carried) {
    let Carried { mut out, back } = carried;
    let agreed = Mutex::new(Agreed::default());
    let post = Post {
        site: &site,
        agreed: &agreed,
        back,
    };
    let mut under_way = FuturesUnordered::new();
    let mut open: HashMap<u64, oneshot::Sender<()>> = HashMap::new();
    let mut is_open = false;
    loop {
        let next = tokio::select! {
            Some(done) = under_way.next(), if !under_way.is_empty() => {
                let done: Option<u64> = done;
                done.map(|id| open.remove(&id));
                continue;
            }
            next = out.recv(), if under_way.len() < AT_ONCE => next,
        };
        let (forget, forgotten) = oneshot::channel();
        match next {
            None => break,
            Some(Outgoing::Forget(id)) => drop(open.remove(&id)),
            Some(Outgoing::Request(id, body)) => {
                open.insert(id, forget);
                under_way.push(post.attend(Job::post(Some(id), body), Some(forgotten)));
            }
            // Nothing may overtake the word that opens a session.
            Some(Outgoing::Notice(body)) if !is_open => {
                is_open = true;
                post.attend(Job::post(None, body), None).await;
                under_way.push(post.attend(Job::listen(), Some(forgotten)));
                open.insert(0, forget);
            }
            Some(Outgoing::Notice(body)) => under_way.push(post.attend(Job::post(None, body), None)),
        }
    }
    drop(under_way);
    if post.session().is_some() {
        let _ = timeout(GRACE, post.exchange(&Job::leave())).await;
    }
}

impl Job {
    fn post(id: Option<u64>, body: Vec<u8>) -> Self {
        Self {
            id,
            method: Method::POST,
            body,
        }
    }

    /// For what the server says by itself.
    fn listen() -> Self {
        Self {
            id: None,
            method: Method::GET,
            body: Vec::new(),
        }
    }

    fn leave() -> Self {
        Self {
            method: Method::DELETE,
            ..Self::listen()
        }
    }
}

/// A request, and the credentials in it.
type Message = (Request<Full<Bytes>>, Vec<String>);

/// What sends messages, and hears what is answered.
struct Post<'a> {
    site: &'a Site,
    agreed: &'a Mutex<Agreed>,
    back: mpsc::Sender<Incoming>,
}

impl Post<'_> {
    /// Sends a message and hears its answers, until it is forgotten; gives its id back.
    async fn attend(&self, job: Job, forgotten: Option<oneshot::Receiver<()>>) -> Option<u64> {
        let until = async {
            match forgotten {
                Some(forgotten) => drop(forgotten.await),
                None => tokio::time::sleep(PATIENCE).await,
            }
        };
        let done = tokio::select! {
            done = self.exchange(&job) => done,
            () = until => Ok(()),
        };
        if let Some(id) = job.id {
            let why = done.err().unwrap_or_else(|| "it gave no answer".to_owned());
            // Where there was an answer, this is nobody's.
            let _ = self.back.send(Incoming::Lost(id, why)).await;
        }
        job.id
    }

    async fn exchange(&self, job: &Job) -> Result<(), String> {
        let Site {
            url, guard, trust, ..
        } = self.site;
        // Without its credentials nothing is begun.
        let message = self.message(job).await?;
        let deadline = Instant::now() + PATIENCE;
        let log = AttemptLog::default();
        let stream = guard.connect(&url.host, url.port, deadline, &log).await;
        let stream = stream.map_err(|error| format!("{error} ({})", error.hint()))?;
        match url.scheme {
            Scheme::Http => self.speak(stream, message, job).await,
            Scheme::Https => {
                let secured = timeout(PATIENCE, secure(stream, url, trust)).await;
                let secured = secured.map_err(|_| "it did not answer in time".to_owned())?;
                let stream = secured.map_err(|fault| fault.to_string())?;
                self.speak(stream, message, job).await
            }
        }
    }

    async fn speak<S>(&self, stream: S, (message, secrets): Message, job: &Job) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let broken = |_| "it does not speak HTTP as it should".to_owned();
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_BUFFER);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(broken)?;
        let answer = async {
            let response = sender.send_request(message).await.map_err(broken)?;
            self.hear(response, job, &secrets).await
        };
        tokio::pin!(answer);
        tokio::select! {
            done = &mut answer => done,
            // The server may hang up behind the last byte; what was received is still there to be read.
            _ = connection => answer.await,
        }
    }

    /// The message, and the credentials in it.
    async fn message(&self, job: &Job) -> Result<Message, String> {
        let site = self.site;
        let mut message = Request::new(Full::new(Bytes::from(job.body.clone())));
        *message.method_mut() = job.method.clone();
        let target = site.url.target.parse();
        *message.uri_mut() = target.map_err(|_| "its address cannot be asked for".to_owned())?;
        let headers = message.headers_mut();
        let host = HeaderValue::try_from(site.url.authority());
        headers.insert(
            header::HOST,
            host.map_err(|_| "its host cannot be named".to_owned())?,
        );
        headers.insert(header::USER_AGENT, USER_AGENT);
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        let accept = if job.method == Method::GET { EVENTS } else { EITHER };
        headers.insert(header::ACCEPT, accept);
        if job.method == Method::POST {
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        let mut secrets = Vec::new();
        for Credential { header, prefix, key } in &site.credentials {
            let secret = key.read().await.map_err(|error| error.to_string())?.into_text();
            let value = HeaderValue::try_from(format!("{prefix}{secret}"));
            let mut value = value.map_err(|_| format!("the value of `{header}` cannot be sent"))?;
            value.set_sensitive(true);
            headers.insert(header.clone(), value);
            secrets.push(secret);
        }
        let agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        agreed
            .session
            .clone()
            .map(|session| headers.insert(SESSION, session));
        agreed
            .version
            .clone()
            .map(|version| headers.insert(VERSION, version));
        Ok((message, secrets))
    }

    async fn hear(&self, response: Response<Body>, job: &Job, secrets: &[String]) -> Result<(), String> {
        let (head, body) = response.into_parts();
        match head.status {
            StatusCode::OK => {}
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => return Ok(()),
            StatusCode::NOT_FOUND if job.method == Method::POST && self.session().is_some() => {
                let ended = Incoming::Ended("it knows nothing of our session any more".to_owned());
                let _ = self.back.send(ended).await;
                return Ok(());
            }
            status => return Err(format!("it answers with the status {}", status.as_u16())),
        }
        if let Some(session) = head.headers.get(SESSION)
            && job.method == Method::POST
        {
            let mut agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
            agreed.session.get_or_insert_with(|| session.clone());
        }
        match is_stream(&head.headers) {
            true => self.events(body, secrets).await,
            false => self.whole(body, secrets).await,
        }
    }

    async fn whole(&self, mut body: Body, secrets: &[String]) -> Result<(), String> {
        let mut kept = Vec::new();
        while let Some(data) = data(&mut body).await? {
            if kept.len() + data.len() > MAX_MESSAGE {
                return Err(too_long());
            }
            kept.extend_from_slice(&data);
        }
        self.said(&kept, secrets).await
    }

    async fn events(&self, mut body: Body, secrets: &[String]) -> Result<(), String> {
        let mut events = Events::default();
        while let Some(data) = data(&mut body).await? {
            for event in events.take(&data)? {
                self.said(&event, secrets).await?;
            }
        }
        Ok(())
    }

    async fn said(&self, message: &[u8], secrets: &[String]) -> Result<(), String> {
        let Some(mut message) = read(message)? else {
            return Err("its answer is no message".to_owned());
        };
        hide(&mut message, secrets);
        let version = message.pointer("/result/protocolVersion").and_then(Value::as_str);
        if let Some(Ok(version)) = version.map(HeaderValue::from_str) {
            let mut agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
            agreed.version.get_or_insert(version);
        }
        let _ = self.back.send(Incoming::Said(message)).await;
        Ok(())
    }

    fn session(&self) -> Option<HeaderValue> {
        let agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        agreed.session.clone()
    }
}

async fn data(body: &mut Body) -> Result<Option<Bytes>, String> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "its answer ends too soon".to_owned())?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start()
        .to_ascii_lowercase()
        .starts_with("text/event-stream")
}

/// Takes credentials out of what a server sends back: they are none of a program's business.
fn hide(value: &mut Value, secrets: &[String]) {
    match value {
        Value::String(text) => {
            for secret in secrets.iter().filter(|secret| secret.len() >= MIN_ECHO) {
                if text.contains(secret.as_str()) {
                    *text = text.replace(secret.as_str(), "[REDACTED]");
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| hide(value, secrets)),
        Value::Object(members) => members.values_mut().for_each(|value| hide(value, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn credentials_are_not_sent_back() {
        let secrets = ["secret-token".to_owned(), "a".to_owned()];
        let mut value = json!({"a": ["it was secret-token!", 1], "b": "a"});
        hide(&mut value, &secrets);
        assert_eq!(value, json!({"a": ["it was [REDACTED]!", 1], "b": "a"}));
    }
}
