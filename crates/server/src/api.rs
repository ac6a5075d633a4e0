//! The HTTP API, under `/v1`.
//!
//! - `table`: the routes, from which the router and the OpenAPI document are made.
//! - `error`: statuses and types of errors.
//! - `keys`: the keys that a server accepts, and their rights.
//! - `key_store`: the keys that an operator made.
//! - `key_uses`: uses of keys, which end with their key.
//! - `guard`: the checks of every request.
//! - `admission`: the calls of keys that are at work, and those that wait.
//! - `usage`: what keys use, and their quotas.
//! - `budget`: the memory for bodies.
//! - `idempotency`: requests that are carried out once, however often they are sent.
//! - `invocation`: tool calls, which end with the client's interest in them.
//!
//! - `recording`: records of operations that no tool stands behind.
//! - `docs`: the same document for people.
//! - `mcp`: MCP over HTTP, in sessions.
//! - `metrics`: figures for monitoring.
//! - `websocket`: WebSockets of routes.
//! - `e2b`: E2B's protocol beside the API, behind the same door.
//!
//! Each other file is a group of routes. What a client has done goes through the toolbox, or is recorded by its route.

mod admission;
mod batch;
mod body;
mod budget;
mod docs;
mod e2b;
mod error;
mod events;
mod guard;
mod health;
mod idempotency;
mod invocation;
mod jupyter;
mod key_routes;
mod key_store;
mod key_uses;
mod keys;
mod mcp;
mod metrics;
mod openapi;
mod recording;
mod run;
mod sandbox_fusion;
mod sandboxes;
mod stream;
mod table;
mod tenant;
mod tools;
mod usage;
mod websocket;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::any;
use ringfence_e2b::Domain;
use ringfence_records::audit::RedactedLog;
use ringfence_sandbox::Sandboxes;
use ringfence_tools::toolbox::{Caller, Surface, Toolbox};
use serde_json::Value;

pub use admission::Admission;
pub(crate) use admission::AdmissionFigures;
use admission::Turn;
use budget::BodyBudget;
use error::ApiError;
use guard::Door;
use idempotency::Idempotency;
use invocation::{Invocations, Use};
pub use key_store::{EndKeyError, KeyStore, NewKey, Revoked, ShownKey, StoredKey, shown_id};
use key_uses::KeyUses;
pub use keys::{ApiKeys, Right, Rights, RightsError};
pub(crate) use keys::{FIXED, scope_of};
use keys::{Grant, OWNER};
use mcp::Sessions;
pub(crate) use tenant::Account;
pub use tenant::{ParseTenantError, Tenant};

use crate::http::CertificateState;
use crate::metrics::Metrics;
use crate::usage::Usage;

/// State of the routes.
#[derive(Debug)]
pub struct Api {
    toolbox: Arc<Toolbox>,
    keys: Arc<ApiKeys>,
    key_uses: KeyUses,
    /// Rights of the server's own user.
    owner: Arc<Grant>,
    admission: Admission,
    bodies: Arc<BodyBudget>,
    invocations: Invocations,
    idempotency: Idempotency,
    mcp: Sessions,
    metrics: Arc<Metrics>,
    usage: Arc<Usage>,
    /// Time at which sandboxes were measured for a request.
    measured: Mutex<Option<Instant>>,
    sandboxes: Arc<Sandboxes>,
    e2b: ringfence_e2b::Service,
    jupyter: Arc<ringfence_jupyter::Service>,
    /// Log of operations without a tool.
    log: RedactedLog,
    /// State of the certificate of its listener with TLS.
    certificate: OnceLock<Arc<CertificateState>>,
}

/// Sandboxes, with the log of operations on them.
#[derive(Debug)]
pub struct RecordedSandboxes {
    pub sandboxes: Sandboxes,
    pub log: RedactedLog,
    /// Images of the server's user on which keys may build templates of E2B's.
    pub template_images: Vec<String>,
}

impl Api {
    /// Creates the API of a toolbox and of sandboxes, for holders of `keys`, whose calls pass `admission`. It counts its errors in `metrics`.
    pub fn new(
        toolbox: Toolbox,
        sandboxes: RecordedSandboxes,
        keys: ApiKeys,
        metrics: Arc<Metrics>,
        admission: Admission,
    ) -> Arc<Self> {
        let RecordedSandboxes {
            sandboxes,
            log,
            template_images,
        } = sandboxes;
        let (sandboxes, keys) = (Arc::new(sandboxes), Arc::new(keys));
        Arc::new(Self {
            toolbox: Arc::new(toolbox),
            key_uses: KeyUses::new(Arc::clone(&keys)),
            keys,
            owner: Arc::new(Grant::of_owner()),
            admission,
            bodies: Arc::default(),
            invocations: Invocations::default(),
            idempotency: Idempotency::default(),
            mcp: Sessions::default(),
            usage: Arc::clone(metrics.usage()),
            measured: Mutex::default(),
            metrics,
            e2b: ringfence_e2b::Service::new(Arc::clone(&sandboxes), template_images),
            jupyter: Arc::new(ringfence_jupyter::Service::new(Arc::clone(&sandboxes))),
            sandboxes,
            log,
            certificate: OnceLock::new(),
        })
    }

    /// Sets the certificate whose state the API reports.
    pub(crate) fn report_certificate(&self, state: Arc<CertificateState>) {
        // A server has one listener with TLS.
        let _ = self.certificate.set(state);
    }

    /// Checks that an image is in the store of the server's user, and can be a root.
    ///
    /// # Errors
    /// If it is not.
    pub async fn check_template_image(&self, image: &str) -> Result<(), ringfence_sandbox::Error> {
        self.sandboxes.image(image).await.map(drop)
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

    /// Waits until every call has ended, and ends all sessions and sandboxes. The listeners have ended before.
    pub async fn close(&self) {
        self.mcp.close().await;
        self.idempotency.close().await;
        self.jupyter.close();
        self.sandboxes.close().await;
        self.invocations.close().await;
        self.key_uses.close().await;
    }

    /// Waits for a turn of a client, and returns its call of a tool.
    async fn admitted(&self, grant: &Grant, tool: &str, arguments: Value) -> Result<Use, ApiError> {
        // Whoever may begin nothing does not wait.
        self.check_quota(grant)?;
        let turn = self.admission.enter(grant).await?;
        self.used(grant, tool, arguments, turn)
    }

    /// Returns a call of a tool by a client whose turn it is.
    fn used(&self, grant: &Grant, tool: &str, arguments: Value, turn: Turn) -> Result<Use, ApiError> {
        Ok(Use {
            toolbox: Arc::clone(&self.toolbox),
            caller: Caller {
                // The sessions of a key are its own.
                scope: self.scope(grant, &sandboxes::Owner::default())?,
                session: None,
                surface: Surface::Http,
                client: Some(grant.client.clone()),
            },
            tool: tool.to_owned(),
            arguments,
            turn,
            begun: self.begin(grant)?,
            using: self.key_uses.begin(&grant.client, grant.first_right()),
        })
    }
}

/// Wraps routes in the checks of hosts and origins, and answers for unknown paths below `/v1`.
fn guarded(routes: Router, door: Arc<Door>) -> Router {
    routes
        .route("/v1", any(async || ApiError::unknown_path()))
        .route("/v1/{*rest}", any(async || ApiError::unknown_path()))
        .method_not_allowed_fallback(async || ApiError::method())
        .layer(from_fn_with_state(door, guard::admit))
}

#[cfg(test)]
mod tests;
