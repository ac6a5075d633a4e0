//! Client of Discord's REST API: obeys rate limits, bounds responses, and never reveals the token.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use reqwest::{Client, Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};
use twilight_model::http::interaction::InteractionResponse;
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, InteractionMarker, MessageMarker};

use super::Error;
use super::page::{Edit, Post};
use crate::tls;
use ringfence_server::gateway::{Secret, visible};

const AGENT: &str = concat!("DiscordBot (ringfence, ", env!("CARGO_PKG_VERSION"), ")");
const VERSION: &str = "v10";

/// Maximum size of a response.
const MAX_BODY: usize = 256 * 1024;
/// Maximum length of Discord's error messages, in characters.
const MAX_WORDS: usize = 200;
/// Timeout of one attempt.
const PATIENCE: Duration = Duration::from_secs(15);
/// Initial and maximum retry delay.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// Upper bound of a rate limit delay, whatever Discord says.
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
    /// Set if a failed attempt is repeated until then. Otherwise the caller sees the first failure.
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
pub(super) struct Me {
    pub(super) username: String,
}

#[derive(Deserialize)]
struct Created {
    id: Id<MessageMarker>,
}

impl Rest {
    /// Creates a client for the API at `base`.
    pub(super) fn new(base: &str, token: &Secret) -> Result<Self, Error> {
        tls::use_ring();
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let mut authorization =
            HeaderValue::from_str(&format!("Bot {}", token.expose())).map_err(|_| Error::Token)?;
        authorization.set_sensitive(true);
        headers.insert(AUTHORIZATION, authorization);
        let http = Client::builder()
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(PATIENCE)
            .timeout(PATIENCE)
            .build()
            .map_err(|error| Error::Unreachable(cause(error)))?;
        Ok(Self {
            http,
            base: format!("{}/{VERSION}", base.trim_end_matches('/')),
            token: token.clone(),
            gates: Mutex::default(),
        })
    }

    /// Returns the bot's account; also verifies the token.
    pub(super) async fn me(&self, until: Instant) -> Result<Me, Error> {
        let call = Call::get("users/@me".to_owned(), until);
        self.read(self.send(&call).await?)
    }

    /// Checks that a channel exists and the bot can see it.
    pub(super) async fn channel(&self, channel: Id<ChannelMarker>, until: Instant) -> Result<(), Error> {
        self.send(&Call::get(format!("channels/{channel}"), until))
            .await
            .map(drop)
    }

    /// Posts a message. The nonce makes Discord deduplicate a retried post.
    pub(super) async fn post(
        &self,
        channel: Id<ChannelMarker>,
        post: &Post,
        until: Instant,
    ) -> Result<Id<MessageMarker>, Error> {
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
        place: (Id<ChannelMarker>, Id<MessageMarker>),
        edit: &Edit,
        until: Instant,
    ) -> Result<(), Error> {
        let (channel, message) = place;
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
        press: (Id<InteractionMarker>, &str),
        response: &InteractionResponse,
        until: Instant,
    ) -> Result<(), Error> {
        let (id, token) = press;
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
        let url = format!("{}/{}", self.base, call.path);
        let request = self.http.request(call.method.clone(), url);
        let request = match &call.body {
            Body::None => request,
            Body::Json(json) => request
                .header(CONTENT_TYPE, "application/json")
                .body(json.clone()),
            Body::Form { boundary, bytes } => request
                .header(CONTENT_TYPE, format!("multipart/form-data; boundary={boundary}"))
                .body(bytes.clone()),
        };
        let exchange = async {
            let response = request.send().await.map_err(|error| Failed::Now(cause(error)))?;
            let (status, headers) = (response.status(), response.headers().clone());
            Ok((status, headers, body(response).await?))
        };
        let (status, headers, body) = timeout_at(call.until, exchange)
            .await
            .map_err(|_| Failed::Now("it does not answer in time".to_owned()))??;
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

    /// Waits as long as Discord says, for this bucket or for all.
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

/// Parses a response's JSON; null if it has none, since errors may be HTML.
async fn body(mut response: Response) -> Result<Value, Failed> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| Failed::Now(cause(error)))?
    {
        if bytes.len() + chunk.len() > MAX_BODY {
            return Err(Failed::For(Error::Odd(format!(
                "it is longer than {MAX_BODY} bytes"
            ))));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
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

/// Renders a cause without the URL: those of responses to interactions are secret.
fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(deeper) = source {
        text = deeper.to_string();
        source = deeper.source();
    }
    visible(&text)
}
