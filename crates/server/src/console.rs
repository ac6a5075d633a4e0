//! The page on which a person answers questions and looks at what was run.
//!
//! `docs/protocol/console.md` specifies its paths. What an agent wrote is taken apart here, once, into what can be
//! shown and what would be invisible ([`words`]); the page puts these parts in as text and decides nothing.

mod approvals;
mod events;
mod hub;
mod page;
mod runs;
mod words;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use ringfence_runtime::approval::Service;

use crate::http::{self, Keys, NoRandom};
use crate::wire::ConsoleAccess;
use hub::Hub;

/// What the console shows.
#[derive(Debug, Clone)]
pub struct Sources {
    /// The questions and their answers.
    pub approvals: Service,
    /// The directory of the audit log.
    pub audit: PathBuf,
}

/// What the routes share.
#[derive(Debug)]
struct Shared {
    sources: Sources,
    hub: Hub,
}

/// The way into a console: where it is, and the keys of its engine.
#[derive(Debug, Clone)]
pub struct Door {
    address: SocketAddr,
    keys: Keys,
}

impl Door {
    /// A ticket for a browser, and the token for a program.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn access(&self) -> Result<ConsoleAccess, NoRandom> {
        Ok(ConsoleAccess {
            address: self.address,
            ticket: self.keys.ticket()?,
            token: self.keys.token().to_owned(),
        })
    }
}

/// A console that can be served.
#[derive(Debug)]
pub struct Console {
    shared: Arc<Shared>,
    listener: http::Listener,
    routes: Router,
    door: Door,
}

impl Console {
    /// The console of these sources behind `listener`, for whoever these keys were given to.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn new(listener: http::Listener, keys: Keys, sources: Sources) -> Result<Self, NoRandom> {
        let shared = Arc::new(Shared {
            hub: Hub::new(sources.clone()),
            sources,
        });
        let inner = page::routes()
            .merge(approvals::routes(Arc::clone(&shared)))
            .merge(runs::routes(Arc::clone(&shared)))
            .merge(events::routes(Arc::clone(&shared)));
        let address = listener.address();
        let routes = http::site(inner, page::PATHS, address, keys.clone())?;
        Ok(Self {
            shared,
            listener,
            routes,
            door: Door { address, keys },
        })
    }

    /// The way into it.
    pub const fn door(&self) -> &Door {
        &self.door
    }

    /// Serves until `stop` ends. Nothing is looked at while no page is open.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = self.listener.serve(self.routes, stop) => {}
            never = self.shared.hub.watch() => match never {},
        }
    }
}

#[cfg(test)]
mod tests;
