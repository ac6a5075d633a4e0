//! Serves the web console, where a person answers approval requests and views runs.
//!
//! `docs/protocol/console.md` specifies its paths. Text from agents is split here, once, into visible and
//! invisible parts (`words`); the page inserts these parts as text and decides nothing.

mod approvals;
mod events;
mod messages;
mod page;
mod runs;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;

use crate::api::Api;
use crate::questions::hub::Hub;
use crate::wire::ConsoleAccess;
use ringfence_http::{self as http, Keys, NoRandom};

/// State shared by the routes.
#[derive(Debug)]
struct Shared {
    hub: Arc<Hub>,
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
    routes: Router,
    door: Door,
}

impl Console {
    /// Creates a console beside an API, at `address`, for holders of `keys`.
    ///
    /// # Errors
    /// If the kernel returns no random bytes.
    pub fn new(address: SocketAddr, keys: Keys, api: &Api) -> Result<Self, NoRandom> {
        Self::of(address, keys, Arc::clone(api.questions()))
    }

    fn of(address: SocketAddr, keys: Keys, hub: Arc<Hub>) -> Result<Self, NoRandom> {
        let shared = Arc::new(Shared { hub });
        let inner = page::routes()
            .merge(approvals::routes(Arc::clone(&shared)))
            .merge(runs::routes(Arc::clone(&shared)))
            .merge(events::routes(shared));
        let routes = http::site(inner, page::PATHS, address, keys.clone())?;
        Ok(Self {
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
}

#[cfg(test)]
mod tests;
