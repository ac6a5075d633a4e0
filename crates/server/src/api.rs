//! The HTTP API, under `/v1`.
//!
//! - `table`: the routes, from which the router and the OpenAPI document are made; `route`: one of them.
//! - `state`: what the routes share.
//! - `error`: statuses and types of errors.
//! - `keys`: the keys that a server accepts; `rights`: their rights; `tenant`: whose they are.
//! - `key_store`: the keys that an operator made.
//! - `key_uses`: uses of keys, which end with their key.
//! - `guard`: the checks of every request.
//! - `admission`: the calls of keys that are at work, and those that wait; `drain`: their end with the server's.
//! - `usage`: what keys use, and their quotas.
//! - `budget`: the memory for bodies; `answers`: that of answers which wait for their clients.
//! - `idempotency`: requests that are carried out once, however often they are sent.
//! - `invocation`: tool calls, which end with the client's interest in them; `calls`: their admission.
//!
//! - `recording`: records of operations that no tool stands behind.
//! - `docs`: the same document for people.
//! - `mcp`: MCP over HTTP, in sessions.
//! - `metrics`: figures for monitoring.
//! - `websocket`: WebSockets of routes.
//! - `e2b`: E2B's protocol beside the API, behind the same door.
//!
//! Each other file is a group of routes. What a client has done goes through the toolbox, or is recorded by its route.

pub(crate) mod admission;
mod answers;
mod approvals;
mod audit;
mod batch;
mod blocking;
mod body;
mod budget;
mod calls;
mod content;
mod digest;
mod docs;
mod drain;
mod e2b;
mod error;
mod events;
mod extract;
mod guard;
mod health;
mod idempotency;
mod images;
mod invocation;
mod jupyter;
mod key_routes;
pub(crate) mod key_store;
mod key_uses;
mod keys;
mod librechat;
mod mcp;
mod metrics;
mod openapi;
mod operation_cost;
mod query;
mod recording;
mod rights;
mod route;
mod run;
mod runs;
mod sandbox_fusion;
mod sandboxes;
mod state;
mod stream;
mod table;
pub(crate) mod tenant;
mod tools;
mod usage;
mod websocket;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::any;
use ringfence_e2b::Domain;

pub use admission::Admission;
use error::ApiError;
use guard::Door;
pub use key_store::{
    EndKeyError, KeyForm, KeyStore, NewKey, Revoked, ShownKey, StoredKey, public_id, shown_id,
};
pub use keys::ApiKeys;
pub use rights::{Right, Rights, RightsError};
pub use state::{Api, RecordedSandboxes};
pub use tenant::{FIXED, ParseTenantError, Tenant};

use crate::questions::hub::Hub;

impl Api {
    /// Returns the broadcaster of questions to people.
    pub(crate) const fn questions(&self) -> &Arc<Hub> {
        &self.questions
    }

    /// Returns the routes for a private Unix socket, whose peers are the server's own user and need no key.
    pub(crate) fn on_socket(self: &Arc<Self>) -> Router {
        self.alone(Door::of_socket(Arc::clone(&self.metrics)))
    }

    /// Returns the routes for a loopback address. `rest` serves all paths outside the API.
    pub(crate) fn on_loopback(self: &Arc<Self>, address: SocketAddr, rest: Option<Router>) -> Router {
        match rest {
            None => self.alone(Door::of_loopback(address, Arc::clone(&self.metrics))),
            Some(rest) => {
                let door = Arc::new(Door::of_loopback(address, Arc::clone(&self.metrics)));
                let routes = guarded(table::router(self, &door), Arc::clone(&door));
                let state = (Arc::clone(self), Arc::clone(&door));
                let rest = rest.layer(from_fn_with_state(state, guard::beside_console));
                self.beside_e2b(routes.fallback_service(rest), door)
            }
        }
    }

    /// Returns the routes for an address that other machines reach, by the names below a domain if there is one.
    pub(crate) fn on_network(self: &Arc<Self>, domain: Option<&Domain>) -> Router {
        self.alone(Door::of_network(domain.cloned(), Arc::clone(&self.metrics)))
    }

    fn alone(self: &Arc<Self>, door: Door) -> Router {
        let door = Arc::new(door);
        let routes = table::router(self, &door).fallback(async || ApiError::unknown_path());
        self.beside_e2b(guarded(routes, Arc::clone(&door)), door)
    }

    /// Puts E2B's protocol before routes: its requests are known by their headers, hosts and paths.
    fn beside_e2b(self: &Arc<Self>, routes: Router, door: Arc<Door>) -> Router {
        let api = Arc::clone(self);
        routes.layer(from_fn_with_state(e2b::Entrance { api, door }, e2b::dispatch))
    }
}

/// Wraps routes in the checks of hosts and origins, and answers for unknown paths below `/v1` and `/librechat`.
fn guarded(routes: Router, door: Arc<Door>) -> Router {
    routes
        .route("/v1", any(async || ApiError::unknown_path()))
        .route("/v1/{*rest}", any(async || ApiError::unknown_path()))
        .route("/librechat/{*rest}", any(async || ApiError::unknown_path()))
        .method_not_allowed_fallback(async || ApiError::method())
        .layer(from_fn_with_state(door, guard::admit))
}

#[cfg(test)]
mod tests;
