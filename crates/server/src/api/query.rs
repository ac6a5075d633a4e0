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

    /// Returns the names, with `true` for beginnings of names.
    fn names(self) -> impl Iterator<Item = (&'static str, bool)> {
        let in_query = self.parameters.iter();
        let in_query = in_query.filter(|parameter| parameter.place != Place::Header);
        let names = in_query.map(|parameter| (parameter.name, parameter.place == Place::Prefix));
        names.chain(self.takes_user.then_some(("user", false)))
    }

    fn has(self, name: &str) -> bool {
        let is = |(known, begins): (&str, bool)| name == known || begins && name.starts_with(known);
        self.names().any(is)
    }

    fn error(self, unknown: &str) -> ApiError {
        let shown = |(name, begins)| format!("`{name}{}`", if begins { "NAME" } else { "" });
        let hint = match self.names().map(shown).collect::<Vec<_>>().join(", ") {
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
