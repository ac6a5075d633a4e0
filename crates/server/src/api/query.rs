//! Queries whose parameters a route knows.

use axum::extract::{Query, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::{ApiError, Reason};
use super::route::{Parameter, Place, Route};

/// The user on whose behalf the server's own user asks, a parameter of the routes of sandboxes and snapshots.
const USER: &str = "user";

/// The names of parameters that a route takes.
#[derive(Debug, Clone)]
pub(super) struct Names {
    known: Vec<&'static str>,
    takes_user: bool,
    /// Beginning of names that are chosen by the client.
    prefix: Option<&'static str>,
}

impl Names {
    /// Returns the names of a route's parameters. `None` for routes outside of `/v1/`: they speak protocols of others, whose
    /// clients may send more.
    pub(super) fn of(route: &Route) -> Option<Self> {
        let in_query = |parameter: &&Parameter| parameter.place == Place::Query;
        let known = route.parameters.iter().filter(in_query);
        let prefix = route
            .parameters
            .iter()
            .find(|parameter| parameter.place == Place::Prefix);
        route.path.starts_with("/v1/").then(|| Self {
            known: known.map(|parameter| parameter.name).collect(),
            takes_user: ["/v1/sandbox", "/v1/snapshots"]
                .iter()
                .any(|beginning| route.path.starts_with(beginning)),
            prefix: prefix.map(|parameter| parameter.name),
        })
    }

    fn has(&self, name: &str) -> bool {
        (self.takes_user && name == USER)
            || self.known.contains(&name)
            || self.prefix.is_some_and(|prefix| name.starts_with(prefix))
    }

    fn error(&self, unknown: &str) -> ApiError {
        let prefixed = self.prefix.map(|prefix| format!("{prefix}NAME"));
        let known = self.known.iter().map(|name| (*name).to_owned()).chain(prefixed);
        let known: Vec<_> = known.map(|name| format!("`{name}`")).collect();
        let hint = match known.as_slice() {
            [] => "leave it out: the route takes none".to_owned(),
            known => format!("the route takes {}", known.join(", ")),
        };
        let message = format!("there is no parameter `{unknown}`");
        ApiError::new(Reason::InvalidArguments, message, hint)
    }
}

/// Refuses a query with a parameter that the route does not know: a mistyped filter would select everything.
pub(super) async fn check(State(names): State<Names>, request: Request, next: Next) -> Response {
    // A query that cannot be parsed is told by the route that reads it.
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
    let Query(pairs) = pairs.unwrap_or_default();
    match pairs.iter().find(|(name, _)| !names.has(name)) {
        Some((unknown, _)) => names.error(unknown).into_response(),
        None => next.run(request).await,
    }
}
