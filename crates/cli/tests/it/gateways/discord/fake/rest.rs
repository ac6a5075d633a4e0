//! The REST API of the fake: messages, edits, and responses to presses.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{BOT, Fault, Message, Shared, TOKEN, World, account};

/// Serves the REST API.
pub(super) async fn rest(State(state): Shared, Path(path): Path<String>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1024 * 1024).await.unwrap();
    let mut state = state.lock().unwrap();
    if state.away {
        state.visits += 1;
        return (StatusCode::SERVICE_UNAVAILABLE, "<html></html>").into_response();
    }
    let places: Vec<&str> = path.split('/').collect();
    let anonymous = places[0] == "interactions";
    if !anonymous
        && parts
            .headers
            .get("authorization")
            .is_none_or(|given| given != &format!("Bot {TOKEN}"))
    {
        return refusal(StatusCode::UNAUTHORIZED, 0, "401: Unauthorized");
    }
    if state.echoes {
        // Truncation of the message may cut a token, too.
        let words = format!("Bot {TOKEN} {} Bot {TOKEN}", "x".repeat(180 - TOKEN.len()));
        return refusal(StatusCode::FORBIDDEN, 50_001, &words);
    }
    if parts.method != Method::GET {
        state.calls.push((parts.method.clone(), path.clone()));
    }
    let fault = if parts.method == Method::GET || anonymous {
        None
    } else {
        state.too_early += usize::from(state.closed.take().is_some_and(|until| Instant::now() < until));
        state.faults.pop_front()
    };
    if let Some(Fault::Limited(milliseconds, _) | Fault::Spent(milliseconds)) = fault {
        state.closed = Some(Instant::now() + Duration::from_millis(milliseconds));
    }
    if let Some(Fault::Limited(milliseconds, global)) = fault {
        return limited(milliseconds, global);
    }
    if let Some(Fault::Page(status)) = fault {
        let page = "<html><body>the server returned an invalid or incomplete response</body></html>";
        return (StatusCode::from_u16(status).unwrap(), page).into_response();
    }
    let mut answer = state.act(&parts.method, &places, &parts.headers, &body);
    if let Some(Fault::Spent(milliseconds)) = fault {
        let seconds = milliseconds as f64 / 1000.0;
        let headers = answer.headers_mut();
        headers.insert("x-ratelimit-remaining", HeaderValue::from_static("0"));
        headers.insert("x-ratelimit-reset-after", seconds.to_string().parse().unwrap());
    }
    if let Some(Fault::Unheard) = fault {
        drop(state);
        // Ends the task of this connection, and so the connection.
        std::panic::resume_unwind(Box::new("unheard"));
    }
    answer
}

impl World {
    fn act(&mut self, method: &Method, places: &[&str], headers: &HeaderMap, body: &Bytes) -> Response {
        match (method.as_str(), places) {
            ("GET", ["users", "@me"]) => json_answer(&account(BOT, "ringfence")),
            ("GET", ["channels", channel]) if self.knows(channel) => {
                json_answer(&json!({"id": channel, "type": 0}))
            }
            ("POST", ["channels", channel, "messages"]) if self.knows(channel) => {
                self.post(channel.parse().unwrap(), headers, body)
            }
            ("PATCH", ["channels", channel, "messages", message]) if self.knows(channel) => {
                let change: Value = serde_json::from_slice(body).unwrap();
                self.change(message.parse().unwrap(), &change)
            }
            ("POST", ["interactions", id, token, "callback"]) => {
                assert_eq!(*token, format!("aW50ZXJhY3Rpb24{id}"));
                let id = id.parse().unwrap();
                if self.answers.iter().any(|(answered, _)| *answered == id) {
                    return refusal(
                        StatusCode::BAD_REQUEST,
                        40060,
                        "Interaction has already been acknowledged.",
                    );
                }
                self.answers.push((id, serde_json::from_slice(body).unwrap()));
                StatusCode::NO_CONTENT.into_response()
            }
            (_, ["channels", ..]) => refusal(StatusCode::NOT_FOUND, 10003, "Unknown Channel"),
            _ => refusal(StatusCode::NOT_FOUND, 0, "404: Not Found"),
        }
    }

    fn knows(&self, channel: &str) -> bool {
        channel
            .parse()
            .is_ok_and(|channel| self.channels.contains(&channel))
    }

    fn post(&mut self, channel: u64, headers: &HeaderMap, body: &Bytes) -> Response {
        let kind = headers["content-type"].to_str().unwrap();
        let (body, file) = match kind.split_once("boundary=") {
            Some((_, boundary)) => form(boundary, body),
            None => (serde_json::from_slice(body).unwrap(), None),
        };
        if let Some(wrong) = wrong(&body) {
            return wrong;
        }
        if file.is_some() && !self.files_allowed {
            return refusal(StatusCode::FORBIDDEN, 50013, "Missing Permissions");
        }
        let nonce = body["nonce"].as_str().unwrap();
        assert!((1..=25).contains(&nonce.len()), "{body}");
        let same = self
            .messages
            .iter()
            .find(|message| message.body["nonce"] == nonce);
        if let Some(message) = same.filter(|_| body["enforce_nonce"] == true) {
            return json_answer(&message.whole());
        }
        let message = Message {
            id: self.id(),
            channel,
            body,
            file,
            edits: 0,
        };
        self.messages.push(message.clone());
        json_answer(&message.whole())
    }

    fn change(&mut self, id: u64, change: &Value) -> Response {
        if let Some(wrong) = wrong(change) {
            return wrong;
        }
        let Some(message) = self.messages.iter_mut().find(|message| message.id == id) else {
            return refusal(StatusCode::NOT_FOUND, 10008, "Unknown Message");
        };
        for (name, value) in change.as_object().unwrap() {
            message.body[name] = value.clone();
        }
        message.edits += 1;
        json_answer(&message.whole())
    }
}

/// Returns the rejection of an invalid message.
fn wrong(body: &Value) -> Option<Response> {
    assert_eq!(
        body["allowed_mentions"],
        json!({"parse": []}),
        "somebody could be pinged"
    );
    let length = body["content"].as_str().unwrap().chars().count();
    let rows = body["components"].as_array().unwrap();
    let buttons = rows.iter().flat_map(|row| row["components"].as_array().unwrap());
    let fits = |button: &Value| {
        button["custom_id"]
            .as_str()
            .is_some_and(|id| (1..=100).contains(&id.len()))
    };
    let fine = (1..=2000).contains(&length) && buttons.clone().count() <= 5 && buttons.clone().all(fits);
    (!fine).then(|| refusal(StatusCode::BAD_REQUEST, 50035, "Invalid Form Body"))
}

/// Returns the JSON and the file of a form.
fn form(boundary: &str, body: &[u8]) -> (Value, Option<String>) {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let mut words = Value::Null;
    let mut file = None;
    for part in text.split(&format!("--{boundary}")).filter(|part| part.len() > 4) {
        let (head, content) = part.split_once("\r\n\r\n").unwrap();
        let content = content.strip_suffix("\r\n").unwrap();
        if head.contains("name=\"payload_json\"") {
            words = serde_json::from_str(content).unwrap();
        } else {
            assert!(
                head.contains("name=\"files[0]\"; filename=\"question.txt\""),
                "{head}"
            );
            file = Some(content.to_owned());
        }
    }
    assert_eq!(
        words["attachments"],
        json!([{"id": 0, "filename": "question.txt"}])
    );
    (words, file)
}

fn json_answer(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

fn refusal(status: StatusCode, code: u64, message: &str) -> Response {
    (status, json!({"code": code, "message": message}).to_string()).into_response()
}

fn limited(milliseconds: u64, global: bool) -> Response {
    let seconds = f64::from(u32::try_from(milliseconds).unwrap()) / 1000.0;
    let body = json!({"message": "You are being rate limited.", "retry_after": seconds, "global": global});
    let scope = if global { "global" } else { "user" };
    let headers = [("retry-after", "1"), ("x-ratelimit-scope", scope)];
    (StatusCode::TOO_MANY_REQUESTS, headers, body.to_string()).into_response()
}
