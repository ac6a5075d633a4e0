//! A route, as clients, the guard and the documents know it.

use std::sync::Arc;

use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter};
use serde_json::{Value, json};

use super::body;
use super::content::Content;
use super::rights::Right;
use super::state::Api;
use ringfence_mcp::session::versions;

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
    /// Members of an object in the query, whose names the client chooses: `NAME[MEMBER]` or `NAME.MEMBER`.
    Members,
}

impl Place {
    /// Returns the name used in OpenAPI.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Query | Self::Members => "query",
            Self::Header => "header",
        }
    }
}

impl Parameter {
    /// Returns the description in the document.
    pub(super) fn to_openapi(&self) -> Value {
        let schema = self.form.schema();
        let mut described = json!({
            "name": self.name,
            "in": self.place.as_str(),
            "required": self.required,
            "description": self.description,
            "schema": schema,
        });
        if self.place == Place::Members {
            described["schema"] = json!({"type": "object", "additionalProperties": schema});
            described["style"] = "deepObject".into();
            described["explode"] = true.into();
        }
        described
    }

    /// Returns `true` for the name of this parameter of the query.
    pub(super) fn has(&self, name: &str) -> bool {
        match self.place {
            Place::Query => name == self.name,
            Place::Header => false,
            Place::Members => self.member(name).is_some(),
        }
    }

    /// Returns the member that a name in the query stands for.
    pub(super) fn member<'a>(&self, name: &'a str) -> Option<&'a str> {
        let rest = name.strip_prefix(self.name)?;
        let in_brackets = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        in_brackets.or_else(|| rest.strip_prefix('.'))
    }
}

impl Route {
    /// Needs a key with this right.
    pub(super) fn with_right(mut self, right: Right) -> Self {
        self.needs = Needs::Key(right);
        self
    }

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

    /// Returns `true` for a call of a tool, such as a run, whose answer is its result. A message of MCP may be another one.
    pub(super) fn is_call(&self) -> bool {
        let is_of_tools = matches!(self.needs, Needs::Key(Right::Run | Right::Tools));
        is_of_tools && self.method == Method::POST && self.path != "/mcp"
    }

    /// Takes a body.
    pub(super) fn with_body(mut self, request: Content) -> Self {
        self.request = Some(request);
        self
    }
}

/// Returns a route for keys with the right `sandboxes` or, by [`Route::with_right`], another one, without parameters, body and
/// record.
pub(super) fn route(
    method: Method,
    path: &'static str,
    summary: &'static str,
    answers: Vec<Content>,
    handler: fn(MethodFilter) -> MethodRouter<Arc<Api>>,
) -> Route {
    Route {
        method,
        path,
        needs: Needs::Key(Right::Sandboxes),
        summary,
        recorded: None,
        parameters: &[],
        request: None,
        answers,
        handler,
    }
}

/// Treatment of requests with an `Idempotency-Key` by a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replays {
    /// The route's answers are kept, and given to repetitions.
    Given,
    /// The route streams answers or takes streams, which are not kept: keys are refused.
    Refused,
}

/// Returns all routes: for the documents, which are routes themselves.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllRoutes(pub(super) fn() -> Vec<Route>);
