//! Client of the Bot API, without retries.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use ringfence_network::fetch::FetchRequest;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use tokio::time::Instant;

use super::Error;
use super::methods::GetUpdates;
use crate::http::{Client, Failure};
use crate::proxy::Proxy;
use ringfence_gateway_protocol::{Secret, visible};

/// Maximum size of a response.
const MAX_BODY: usize = 2 * 1024 * 1024;
/// Maximum number of updates per request: each contains its message.
const MAX_UPDATES: u32 = 20;
/// Upper bound of a requested delay.
const MAX_WAIT: Duration = Duration::from_secs(15 * 60);
/// Maximum length of Telegram's error messages.
const MAX_WORDS: usize = 200;

/// Timeouts of calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// Long polling timeout for updates.
    pub(crate) poll: Duration,
    /// Timeout of any call, in addition to that.
    pub(crate) call: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(50),
            call: Duration::from_secs(30),
        }
    }
}

/// Client of the Bot API for one bot.
#[derive(Debug, Clone)]
pub(super) struct Api {
    client: Arc<Client>,
    base: String,
    token: Secret,
    patience: Timeouts,
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    /// No response, or one of a proxy.
    #[error("telegram cannot be reached: {0}")]
    Unreachable(String),
    /// The rate limit requires a delay.
    #[error("telegram asks to wait {}s", .0.as_secs())]
    Busy(Duration),
    /// The bot token is invalid.
    #[error("telegram does not know the bot")]
    Token,
    /// Another program receives this bot's updates.
    #[error("another program receives this bot's updates: {0}")]
    Conflict(String),
    /// Telegram refused the call; a retry would fail again.
    #[error("telegram rejects the request: {0}")]
    Refused(String),
}

/// A response of the API.
#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    description: String,
    parameters: Option<Parameters>,
}

#[derive(Deserialize)]
struct Parameters {
    retry_after: Option<u64>,
}

pub(super) trait Update: DeserializeOwned {
    /// Kind of update, and the member that contains it.
    const KIND: &'static str;
}

impl Update for Query {
    const KIND: &'static str = "callback_query";
}

impl Update for Written {
    const KIND: &'static str = "message";
}

/// A message's user and chat, without its text.
#[derive(Debug, Deserialize)]
pub(super) struct Written {
    pub(super) from: From,
    pub(super) chat: Chat,
}

/// The needed parts of a press.
#[derive(Debug, Deserialize)]
pub(super) struct Query {
    pub(super) id: String,
    pub(super) from: From,
    pub(super) message: Option<Message>,
    #[serde(default)]
    pub(super) data: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct From {
    pub(super) id: i64,
    pub(super) username: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub(super) message_id: i32,
    pub(super) chat: Chat,
}

#[derive(Debug, Deserialize)]
pub(super) struct Chat {
    pub(super) id: i64,
}

/// The bot's own account.
#[derive(Debug, Deserialize)]
pub(super) struct BotUser {
    pub(super) username: Option<String>,
}

impl Api {
    /// Creates a client of the API at `base` for the bot with this token.
    pub(super) async fn open(base: &str, token: Secret, patience: Timeouts) -> Result<Self, Error> {
        let client = Client::open(Proxy::of_environment()?, MAX_BODY).await;
        Ok(Self {
            client: Arc::new(client.map_err(|error| Error::Setup(error.to_string()))?),
            base: base.trim_end_matches('/').to_owned(),
            token,
            patience,
        })
    }

    /// Returns the bot's account.
    pub(super) async fn get_me(&self) -> Result<BotUser, CallError> {
        self.call("getMe", &serde_json::json!({}), self.patience.call)
            .await
    }

    /// Waits for updates of a kind; returns those that can be parsed, and the next offset.
    pub(super) async fn get_updates<T: Update>(&self, from: i64) -> Result<(Vec<T>, i64), CallError> {
        let params = GetUpdates {
            offset: from,
            limit: MAX_UPDATES,
            timeout: self.patience.poll.as_secs(),
            allowed_updates: [T::KIND],
        };
        let deadline = self.patience.poll + self.patience.call;
        let updates: Vec<Value> = self.call("getUpdates", &params, deadline).await?;
        Ok(understood(updates, from))
    }

    /// Sends a message, and returns its id.
    pub(super) async fn send(&self, params: &impl Serialize) -> Result<i32, CallError> {
        #[derive(Deserialize)]
        struct Sent {
            message_id: i32,
        }
        let sent: Sent = self.call("sendMessage", params, self.patience.call).await?;
        Ok(sent.message_id)
    }

    pub(super) async fn edit(&self, params: &impl Serialize) -> Result<(), CallError> {
        let done: Result<IgnoredAny, _> = self.call("editMessageText", params, self.patience.call).await;
        done.map(drop)
    }

    /// Responds to a press with a short text.
    pub(super) async fn answer(&self, params: &impl Serialize) -> Result<(), CallError> {
        let done: Result<IgnoredAny, _> = self.call("answerCallbackQuery", params, self.patience.call).await;
        done.map(drop)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        deadline: Duration,
    ) -> Result<T, CallError> {
        let refused = |error: String| self.scrubbed(CallError::Refused(error));
        let body = serde_json::to_vec(params).map_err(|error| refused(error.to_string()))?;
        let url = format!("{}/bot{}/{method}", self.base, self.token.expose());
        let json = [("content-type".to_owned(), "application/json".to_owned())];
        let request =
            FetchRequest::new(&url, "POST", &json, body).map_err(|error| refused(error.to_string()))?;
        let answered = self.client.call(&request, Instant::now() + deadline).await;
        let page = answered.map_err(|failure| self.scrubbed(unreachable(&failure)))?;
        judged(page.status, &page.body).map_err(|fault| self.scrubbed(fault))
    }

    fn scrubbed(&self, fault: CallError) -> CallError {
        // Truncates last: a truncated token would not be found.
        let scrub = |text: String| self.token.scrub(&text).chars().take(MAX_WORDS).collect();
        match fault {
            CallError::Unreachable(text) => CallError::Unreachable(scrub(text)),
            CallError::Conflict(text) => CallError::Conflict(scrub(text)),
            CallError::Refused(text) => CallError::Refused(scrub(text)),
            CallError::Busy(_) | CallError::Token => fault,
        }
    }
}

/// Converts a response. A proxy's response may have any form.
fn judged<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, CallError> {
    let answer: Result<Answer, _> = serde_json::from_slice(body);
    let Ok(answer) = answer else {
        return Err(CallError::Unreachable(format!(
            "status {} without an answer",
            status.as_u16()
        )));
    };
    if answer.ok {
        let odd =
            |error: serde_json::Error| CallError::Unreachable(format!("an answer of another kind: {error}"));
        return T::deserialize(answer.result).map_err(odd);
    }
    let words = visible(&answer.description);
    Err(match status.as_u16() {
        429 => {
            let seconds = answer.parameters.and_then(|parameters| parameters.retry_after);
            CallError::Busy(Duration::from_secs(seconds.unwrap_or(5)).min(MAX_WAIT))
        }
        401 | 404 => CallError::Token,
        409 => CallError::Conflict(words),
        400..=499 => CallError::Refused(words),
        status => CallError::Unreachable(format!("status {status}: {words}")),
    })
}

/// Parses updates. An invalid one is skipped, or it would be sent again forever.
fn understood<T: Update>(updates: Vec<Value>, from: i64) -> (Vec<T>, i64) {
    let mut next = from;
    let mut found = Vec::new();
    for mut update in updates {
        if let Some(id) = update["update_id"].as_i64() {
            next = next.max(id.saturating_add(1));
        }
        let inner = update.get_mut(T::KIND).map(Value::take);
        found.extend(inner.and_then(|inner| T::deserialize(inner).ok()));
    }
    (found, next)
}

fn unreachable(failure: &Failure) -> CallError {
    CallError::Unreachable(visible(&failure.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn an_answer_is_told_from_what_stands_in_its_way() {
        let check = |status: u16, body: &str, expected: Result<Value, CallError>| {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(
                judged::<Value>(status, body.as_bytes()),
                expected,
                "{status} {body}"
            );
        };
        let refusal = |code: u16| json!({"ok": false, "error_code": code, "description": "no"}).to_string();
        check(200, r#"{"ok":true,"result":7}"#, Ok(json!(7)));
        check(401, &refusal(401), Err(CallError::Token));
        check(404, &refusal(404), Err(CallError::Token));
        check(403, &refusal(403), Err(CallError::Refused("no".to_owned())));
        check(409, &refusal(409), Err(CallError::Conflict("no".to_owned())));
        let wait = |seconds| Err(CallError::Busy(Duration::from_secs(seconds)));
        check(429, r#"{"ok":false,"parameters":{"retry_after":7}}"#, wait(7));
        check(
            429,
            r#"{"ok":false,"parameters":{"retry_after":99999999}}"#,
            wait(15 * 60),
        );
        check(429, &refusal(429), wait(5));
        for (status, body) in [
            (502, "<html>Bad Gateway</html>"),
            (403, "<html>a proxy</html>"),
            (302, ""),
            (200, "{}"),
            (500, &refusal(500)),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let judged = judged::<Value>(status, body.as_bytes());
            assert!(
                matches!(judged, Err(CallError::Unreachable(_))),
                "{status}: {judged:?}"
            );
        }
    }

    #[test]
    fn what_is_not_understood_is_passed_over() {
        let press = json!({"id": "1", "from": {"id": 7, "is_bot": false}, "data": "x"});
        let updates = vec![
            json!({"update_id": 10, "message": {"text": "hello"}}),
            json!({"update_id": 12, "callback_query": press}),
            json!({"update_id": 11, "callback_query": {"id": 5}}),
            json!("odd"),
            json!({"update_id": i64::MAX}),
        ];
        let (queries, next) = understood::<Query>(updates, 3);
        assert_eq!((queries.len(), next), (1, i64::MAX));
        assert_eq!(understood::<Written>(Vec::new(), 3).1, 3);
    }

    async fn get_me(base: &str) -> Result<BotUser, CallError> {
        let patience = Timeouts {
            poll: Duration::ZERO,
            call: Duration::from_millis(500),
        };
        let token = Secret::new("1:hidden").unwrap();
        Api::open(base, token, patience).await.unwrap().get_me().await
    }

    #[track_caller]
    fn expect_unreachable(result: Result<BotUser, CallError>, words: &str) {
        let fault = result.unwrap_err();
        let text = fault.to_string();
        assert!(
            matches!(fault, CallError::Unreachable(_)) && text.contains(words),
            "{text}"
        );
        assert!(!text.contains("hidden") && !text.contains("/bot"), "{text}");
    }

    #[tokio::test]
    async fn a_call_ends_whatever_the_other_side_does_and_tells_no_token() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // It accepts connections, but never responds.
        expect_unreachable(get_me(&format!("http://{address}")).await, "no answer in time");
        let mut server = tokio::task::JoinSet::new();
        server.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let head = "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n";
                // The client disconnects before the end.
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(&[b' '; 4096]).await.is_ok() {}
            }
        });
        expect_unreachable(get_me(&format!("http://{address}")).await, "more than");
        // Plain HTTP on a port where TLS is expected.
        expect_unreachable(
            get_me(&format!("https://{address}")).await,
            "the server offers no tls version",
        );
    }
}
