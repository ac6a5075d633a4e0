//! Credentials of requests: the token, or a browser session of a cookie that scripts cannot read and a key that
//! is never sent to other ports.

use std::time::Instant;

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::keys::{Keys, NoRandom, Secret};

/// Path at which a browser exchanges its ticket.
pub(crate) const SESSION_PATH: &str = "/session";

pub(crate) const KEY_HEADER: &str = "ringfence-key";

/// Verifier of a request's credentials.
///
/// The cookie and the key are random and end with the server: a process that takes over its port later learns
/// nothing that opens the next one. Cookies are sent to every port of a host, so a cookie alone is not
/// sufficient.
#[derive(Debug)]
pub(crate) struct Credentials {
    keys: Keys,
    cookie: Secret,
    key: Secret,
    cookie_name: String,
}

impl Credentials {
    pub(crate) fn new(keys: Keys, port: u16) -> Result<Self, NoRandom> {
        Ok(Self {
            keys,
            cookie: Secret::random()?,
            key: Secret::random()?,
            cookie_name: format!("ringfence_{port}"),
        })
    }

    /// Returns `true` if the headers contain the token.
    pub(crate) fn has_token(&self, headers: &HeaderMap) -> bool {
        let bearer = single(headers, header::AUTHORIZATION.as_str());
        bearer
            .and_then(|value| value.strip_prefix("Bearer "))
            .is_some_and(|token| self.keys.is_token(token.trim()))
    }

    /// Returns `true` if the headers contain a session: the cookie and the key.
    pub(crate) fn has_session(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).into_iter();
        let cookie = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            // A server on another port may have set a cookie of the same name, so any match counts.
            .any(|(name, value)| name == self.cookie_name && self.cookie.is(value));
        let key = single(headers, KEY_HEADER).is_some_and(|key| self.key.is(key));
        cookie & key
    }

    /// Returns `true` if a browser's ticket is valid; it cannot be used again.
    pub(crate) fn take(&self, ticket: &str) -> bool {
        self.keys.take(ticket, Instant::now())
    }

    /// Returns the response that opens a session: the cookie and the key.
    pub(crate) fn open(&self) -> Response {
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

/// Returns the value of a header that occurs exactly once.
pub fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}
