//! Connects to a server over MCP's Streamable HTTP transport: a POST for each message, responses as JSON or
//! as events.

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
use ringfence_exec::key::Key;
use ringfence_network::egress::{AttemptLog, Guard};
use ringfence_network::fetch::{Scheme, Trust, Url, secure};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::echo::hide;
use super::events::Events;
use super::wire::{Incoming, MAX_MESSAGE, Outgoing, TransportEnd, read, too_long};

/// Timeout of a connection, and of a message without a response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of the request that ends a session.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum number of concurrent HTTP requests.
const AT_ONCE: usize = 32;

/// Maximum size of the buffer for response headers.
const MAX_BUFFER: usize = 64 * 1024;

/// Maximum length of a session id, and of a protocol version, that is sent back to a server.
const MAX_SESSION: usize = 4 * 1024;
const MAX_VERSION: usize = 32;

/// Maximum number of consecutive reconnects without an event.
const MAX_IN_VAIN: u32 = 32;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("ringfence/", env!("CARGO_PKG_VERSION")));
const EITHER: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Headers that frame a message, or that this client sets itself.
const OURS: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
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
    /// Creates a header with a prefix before its value. `None` if the header is reserved.
    pub fn new(header: &str, prefix: String, key: Key) -> Option<Self> {
        let header = HeaderName::try_from(header).ok()?;
        let is_free = !OURS.contains(&header.as_str());
        is_free.then_some(Self { header, prefix, key })
    }
}

/// A remote server: its endpoint and how to connect to it.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) url: Url,
    pub(super) credentials: Vec<Credential>,
    pub(super) guard: Guard,
    pub(super) trust: Arc<Trust>,
}

/// Negotiated session id and protocol version.
#[derive(Debug, Default)]
struct Agreed {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

/// An HTTP request to send.
struct Job {
    /// Id of the JSON-RPC request that expects a response.
    id: Option<u64>,
    method: Method,
    body: Vec<u8>,
    /// Id of the event after which to resume a stream.
    last: Option<HeaderValue>,
}

/// An interrupted stream of events, which may be resumed.
struct Interrupted {
    last: Option<HeaderValue>,
    pause: Duration,
    /// Set if an event was received.
    said: bool,
}

/// Sends and receives messages until there are no more.
pub(super) async fn carry(site: Arc<Site>, carried: TransportEnd) {
    let TransportEnd { mut out, back } = carried;
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
            // Even while responses are pending.
            () = post.back.closed() => break,
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
                under_way.push(post.supervise(Job::post(Some(id), body), Some(forgotten)));
            }
            // No message may overtake the one that opens the session.
            Some(Outgoing::Notice(body)) if !is_open => {
                is_open = true;
                tokio::select! {
                    _ = post.supervise(Job::post(None, body), None) => {}
                    () = post.back.closed() => break,
                }
                under_way.push(post.supervise(Job::listen(), Some(forgotten)));
                open.insert(0, forget);
            }
            Some(Outgoing::Notice(body)) => under_way.push(post.supervise(Job::post(None, body), None)),
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
            last: None,
        }
    }

    /// Opens a stream for the server's own messages.
    fn listen() -> Self {
        Self {
            id: None,
            method: Method::GET,
            body: Vec::new(),
            last: None,
        }
    }

    /// Resumes an interrupted stream.
    fn resume(id: Option<u64>, last: Option<HeaderValue>) -> Self {
        Self {
            id,
            last,
            ..Self::listen()
        }
    }

    /// Returns `true` for a stream of the server's own messages only.
    fn is_listening(&self) -> bool {
        self.id.is_none() && self.method == Method::GET
    }

    fn leave() -> Self {
        Self {
            method: Method::DELETE,
            ..Self::listen()
        }
    }
}

/// A request with the credentials in it.
struct Message {
    request: Request<Full<Bytes>>,
    secrets: Vec<String>,
}

/// Sender of messages and receiver of responses.
struct Post<'a> {
    site: &'a Site,
    agreed: &'a Mutex<Agreed>,
    back: mpsc::Sender<Incoming>,
}

impl Post<'_> {
    /// Sends a message and receives its responses until it is cancelled; returns its id.
    async fn supervise(&self, job: Job, forgotten: Option<oneshot::Receiver<()>>) -> Option<u64> {
        let until = async {
            match forgotten {
                Some(forgotten) => drop(forgotten.await),
                None => tokio::time::sleep(TIMEOUT).await,
            }
        };
        let done = tokio::select! {
            done = self.converse(&job) => done,
            () = until => Ok(()),
        };
        if let Some(id) = job.id {
            let why = done.err().unwrap_or_else(|| "it gave no answer".to_owned());
            // Ignored if there was a response.
            let _ = self.back.send(Incoming::Lost(id, why)).await;
        }
        job.id
    }

    /// Sends a message, and resumes a response stream that is interrupted.
    async fn converse(&self, job: &Job) -> Result<(), String> {
        let mut interrupted = self.exchange(job).await?;
        let (mut last, mut in_vain) = (None, 0);
        while let Some(Interrupted {
            last: newer,
            pause,
            said,
        }) = interrupted
        {
            in_vain = if said { 0 } else { in_vain + 1 };
            if in_vain > MAX_IN_VAIN {
                break;
            }
            last = newer.or(last);
            tokio::time::sleep(pause).await;
            interrupted = self.exchange(&Job::resume(job.id, last.clone())).await?;
        }
        Ok(())
    }

    async fn exchange(&self, job: &Job) -> Result<Option<Interrupted>, String> {
        let Site {
            url, guard, trust, ..
        } = self.site;
        // Fails before connecting if a credential cannot be read.
        let message = self.message(job).await?;
        let deadline = Instant::now() + TIMEOUT;
        let log = AttemptLog::default();
        let stream = guard.connect(&url.host, url.port, deadline, &log).await;
        let stream = stream.map_err(|error| format!("{error} ({})", error.hint()))?;
        match url.scheme {
            Scheme::Http => self.speak(stream, message, job).await,
            Scheme::Https => {
                let secured = timeout(TIMEOUT, secure(stream, url, trust)).await;
                let secured = secured.map_err(|_| "it did not answer in time".to_owned())?;
                let stream = secured.map_err(|fault| fault.to_string())?;
                self.speak(stream, message, job).await
            }
        }
    }

    async fn speak<S>(&self, stream: S, message: Message, job: &Job) -> Result<Option<Interrupted>, String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let broken = |_| "it does not speak HTTP as it should".to_owned();
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_BUFFER);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(broken)?;
        let answer = async {
            let response = sender.send_request(message.request).await.map_err(broken)?;
            self.receive(response, job, &message.secrets).await
        };
        tokio::pin!(answer);
        tokio::select! {
            done = &mut answer => done,
            // The server may close the connection after the last byte; buffered data can still be read.
            _ = connection => answer.await,
        }
    }

    /// Creates the request, and returns the credentials in it.
    async fn message(&self, job: &Job) -> Result<Message, String> {
        let site = self.site;
        let mut request = Request::new(Full::new(Bytes::from(job.body.clone())));
        *request.method_mut() = job.method.clone();
        let target = site.url.target.parse();
        *request.uri_mut() = target.map_err(|_| "its address cannot be asked for".to_owned())?;
        let headers = request.headers_mut();
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
        for (name, value) in [
            (SESSION, &agreed.session),
            (VERSION, &agreed.version),
            (LAST_EVENT, &job.last),
        ] {
            value.clone().map(|value| headers.insert(name, value));
        }
        Ok(Message { request, secrets })
    }

    async fn receive(
        &self,
        response: Response<Body>,
        job: &Job,
        secrets: &[String],
    ) -> Result<Option<Interrupted>, String> {
        let (head, body) = response.into_parts();
        match head.status {
            StatusCode::OK => {}
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => return Ok(None),
            StatusCode::NOT_FOUND if job.method == Method::POST && self.session().is_some() => {
                let ended = Incoming::Ended("it knows nothing of our session any more".to_owned());
                let _ = self.back.send(ended).await;
                return Ok(None);
            }
            status => return Err(format!("it answers with the status {}", status.as_u16())),
        }
        if let Some(session) = head.headers.get(SESSION)
            && job.method == Method::POST
        {
            if !is_name(session) {
                return Err("its session id is not a valid header value".to_owned());
            }
            let mut agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
            agreed.session.get_or_insert_with(|| session.clone());
        }
        match is_stream(&head.headers) {
            true => self.events(body, job, secrets).await,
            false => self.whole(body, secrets).await.map(|()| None),
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
        self.said(&kept, secrets).await.map(drop)
    }

    /// Reads events until the response has arrived: a server could leave the stream open forever.
    async fn events(
        &self,
        mut body: Body,
        job: &Job,
        secrets: &[String],
    ) -> Result<Option<Interrupted>, String> {
        let (mut events, mut said) = (Events::default(), false);
        let ended = loop {
            let data = match data(&mut body).await {
                Ok(Some(data)) => data,
                Ok(None) => break Ok(None),
                Err(why) => break Err(why),
            };
            for event in events.take(&data)? {
                said = true;
                if self.said(&event, secrets).await? == job.id && job.id.is_some() {
                    return Ok(None);
                }
            }
        };
        let last = events.last().and_then(|last| HeaderValue::from_bytes(last).ok());
        let resumable = job.is_listening() || last.is_some() || job.last.is_some();
        let pause = events.pause();
        match resumable {
            true => Ok(Some(Interrupted { last, pause, said })),
            false => ended,
        }
    }

    /// Forwards a message; returns the id of the request if it is a response.
    async fn said(&self, message: &[u8], secrets: &[String]) -> Result<Option<u64>, String> {
        let Some(mut message) = read(message)? else {
            return Err("its response is not a message of the protocol".to_owned());
        };
        hide(&mut message, secrets);
        let version = message.pointer("/result/protocolVersion").and_then(Value::as_str);
        if let Some(version) = version.filter(|version| version.len() <= MAX_VERSION)
            && let Ok(version) = HeaderValue::from_str(version)
        {
            let mut agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
            agreed.version.get_or_insert(version);
        }
        let answered = match message.get("method") {
            None => message.get("id").and_then(Value::as_u64),
            Some(_) => None,
        };
        let _ = self.back.send(Incoming::Said(message)).await;
        Ok(answered)
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

/// Returns `true` if a session id is valid: visible ASCII of bounded length.
fn is_name(session: &HeaderValue) -> bool {
    session.len() <= MAX_SESSION && session.as_bytes().iter().all(u8::is_ascii_graphic)
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start()
        .to_ascii_lowercase()
        .starts_with("text/event-stream")
}
