//! Checks every request's host, origin and credentials, and sets security headers on every response.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::credentials::{Credentials, SESSION_PATH, single};
use super::refusal::RETRY_AFTER;
use super::slots::ConnectionSlot;
use super::{Keys, NoRandom, Refusal};

/// Timeout of a request, except for streamed bodies.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum number of requests with wrong credentials in [`RETRY_AFTER`] seconds; beyond it they get 429.
const MAX_FAILURES: u32 = 30;

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
pub(super) struct Guard {
    /// Accepted `Host` headers: loopback names with our port.
    hosts: Vec<String>,
    credentials: Credentials,
    /// Paths that contain no data and need no credentials.
    open: &'static [&'static str],
    failures: Mutex<Failures>,
}

/// Failures since a point in time.
#[derive(Debug)]
struct Failures {
    since: Instant,
    count: u32,
}

impl Guard {
    /// Creates the guard of the interface at `address`.
    pub(super) fn new(
        address: SocketAddr,
        keys: Keys,
        open: &'static [&'static str],
    ) -> Result<Self, NoRandom> {
        let port = address.port();
        let own = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Ok(Self {
            hosts: ["127.0.0.1", "localhost", "[::1]", &own]
                .iter()
                .map(|host| format!("{host}:{port}"))
                .collect(),
            credentials: Credentials::new(keys, port)?,
            open,
            failures: Mutex::new(Failures {
                since: Instant::now(),
                count: 0,
            }),
        })
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Counts a failure, and returns the refusal. Valid credentials are never rate limited because of others.
    pub(super) fn failed(&self) -> Refusal {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.since.elapsed() >= Duration::from_secs(RETRY_AFTER) {
            *failures = Failures {
                since: Instant::now(),
                count: 0,
            };
        }
        failures.count = failures.count.saturating_add(1);
        if failures.count > MAX_FAILURES {
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
        let host = single(headers, "host").filter(|host| self.is_ours(host));
        let target = uri.authority().is_none_or(|target| Some(target.as_str()) == host);
        if host.is_none() || !target {
            return Err(Refusal::HOST);
        }
        let changes = *method == Method::POST;
        if !changes && self.open.contains(&uri.path()) {
            return Ok(());
        }
        self.check_origin(headers, host)?;
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

    fn is_ours(&self, host: &str) -> bool {
        self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }

    /// Rejects a request with an `Origin` or `Sec-Fetch-Site` header of another site.
    fn check_origin(&self, headers: &HeaderMap, host: Option<&str>) -> Result<(), Refusal> {
        let origin = !headers.contains_key(header::ORIGIN)
            || single(headers, "origin").and_then(|origin| origin.strip_prefix("http://")) == host;
        let site = !headers.contains_key("sec-fetch-site")
            || single(headers, "sec-fetch-site").is_some_and(|site| matches!(site, "same-origin" | "none"));
        if origin && site {
            Ok(())
        } else {
            Err(Refusal::ORIGIN)
        }
    }
}

/// Protects the request's connection from eviction.
fn know(request: &Request) {
    if let Some(place) = request.extensions().get::<Arc<ConnectionSlot>>() {
        place.know();
    }
}

/// Checks a request, and passes it to its route or refuses it.
pub(super) async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = match guard.check(&request) {
        Ok(()) => tokio::time::timeout(PATIENCE, next.run(request))
            .await
            .unwrap_or_else(|_| Refusal::SLOW.into_response()),
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
