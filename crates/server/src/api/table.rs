//! The table of routes, from which the router and the OpenAPI document are made.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodFilter, MethodRouter};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::idempotency::{self, Replays};
use super::keys::Right;
use super::recording::{self, Recorder};
use super::{
    Api, batch, body, docs, guard, health, jupyter, key_routes, mcp, metrics, openapi, run, sandbox_fusion,
    sandboxes, tools, usage,
};
use crate::mcp::session::versions;

/// A route: everything that clients, the guard and the documents must know about it.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) needs: Needs,
    /// Imperative sentence.
    pub(super) summary: &'static str,
    /// Name of its records in the audit log. `None`: it changes nothing, or goes through the toolbox.
    pub(super) recorded: Option<&'static str>,
    /// Parameters of the query and the headers.
    pub(super) parameters: &'static [Parameter],
    pub(super) request: Option<Content>,
    /// Content of a success, by media type.
    pub(super) answers: Vec<Content>,
    pub(super) handler: fn(MethodFilter) -> MethodRouter<Arc<Api>>,
}

/// The credential that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// None: it shows nothing of this machine or its users.
    Nothing,
    /// A key of any right.
    AnyKey,
    Key(Right),
}

/// A parameter beside the path.
pub(super) struct Parameter {
    pub(super) place: Place,
    pub(super) name: &'static str,
    pub(super) required: bool,
    pub(super) form: Form,
    pub(super) description: &'static str,
}

/// The form of a parameter's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    /// An absolute path.
    Path,
    /// A whole number that is not negative.
    Number,
    /// `true` or `false`.
    Flag,
    /// Octal digits.
    Octal,
    /// A version of the Model Context Protocol.
    McpVersion,
}

impl Form {
    /// Returns the schema in the document.
    pub(super) fn schema(self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Path => json!({"type": "string", "pattern": "^/", "maxLength": 4095}),
            Self::Number => json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Octal => json!({"type": "string", "pattern": "^[0-7]{1,4}$"}),
            Self::McpVersion => json!({"type": "string", "enum": versions().collect::<Vec<_>>()}),
        }
    }
}

/// The part of a request that has a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Query,
    Header,
}

impl Place {
    /// Returns the name used in OpenAPI.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Header => "header",
        }
    }
}

/// A body, of a request or an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content {
    /// Media types: the first is described by the schema, others say in their description what differs.
    pub(super) media: &'static [&'static str],
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
    /// Maximum size in bytes, of a request.
    pub(super) max: usize,
    /// Set if a request may come without it.
    pub(super) optional: bool,
    /// Status, of an answer.
    pub(super) status: u16,
}

impl Route {
    /// Leaves records of this name in the audit log.
    pub(super) fn recorded_as(mut self, name: &'static str) -> Self {
        self.recorded = Some(name);
        self
    }

    /// Takes these parameters.
    pub(super) fn with_parameters(mut self, parameters: &'static [Parameter]) -> Self {
        self.parameters = parameters;
        self
    }

    /// Returns its treatment of requests with an `Idempotency-Key`; `None` if it ignores that. Replays are given by routes that
    /// take and answer JSON with POST, except for MCP, which has sessions.
    pub(super) fn replays(&self) -> Option<Replays> {
        let is_json = |content: &Content| content.media.contains(&body::JSON);
        let takes_json = self.request.as_ref().is_none_or(is_json);
        (self.method == Method::POST && self.path.starts_with("/v1/")).then(|| {
            match takes_json && self.answers.iter().any(is_json) {
                true => Replays::Given,
                false => Replays::Refused,
            }
        })
    }

    /// Takes a body.
    pub(super) fn with_body(mut self, request: Content) -> Self {
        self.request = Some(request);
        self
    }
}

impl Content {
    /// Creates the content of an answer.
    pub(super) const fn new(
        media: &'static [&'static str],
        schema: fn(&mut SchemaGenerator) -> Schema,
    ) -> Self {
        Self {
            media,
            schema,
            max: 0,
            optional: false,
            status: 200,
        }
    }

    /// Turns it into the content of an answer with another status.
    pub(super) const fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// Creates the content of an answer of JSON.
    pub(super) const fn json<T: JsonSchema>() -> Self {
        Self::new(&[body::JSON], |generator| generator.subschema_for::<T>())
    }

    /// Turns it into the content of a request that may come without it.
    pub(super) const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// Turns it into the content of a request, of this many bytes at most.
    pub(super) const fn at_most(self, max: usize) -> Self {
        Self { max, ..self }
    }
}

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
    jupyter::routes,
    mcp::routes,
    metrics::routes,
    key_routes::routes,
    usage::routes,
];

/// Returns all routes, in the order of the documents.
pub(super) fn all() -> Vec<Route> {
    GROUPS.iter().flat_map(|group| group()).collect()
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
        let replays = route.replays();
        let filter = MethodFilter::try_from(route.method).unwrap_or(MethodFilter::GET);
        let handler = (route.handler)(filter);
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
        let handler = match replays {
            Some(Replays::Given) => {
                handler.route_layer(from_fn_with_state(Arc::clone(api), idempotency::once))
            }
            Some(Replays::Refused) => handler.route_layer(from_fn(idempotency::refuse)),
            None => handler,
        };
        let handler = handler
            .layer(DefaultBodyLimit::max(max.unwrap_or(0)))
            .route_layer(from_fn_with_state(check, guard::authorize));
        router = router.route(route.path, handler);
    }
    router.with_state(Arc::clone(api))
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
        assert!(seen.len() >= 7);
    }
}
