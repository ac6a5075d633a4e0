//! Serves the web console, where a person answers approval requests and views runs.
//!
//! `docs/protocol/console.md` specifies its paths. Text from agents is split here, once, into visible and
//! invisible parts (`words`); the page inserts these parts as text and decides nothing.

mod approvals;
mod events;
mod hub;
mod messages;
mod page;
mod runs;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use ringfence_records::approval::Service;

use crate::http::{self, Keys, NoRandom};
use crate::wire::ConsoleAccess;
use hub::Hub;

/// Data sources of the console.
#[derive(Debug, Clone)]
pub struct Sources {
    pub approvals: Service,
    /// Directory of the audit log.
    pub audit: PathBuf,
}

/// State shared by the routes.
#[derive(Debug)]
struct Shared {
    sources: Sources,
    hub: Hub,
}

/// Access to a console: its address, and its keys.
#[derive(Debug, Clone)]
pub struct Door {
    address: SocketAddr,
    keys: Keys,
}

impl Door {
    /// Issues a ticket for a browser and returns the token for programs.
    ///
    /// # Errors
    /// If the kernel returns no random bytes.
    pub fn access(&self) -> Result<ConsoleAccess, NoRandom> {
        Ok(ConsoleAccess {
            address: self.address,
            ticket: self.keys.ticket()?,
            token: self.keys.token().to_owned(),
        })
    }
}

/// A console that is ready to serve.
#[derive(Debug)]
pub struct Console {
    shared: Arc<Shared>,
    routes: Router,
    door: Door,
}

impl Console {
    /// Creates a console of these sources at `address`, for holders of `keys`.
    ///
    /// # Errors
    /// If the kernel returns no random bytes.
    pub fn new(address: SocketAddr, keys: Keys, sources: Sources) -> Result<Self, NoRandom> {
        let shared = Arc::new(Shared {
            hub: Hub::new(sources.clone()),
            sources,
        });
        let inner = page::routes()
            .merge(approvals::routes(Arc::clone(&shared)))
            .merge(runs::routes(Arc::clone(&shared)))
            .merge(events::routes(Arc::clone(&shared)));
        let routes = http::site(inner, page::PATHS, address, keys.clone())?;
        Ok(Self {
            shared,
            routes,
            door: Door { address, keys },
        })
    }

    /// Returns the access to the console.
    pub const fn door(&self) -> &Door {
        &self.door
    }

    /// Returns the routes of the console.
    pub(crate) fn routes(&self) -> Router {
        self.routes.clone()
    }

    /// Tells open pages of changes. Polls its sources only while a page is open.
    pub(crate) async fn watch(&self) -> Infallible {
        self.shared.hub.watch().await
    }
}

#[cfg(test)]
mod tests;
