//! Rejection of unknown query parameters.

use axum::extract::{Query, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::{ApiError, Reason};
use super::route::{Parameter, Place, Route};

/// The parameters that a route takes.
#[derive(Clone, Copy)]
pub(super) struct AllowedParameters {
    parameters: &'static [Parameter],
    /// Set where the server's own user may ask on behalf of another one, by `user`.
    takes_user: bool,
}

impl AllowedParameters {
    /// Returns the parameters of a route. `None` for routes outside of `/v1/`: they speak protocols of others, whose clients may
    /// send more.
    pub(super) fn of(route: &Route) -> Option<Self> {
        let is_below = |beginning: &&str| route.path.starts_with(beginning);
        route.path.starts_with("/v1/").then(|| Self {
            parameters: route.parameters,
            takes_user: ["/v1/sandbox", "/v1/snapshots"].iter().any(is_below),
        })
    }

    fn has(self, name: &str) -> bool {
        self.takes_user && name == "user" || self.parameters.iter().any(|known| known.has(name))
    }

    /// Returns the names, for people.
    fn names(self) -> impl Iterator<Item = String> {
        let names = self.parameters.iter().filter_map(|known| match known.place {
            Place::Query => Some(format!("`{}`", known.name)),
            Place::Members => Some(format!("`{}.NAME`", known.name)),
            Place::Header => None,
        });
        names.chain(self.takes_user.then(|| "`user`".to_owned()))
    }

    fn error(self, unknown: &str) -> ApiError {
        let hint = match self.names().collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "leave it out: the route takes none".to_owned(),
            names => format!("the route takes {names}"),
        };
        let message = format!("there is no parameter `{unknown}`");
        ApiError::new(Reason::InvalidArguments, message, hint)
    }
}

/// Refuses a query with a parameter that the route does not know: a mistyped filter would select everything.
pub(super) async fn check(
    State(allowed): State<AllowedParameters>,
    request: Request,
    next: Next,
) -> Response {
    // A query that cannot be parsed is refused by the route that reads it.
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
    let Query(pairs) = pairs.unwrap_or_default();
    match pairs.iter().find(|(name, _)| !allowed.has(name)) {
        Some((unknown, _)) => allowed.error(unknown).into_response(),
        None => next.run(request).await,
    }
}
