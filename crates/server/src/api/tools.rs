//! `/v1/tools`: the tools of agents, for clients that may use them.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::body;
use super::content::Content;
use super::error::ApiError;
use super::keys::Grant;
use super::rights::Right;
use super::route::{Needs, Route};
use super::state::Api;

/// Maximum size of the arguments of a tool.
const MAX: usize = 32 * 1024 * 1024;

const ARGUMENTS: Content = Content::new(
    &[body::JSON],
    |_| schemars::json_schema!({"type": "object", "description": "Arguments, as the tool's schema describes them."}),
);

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route {
            method: Method::GET,
            path: "/v1/tools",
            needs: Needs::Key(Right::Tools),
            summary: "List the tools that may be used, with the schemas of their arguments and results.",
            recorded: None,
            parameters: &[],
            request: None,
            answers: vec![Content::json::<ToolList>()],
            handler: |method| on(method, list),
        },
        Route {
            method: Method::POST,
            path: "/v1/tools/{name}",
            needs: Needs::Key(Right::Tools),
            summary: "Use a tool. The body is its arguments.",
            recorded: None,
            parameters: &[],
            request: Some(ARGUMENTS.at_most(MAX)),
            answers: vec![Content::json::<ToolAnswer>()],
            handler: |method| on(method, call),
        },
    ]
}

#[derive(Serialize, JsonSchema)]
struct ToolList<'a> {
    tools: Vec<ToolInfo<'a>>,
}

/// A tool that may be used.
#[derive(Serialize, JsonSchema)]
struct ToolInfo<'a> {
    name: &'a str,
    title: &'a str,
    /// Description for a model.
    description: &'a str,
    /// JSON Schema of the arguments.
    input_schema: &'a Map<String, Value>,
    /// JSON Schema of the structured result; null for text only.
    output_schema: Option<&'a Map<String, Value>>,
}

/// The answer of a tool.
#[derive(Serialize, JsonSchema)]
struct ToolAnswer {
    /// Text for a model.
    text: String,
    /// Value for a program; null for text only.
    structured: Option<Value>,
}

async fn list(State(api): State<Arc<Api>>) -> Response {
    let tools = api.toolbox.tools().map(|tool| ToolInfo {
        name: tool.name,
        title: tool.title,
        description: tool.remote_description,
        input_schema: &tool.input_schema,
        output_schema: tool.output_schema.as_ref(),
    });
    let tools = ToolList {
        tools: tools.collect(),
    };
    Json(tools).into_response()
}

async fn call(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let arguments: Value = body::json(request).await?;
    let used = api.admitted(&grant, &name, arguments).await?;
    let answer = api.invocations.start(used).answer().await?;
    let answer = ToolAnswer {
        text: answer.text,
        structured: answer.structured,
    };
    Ok(Json(answer).into_response())
}
