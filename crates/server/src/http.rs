//! The engine's HTTP interface, on this machine alone.
//!
//! - [`Listener`]: the socket, whose connections are served, and the limits of each.
//! - [`Keys`]: the secrets that open it.
//! - `guard`: the one layer that every request passes before any route sees it.
//! - `session`: how a browser turns a ticket into a session of its own.
//!
//! What is served are routes of other modules, such as [`crate::console`].

mod guard;
mod keys;
mod listener;
mod peer;
mod places;
mod refusal;
mod session;

pub use keys::{Keys, NoRandom};
pub use listener::Listener;
pub(crate) use refusal::Refusal;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;

use guard::Guard;

/// The longest body of a request.
const MAX_BODY: usize = 16 * 1024;

/// `inner` behind the guard of `address`; `open` are the paths that show nothing and need no credentials.
fn guarded(inner: Router, guard: Guard) -> Router {
    let guard = Arc::new(guard);
    inner
        .merge(session::routes(Arc::clone(&guard)))
        .fallback(async || Refusal::UNKNOWN_PATH)
        .method_not_allowed_fallback(async || Refusal::METHOD)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(guard, guard::admit))
}

/// The routes of the interface at `address`: `inner`, whose `open` paths show nothing and need no credentials, and the
/// exchange of a ticket for a session.
///
/// # Errors
/// If the kernel gives no random bytes.
pub(crate) fn site(
    inner: Router,
    open: &'static [&'static str],
    address: SocketAddr,
    keys: Keys,
) -> Result<Router, NoRandom> {
    Ok(guarded(inner, Guard::new(address, keys, open)?))
}

#[cfg(test)]
mod tests;
