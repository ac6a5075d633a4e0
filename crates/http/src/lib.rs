//! HTTP connections, with the console's credentials.
//!
//! - [`Listener`]: the socket, with routes by user and limits of connections.
//! - [`Keys`]: the credentials.
//! - `guard`: the middleware that checks every request of the console.
//! - [`CertificateFiles`]: what TLS needs.
//! - `lingering`: the end of a connection, at which the last response still arrives.
//! - `unread`: answers to requests whose body nobody has read.
//! - `session`: the exchange of a browser's ticket for a session.
//!
//! The routes are those of others, such as the console.

#![forbid(unsafe_code)]

mod credentials;
mod failures;
mod guard;
mod keys;
mod lingering;
mod listener;
mod refusal;
mod session;
mod slots;
mod unread;

pub use credentials::single;
pub use failures::{Failures, PeerAddress};
pub use guard::{connection, harden, has_token, hosts_of, is_among, is_same_site};

pub use keys::{Keys, NoRandom, random_hex};

pub use listener::{Listener, Routes, serve_connection};
pub use refusal::{RETRY_AFTER, Refusal};
pub use ringfence_tls::{CertificateError, CertificateFiles, Renewal};
pub use ringfence_tls::{CertificateState, Tls};
pub use slots::{ConnectionSlot, Connections, TooManyConnections};

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;

use guard::Guard;

/// Maximum size of a request body.
const MAX_BODY: usize = 16 * 1024;

/// Wraps the routes `inner` in the guard, and adds the session route.
fn guarded(inner: Router, guard: Guard) -> Router {
    let guard = Arc::new(guard);
    inner
        .merge(session::routes(Arc::clone(&guard)))
        .fallback(async || Refusal::UNKNOWN_PATH)
        .method_not_allowed_fallback(async || Refusal::METHOD)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(guard, guard::admit))
}

/// Builds the interface at `address`: the routes `inner`, of which the paths `open` contain no data and need
/// no credentials, and the exchange of a ticket for a session.
///
/// # Errors
/// If the kernel returns no random bytes.
pub fn site(
    inner: Router,
    open: &'static [&'static str],
    address: SocketAddr,
    keys: Keys,
) -> Result<Router, NoRandom> {
    Ok(guarded(inner, Guard::new(address, keys, open)?))
}

#[cfg(test)]
mod tests;
