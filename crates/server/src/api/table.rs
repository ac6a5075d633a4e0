//! The table of routes, from which the router and the OpenAPI document are made.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::MethodFilter;
use axum::{Extension, Router};

use super::recording::{self, Recorder};
use super::route::{AllRoutes, Replays, Route};
use super::state::Api;
use super::{
    approvals, audit, batch, docs, drain, guard, health, idempotency, images, jupyter, key_routes, librechat,
    mcp, metrics, openapi, query, run, runs, sandbox_fusion, sandboxes, tools, usage,
};

/// The groups of routes. A new one is a file beside this one, and a line here.
const GROUPS: &[fn() -> Vec<Route>] = &[
    health::routes,
    openapi::routes,
    docs::routes,
    run::routes,
    batch::routes,
    sandbox_fusion::routes,
    tools::routes,
    sandboxes::routes,
    images::routes,
    jupyter::routes,
    librechat::routes,
    mcp::routes,
    metrics::routes,
    key_routes::routes,
    usage::routes,
    approvals::routes,
    runs::routes,
    audit::routes,
];

/// Returns all routes, in the order of the documents.
pub(super) fn all() -> Vec<Route> {
    GROUPS.iter().flat_map(|group| group()).collect()
}

/// Returns the OpenAPI document.
#[cfg(test)]
pub(super) fn document() -> serde_json::Value {
    openapi::document(&all())
}

/// Builds the router of all routes, each behind the check of its credential and its limit of the body.
pub(super) fn router(api: &Arc<Api>, door: &Arc<guard::Door>) -> Router {
    let mut router = Router::new();
    for route in all() {
        let max = route.request.as_ref().map(|content| content.max);
        let check = guard::Check {
            api: Arc::clone(api),
            door: Arc::clone(door),
            needs: route.needs,
            max,
        };
        let (replays, is_call) = (route.replays(), route.is_call());
        let allowed = query::AllowedParameters::of(&route);
        let filter = MethodFilter::try_from(route.method).unwrap_or(MethodFilter::GET);
        let handler = (route.handler)(filter);
        let handler = match allowed {
            Some(allowed) => handler.route_layer(from_fn_with_state(allowed, query::check)),
            None => handler,
        };
        let handler = match route.recorded {
            Some(name) => {
                let recorder = Recorder {
                    api: Arc::clone(api),
                    name,
                };
                // Inside: a refusal is recorded.
                let handler = handler.route_layer(from_fn_with_state(recorder.clone(), usage::within));
                handler.route_layer(from_fn_with_state(recorder, recording::record))
            }
            None => handler,
        };
        let handler = match is_call {
            true => handler.route_layer(from_fn_with_state(Arc::clone(api), drain::until_sent)),
            false => handler,
        };
        let handler = match replays {
            Some(Replays::Given) => handler.route_layer(from_fn_with_state(
                Arc::clone(&api.idempotency),
                idempotency::once,
            )),
            Some(Replays::Refused) => handler.route_layer(from_fn(idempotency::refuse)),
            None => handler,
        };
        let handler = handler
            .layer(DefaultBodyLimit::max(max.unwrap_or(0)))
            .route_layer(from_fn_with_state(check, guard::authorize));
        router = router.route(route.path, handler);
    }
    router
        .layer(Extension(AllRoutes(all)))
        .with_state(Arc::clone(api))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_route_is_named_once_and_says_what_it_does() {
        let mut seen = BTreeSet::new();
        for route in all() {
            assert!(seen.insert((route.path, route.method.to_string())));
            assert!(route.summary.ends_with('.') && !route.answers.is_empty());
            assert!(MethodFilter::try_from(route.method).is_ok());
        }
        assert!(seen.len() >= 70);
    }
}
