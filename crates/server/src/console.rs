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
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use ringfence_runtime::approval::Service;

use crate::http::{self, Token, TokenError};
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

/// A console that can be served.
#[derive(Debug)]
pub struct Console {
    shared: Arc<Shared>,
    listener: http::Listener,
    routes: Router,
}

impl Console {
    /// The console of these sources behind `listener`, for whoever has the token.
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn new(listener: http::Listener, token: Token, sources: Sources) -> Result<Self, TokenError> {
        let shared = Arc::new(Shared {
            hub: Hub::new(sources.clone()),
            sources,
        });
        let inner = page::routes()
            .merge(approvals::routes(Arc::clone(&shared)))
            .merge(runs::routes(Arc::clone(&shared)))
            .merge(events::routes(Arc::clone(&shared)));
        let routes = http::site(inner, page::PATHS, listener.address(), token)?;
        Ok(Self {
            shared,
            listener,
            routes,
        })
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
