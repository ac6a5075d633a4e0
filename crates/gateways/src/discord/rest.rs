//! Client of Discord's REST API: obeys rate limits, bounds responses, and never reveals the token.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Method, StatusCode};
use ringfence_network::fetch::FetchRequest;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::Error;
use super::id::{ChannelId, InteractionId, MessageId};
use super::page::{Edit, Post, Response};
use crate::http::{Client, Failure};
use ringfence_gateway_protocol::{Secret, visible};

const AGENT: &str = concat!("DiscordBot (ringfence, ", env!("CARGO_PKG_VERSION"), ")");
const VERSION: &str = "v10";

/// Maximum size of a response.
const MAX_BODY: usize = 256 * 1024;
/// Maximum length of Discord's error messages, in characters.
const MAX_WORDS: usize = 200;
/// Timeout of one attempt.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Initial and maximum retry delay.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// Upper bound of a rate limit delay, even if Discord asks for more.
const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// Discord's error code for an interaction that was already acknowledged.
const ALREADY_ANSWERED: u64 = 40_060;

/// Client of Discord's REST API for one bot.
#[derive(Debug)]
pub(super) struct Rest {
    http: Client,
    base: String,
    token: Secret,
    gates: Mutex<Gates>,
}

/// Rate limits: times before which requests must wait.
#[derive(Debug, Default)]
struct Gates {
    all: Option<Instant>,
    /// By method and channel; bounded by the configured channels.
    routes: BTreeMap<String, Instant>,
}

struct Call {
    method: Method,
    path: String,
    body: Body,
    /// Rate limit bucket. `None` for responses to interactions, which are not limited.
    route: Option<String>,
    until: Instant,
    /// Set if failed attempts are repeated until the deadline. Otherwise the caller sees the first failure.
    repeats: bool,
}

enum Body {
    None,
    Json(Vec<u8>),
    Form { boundary: String, bytes: Vec<u8> },
}

enum Failed {
    For(Error),
    /// The gate was updated to the time of the next attempt.
    Limited,
    Now(String),
}

/// The bot's own account.
#[derive(Debug, Deserialize)]
pub(super) struct BotUser {
    pub(super) username: String,
}

#[derive(Deserialize)]
struct Created {
    id: MessageId,
}

impl Rest {
    /// Creates a client for the API at `base`.
    pub(super) async fn open(base: &str, token: &Secret) -> Result<Self, Error> {
        let http = Client::open(None, MAX_BODY).await;
        Ok(Self {
            http: http.map_err(|error| Error::Roots(error.to_string()))?,
            base: format!("{}/{VERSION}", base.trim_end_matches('/')),
            token: token.clone(),
            gates: Mutex::default(),
        })
    }

    /// Returns the bot's account; also verifies the token.
    pub(super) async fn me(&self, until: Instant) -> Result<BotUser, Error> {
        let call = Call::get("users/@me".to_owned(), until);
        self.read(self.send(&call).await?)
    }

    /// Checks that a channel exists and the bot can see it.
    pub(super) async fn channel(&self, channel: ChannelId, until: Instant) -> Result<(), Error> {
        self.send(&Call::get(format!("channels/{channel}"), until))
            .await
            .map(drop)
    }

    /// Posts a message. The nonce makes Discord deduplicate a retried post.
    pub(super) async fn post(
        &self,
        channel: ChannelId,
        post: &Post,
        until: Instant,
    ) -> Result<MessageId, Error> {
        let json = words(post)?;
        let call = Call {
            method: Method::POST,
            path: format!("channels/{channel}/messages"),
            body: match &post.file {
                Some(file) => form(&post.nonce, &json, file),
                None => Body::Json(json),
            },
            route: Some(format!("post {channel}")),
            until,
            repeats: true,
        };
        let created: Created = self.read(self.send(&call).await?)?;
        Ok(created.id)
    }

    pub(super) async fn edit(
        &self,
        channel: ChannelId,
        message: MessageId,
        edit: &Edit,
        until: Instant,
    ) -> Result<(), Error> {
        let call = Call {
            method: Method::PATCH,
            path: format!("channels/{channel}/messages/{message}"),
            body: Body::Json(words(edit)?),
            route: Some(format!("edit {channel}")),
            until,
            repeats: true,
        };
        self.send(&call).await.map(drop)
    }

    /// Responds to a press, within the three seconds that Discord allows.
    pub(super) async fn answer(
        &self,
        id: InteractionId,
        token: &str,
        response: &Response,
        until: Instant,
    ) -> Result<(), Error> {
        let call = Call {
            method: Method::POST,
            path: format!("interactions/{id}/{token}/callback"),
            body: Body::Json(words(response)?),
            route: None,
            until,
            repeats: true,
        };
        match self.send(&call).await {
            Err(Error::Refused {
                code: ALREADY_ANSWERED,
                ..
            }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Sends with retries until it succeeds, is refused, or the deadline has passed.
    async fn send(&self, call: &Call) -> Result<Value, Error> {
        self.try_send(call).await.map_err(|error| self.scrubbed(error))
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, value: Value) -> Result<T, Error> {
        let odd = |error: serde_json::Error| self.scrubbed(Error::Odd(visible(&error.to_string())));
        T::deserialize(value).map_err(odd)
    }

    /// Removes the token from an error: a proxy may echo our request.
    fn scrubbed(&self, error: Error) -> Error {
        // Truncates last: a truncated token would not be found.
        let scrub = |text: String| self.token.scrub(&text).chars().take(MAX_WORDS).collect();
        match error {
            Error::Unreachable(text) => Error::Unreachable(scrub(text)),
            Error::Odd(text) => Error::Odd(scrub(text)),
            Error::Refused {
                status,
                code,
                message,
            } => Error::Refused {
                status,
                code,
                message: scrub(message),
            },
            Error::NoChannels
            | Error::NoUsers
            | Error::Token
            | Error::Closed { .. }
            | Error::Channel(_)
            | Error::Limited
            | Error::Roots(_)
            | Error::Random(_) => error,
        }
    }

    async fn try_send(&self, call: &Call) -> Result<Value, Error> {
        let [mut pause, longest] = PAUSES;
        loop {
            let gate = self.gate(call);
            if gate > call.until {
                return Err(Error::Limited);
            }
            sleep_until(gate).await;
            match self.attempt(call).await {
                Ok(value) => return Ok(value),
                Err(Failed::For(error)) => return Err(error),
                Err(Failed::Limited) => {}
                Err(Failed::Now(why)) => {
                    let again = Instant::now() + pause;
                    if again > call.until || !call.repeats {
                        return Err(Error::Unreachable(why));
                    }
                    sleep_until(again).await;
                    pause = (pause * 2).min(longest);
                }
            }
        }
    }

    async fn attempt(&self, call: &Call) -> Result<Value, Failed> {
        let request = self.request(call).map_err(Failed::For)?;
        let until = call.until.min(Instant::now() + TIMEOUT);
        let page = match self.http.call(&request, until).await {
            Ok(page) => page,
            Err(Failure::TooLong(_)) => {
                return Err(Failed::For(Error::Odd(format!(
                    "it is longer than {MAX_BODY} bytes"
                ))));
            }
            Err(failure) => return Err(Failed::Now(visible(&failure.to_string()))),
        };
        let (status, headers) = (page.status, page.headers);
        // Null if there is none: errors may be HTML.
        let body: Value = serde_json::from_slice(&page.body).unwrap_or_default();
        self.mind(call, &headers);
        match status {
            StatusCode::TOO_MANY_REQUESTS => {
                self.limited(call, &headers, &body);
                Err(Failed::Limited)
            }
            StatusCode::UNAUTHORIZED if call.route.is_some() || call.method == Method::GET => {
                Err(Failed::For(Error::Token))
            }
            status if status.is_server_error() => {
                Err(Failed::Now(format!("it answers with status {status}")))
            }
            status if status.is_success() => Ok(body),
            status => Err(Failed::For(refused(status, &body))),
        }
    }

    fn request(&self, call: &Call) -> Result<FetchRequest, Error> {
        let header = |name: &str, value: String| (name.to_owned(), value);
        let mut headers = vec![
            header("user-agent", AGENT.to_owned()),
            header("authorization", format!("Bot {}", self.token.expose())),
        ];
        let body = match &call.body {
            Body::None => Vec::new(),
            Body::Json(json) => {
                headers.push(header("content-type", "application/json".to_owned()));
                json.clone()
            }
            Body::Form { boundary, bytes } => {
                let kind = format!("multipart/form-data; boundary={boundary}");
                headers.push(header("content-type", kind));
                bytes.clone()
            }
        };
        let url = format!("{}/{}", self.base, call.path);
        FetchRequest::new(&url, call.method.as_str(), &headers, body)
            .map_err(|error| Error::Odd(error.to_string()))
    }

    fn gate(&self, call: &Call) -> Instant {
        let now = Instant::now();
        let Some(route) = &call.route else { return now };
        let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = gates.routes.get(route).copied().max(gates.all);
        gate.map_or(now, |gate| gate.max(now))
    }

    fn shut(&self, route: Option<&String>, wait: Duration) {
        let until = Instant::now() + wait.min(MAX_WAIT);
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        match route {
            Some(route) => {
                gates.routes.insert(route.clone(), until);
            }
            None => gates.all = Some(until),
        }
    }

    /// Waits in advance if the rate limit bucket is empty.
    fn mind(&self, call: &Call, headers: &HeaderMap) {
        let spent = headers
            .get("x-ratelimit-remaining")
            .is_some_and(|left| left == "0");
        if let (true, Some(wait), Some(route)) = (
            spent,
            seconds(headers.get("x-ratelimit-reset-after")),
            &call.route,
        ) {
            self.shut(Some(route), wait);
        }
    }

    /// Applies the rate limit delay that Discord demands to this bucket, or to all.
    fn limited(&self, call: &Call, headers: &HeaderMap, body: &Value) {
        let told = body.get("retry_after").and_then(Value::as_f64).and_then(wait);
        let wait = told
            .or_else(|| seconds(headers.get(RETRY_AFTER)))
            .unwrap_or(PAUSES[1]);
        let global = body.get("global") == Some(&Value::Bool(true))
            || headers.contains_key("x-ratelimit-global")
            || headers
                .get("x-ratelimit-scope")
                .is_some_and(|scope| scope == "global");
        self.shut(call.route.as_ref().filter(|_| !global), wait);
    }
}

impl Call {
    fn get(path: String, until: Instant) -> Self {
        Self {
            method: Method::GET,
            route: Some("get".to_owned()),
            path,
            body: Body::None,
            until,
            repeats: false,
        }
    }
}

fn words(value: &impl serde::Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|error| Error::Odd(error.to_string()))
}

/// Encodes a message with a file as multipart form data.
fn form(nonce: &str, json: &[u8], file: &str) -> Body {
    // Random, without line breaks.
    let boundary = format!("ringfence-{nonce}");
    let mut bytes = Vec::with_capacity(json.len() + file.len() + 512);
    for piece in [
        format!("--{boundary}\r\ncontent-disposition: form-data; name=\"payload_json\"\r\n").as_bytes(),
        b"content-type: application/json\r\n\r\n",
        json,
        format!("\r\n--{boundary}\r\ncontent-disposition: form-data; name=\"files[0]\"; ").as_bytes(),
        b"filename=\"question.txt\"\r\ncontent-type: text/plain; charset=utf-8\r\n\r\n",
        file.as_bytes(),
        format!("\r\n--{boundary}--\r\n").as_bytes(),
    ] {
        bytes.extend_from_slice(piece);
    }
    Body::Form { boundary, bytes }
}

fn refused(status: StatusCode, body: &Value) -> Error {
    let message = body.get("message").and_then(Value::as_str).unwrap_or_default();
    Error::Refused {
        status: status.as_u16(),
        code: body.get("code").and_then(Value::as_u64).unwrap_or_default(),
        message: visible(message),
    }
}

fn seconds(value: Option<&HeaderValue>) -> Option<Duration> {
    wait(value?.to_str().ok()?.parse().ok()?)
}

fn wait(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}
