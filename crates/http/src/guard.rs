//! Checks every request's host, origin and credentials, and sets security headers on every response.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::credentials::{Credentials, SESSION_PATH, single};
use super::failures::Failures;
use super::slots::ConnectionSlot;
use super::{Keys, NoRandom, Refusal};

/// Timeout of a request, except for streamed bodies.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Security headers of every response: only our own files run, and no other site may frame, read or cache it.
const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
    (
        "permissions-policy",
        "camera=(), geolocation=(), microphone=(), usb=(), serial=(), payment=()",
    ),
];

/// Middleware state.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Accepted `Host` headers: loopback names with our port.
    hosts: Vec<String>,
    credentials: Credentials,
    /// Paths that contain no data and need no credentials.
    open: &'static [&'static str],
    failures: Failures,
}

impl Guard {
    /// Creates the guard of the interface at `address`.
    pub(crate) fn new(
        address: SocketAddr,
        keys: Keys,
        open: &'static [&'static str],
    ) -> Result<Self, NoRandom> {
        Ok(Self {
            hosts: hosts_of(address),
            credentials: Credentials::new(keys, address.port())?,
            open,
            failures: Failures::default(),
        })
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Counts a failure, and returns the refusal. Valid credentials are never rate limited because of others.
    pub(crate) fn failed(&self) -> Refusal {
        if self.failures.add(None).is_one_too_many {
            Refusal::TOO_MANY
        } else {
            Refusal::CREDENTIALS
        }
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let (method, headers, uri) = (request.method(), request.headers(), request.uri());
        if ![Method::GET, Method::HEAD, Method::POST].contains(method) {
            return Err(Refusal::METHOD);
        }
        // Prevents DNS rebinding: another name that resolves to this machine is not ours.
        let host = single(headers, "host").filter(|host| is_among(&self.hosts, host));
        let target = uri.authority().is_none_or(|target| Some(target.as_str()) == host);
        if host.is_none() || !target {
            return Err(Refusal::HOST);
        }
        let changes = *method == Method::POST;
        if !changes && self.open.contains(&uri.path()) {
            return Ok(());
        }
        if !is_same_site(headers, host, &["http://"]) {
            return Err(Refusal::ORIGIN);
        }
        let by_browser = changes && headers.contains_key(header::ORIGIN);
        if uri.path() == SESSION_PATH && by_browser {
            return Ok(());
        }
        if self.credentials.has_token(headers) {
            know(request);
            return Ok(());
        }
        if !self.credentials.has_session(headers) {
            return Err(self.failed());
        }
        // A browser sends `Origin` with a POST request.
        if changes && !by_browser {
            return Err(Refusal::ORIGIN);
        }
        know(request);
        Ok(())
    }
}

/// Returns the `Host` headers of the interface at `address`: loopback names with its port. Other names that
/// resolve to this machine are missing, which prevents DNS rebinding.
pub fn hosts_of(address: SocketAddr) -> Vec<String> {
    let own = match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let hosts = ["127.0.0.1", "localhost", "[::1]", &own].into_iter();
    hosts.map(|host| format!("{host}:{}", address.port())).collect()
}

pub fn is_among(hosts: &[String], host: &str) -> bool {
    hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
}

/// Returns `true` if a URL has a token in its query, where clients of Jupyter put their server's.
pub fn has_token(uri: &Uri) -> bool {
    let parameters = uri.query().unwrap_or_default().split('&');
    let mut names = parameters.map(|parameter| parameter.split('=').next().unwrap_or_default());
    // However its letters are encoded, it is one: what is too much of a token is not a record.
    names.any(|name| name == "token" || name.contains('%'))
}

/// Returns `false` if a page of another site sent the request, according to its `Origin` or `Sec-Fetch-Site`.
/// An origin of this host begins with one of `schemes`.
pub fn is_same_site(headers: &HeaderMap, host: Option<&str>, schemes: &[&str]) -> bool {
    let is_own = |origin: &str| {
        let authority = schemes.iter().find_map(|scheme| origin.strip_prefix(scheme));
        authority.is_some() && authority == host
    };
    let origin = !headers.contains_key(header::ORIGIN) || single(headers, "origin").is_some_and(is_own);
    let site = !headers.contains_key("sec-fetch-site")
        || single(headers, "sec-fetch-site").is_some_and(|site| matches!(site, "same-origin" | "none"));
    origin && site
}

/// Protects the request's connection from eviction.
fn know(request: &Request) {
    if let Some(place) = request.extensions().get::<Arc<ConnectionSlot>>() {
        place.know();
    }
}

/// Returns the request's connection, which can be closed.
pub fn connection(request: &Request) -> Option<Arc<ConnectionSlot>> {
    request.extensions().get().cloned()
}

/// Checks a request, and passes it to its route or refuses it.
pub(crate) async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = match guard.check(&request) {
        Ok(()) => tokio::time::timeout(TIMEOUT, next.run(request))
            .await
            .unwrap_or_else(|_| Refusal::SLOW.into_response()),
        Err(refusal) => refusal.into_response(),
    };
    harden(response.headers_mut());
    response
}

/// Sets the security headers of a response.
pub fn harden(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
