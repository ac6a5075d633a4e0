//! A browser's session: a cookie that scripts cannot read, and a key that other ports are never sent.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;

use super::Refusal;
use super::guard::Guard;
use super::keys::{Keys, NoRandom, Secret};

/// Where a browser sends a ticket.
pub(super) const PATH: &str = "/session";

/// The header that carries the key.
pub(super) const KEY_HEADER: &str = "ringfence-key";

/// What proves that a request comes from whom we know.
///
/// The cookie and the key are random and end with the engine: whoever takes over its port afterwards learns nothing
/// that opens the next one. Cookies are sent to every port of a host, so a cookie alone proves nothing.
#[derive(Debug)]
pub(super) struct Credentials {
    keys: Keys,
    cookie: Secret,
    key: Secret,
    cookie_name: String,
}

impl Credentials {
    /// Those of the interface at `port`.
    pub(super) fn new(keys: Keys, port: u16) -> Result<Self, NoRandom> {
        Ok(Self {
            keys,
            cookie: Secret::random()?,
            key: Secret::random()?,
            cookie_name: format!("ringfence_{port}"),
        })
    }

    /// Whether these headers carry the token.
    pub(super) fn has_token(&self, headers: &HeaderMap) -> bool {
        let bearer = single(headers, header::AUTHORIZATION.as_str());
        bearer
            .and_then(|value| value.strip_prefix("Bearer "))
            .is_some_and(|token| self.keys.is_token(token.trim()))
    }

    /// Whether these headers carry a session: the cookie and the key.
    pub(super) fn has_session(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).into_iter();
        let cookie = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            // Another port's server may have set one of the same name: ours is among them, or it is not.
            .any(|(name, value)| name == self.cookie_name && self.cookie.is(value));
        let key = single(headers, KEY_HEADER).is_some_and(|key| self.key.is(key));
        cookie & key
    }

    fn open(&self) -> Response {
        let cookie = format!(
            "{}={}; HttpOnly; SameSite=Strict; Path=/",
            self.cookie_name,
            self.cookie.as_str()
        );
        let mut response = Json(json!({"key": self.key.as_str()})).into_response();
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        response
    }
}

/// The value of a header that is there once.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

/// The ticket, under the name that it has in a link.
#[derive(Deserialize)]
struct Exchange {
    token: String,
}

/// The exchange of a ticket for a session.
pub(super) fn routes(guard: Arc<Guard>) -> Router {
    Router::new().route(PATH, post(exchange)).with_state(guard)
}

async fn exchange(
    State(guard): State<Arc<Guard>>,
    body: Result<Json<Exchange>, JsonRejection>,
) -> Result<Response, Refusal> {
    let credentials = guard.credentials();
    match body {
        Ok(Json(Exchange { token })) if credentials.keys.take(&token, Instant::now()) => {
            Ok(credentials.open())
        }
        _ => Err(guard.failed()),
    }
}
