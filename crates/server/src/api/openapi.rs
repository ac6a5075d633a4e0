//! `GET /openapi.json`: the description of the API, made from the table of routes.

use std::sync::OnceLock;

use axum::Extension;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use schemars::generate::{Contract, SchemaSettings};
use schemars::{SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::body;
use super::content::Content;
use super::error::Reason;
use super::idempotency;
use super::route::{AllRoutes, Needs, Parameter, Replays, Route};

static DOCUMENT: OnceLock<String> = OnceLock::new();

pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        method: Method::GET,
        path: "/openapi.json",
        needs: Needs::Nothing,
        summary: "Describe the API as an OpenAPI document.",
        recorded: None,
        parameters: &[],
        request: None,
        answers: vec![Content::new(
            &[body::JSON],
            |_| json_schema!({"type": "object", "description": "An OpenAPI 3.1 document."}),
        )],
        handler: |method| on(method, show),
    }]
}

async fn show(Extension(AllRoutes(all)): Extension<AllRoutes>) -> Response {
    let document = DOCUMENT.get_or_init(|| document(&all()).to_string());
    ([(header::CONTENT_TYPE, body::JSON)], document.as_str()).into_response()
}

/// Generators of the schemas of requests and of answers, whose members differ in what is required.
struct Schemas {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

/// Creates the document of these routes.
pub(super) fn document(routes: &[Route]) -> Value {
    let generator = |contract| {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        settings.contract = contract;
        settings.into_generator()
    };
    let mut schemas = Schemas {
        requests: generator(Contract::Deserialize),
        answers: generator(Contract::Serialize),
    };
    let mut paths = Map::new();
    for route in routes {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        methods[route.method.as_str().to_ascii_lowercase()] = operation(route, &mut schemas);
    }
    let mut components = schemas.requests.take_definitions(true);
    components.extend(schemas.answers.take_definitions(true));
    components.insert("ErrorAnswer".to_owned(), error_answer());
    components.insert("ErrorDetails".to_owned(), error_details());
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ringfence",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs untrusted code in a fence. A program that fails is a success of the API: its result says how it ended.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    });
    drop_empty_defaults(&mut document);
    document
}

/// Removes defaults that say no more than that a member may be absent. Generators of clients take a member with a default for one
/// that is always there: their callers would have to send it, and find it missing in answers.
fn drop_empty_defaults(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let empty = [json!({}), json!([]), Value::Null, Value::Bool(false)];
            if members
                .get("default")
                .is_some_and(|default| empty.contains(default))
            {
                members.remove("default");
            }
            members.values_mut().for_each(drop_empty_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty_defaults),
        _ => {}
    }
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    for answers in route.answers.chunk_by(|one, next| one.status == next.status) {
        let Some(Content { status, .. }) = answers.first() else {
            continue;
        };
        let mut answer = json!({"description": "Success."});
        let content = contents(answers, &mut schemas.answers);
        if content.as_object().is_some_and(|content| !content.is_empty()) {
            answer["content"] = content;
        }
        responses.insert(status.to_string(), answer);
    }
    for reason in Reason::ALL {
        let (status, ..) = reason.row();
        let answer = json!({
            "description": meanings(status),
            "content": {body::JSON: {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}},
        });
        responses.insert(status.to_string(), answer);
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "responses": responses,
        "security": [],
    });
    let needed = match route.needs {
        Needs::Nothing => None,
        Needs::AnyKey => Some("Needs a key of any right.".to_owned()),
        Needs::Key(right) => Some(format!("Needs the right `{}`.", right.as_str())),
    };
    if let Some(needed) = needed {
        operation["security"] = json!([{"bearer": []}, {"header": []}]);
        operation["description"] = needed.into();
    }
    if let Some(content) = &route.request {
        let most = content.max / (1024 * 1024);
        operation["requestBody"] = json!({
            // No bytes are bytes: an empty file, or the end of an input.
            "required": !content.optional && content.media.iter().any(|media| *media != body::BYTES),
            "description": format!("At most {most} MiB."),
            "content": contents(std::slice::from_ref(content), &mut schemas.requests),
        });
    }
    let parameters: Vec<Value> = parameters(route.path)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": of_path(name)}))
        .chain(idempotency_key(route))
        .chain(route.parameters.iter().map(Parameter::to_openapi))
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    operation
}

/// Describes the header by which a request is carried out once, on the routes that keep their answers.
fn idempotency_key(route: &Route) -> Option<Value> {
    (route.replays() == Some(Replays::Given)).then(|| {
        json!({
            "name": idempotency::HEADER,
            "in": "header",
            "required": false,
            "description": "Carry the request out once: the same key and body get the same answer for two minutes. Not with answers of events.",
            "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
        })
    })
}

fn contents(contents: &[Content], generator: &mut SchemaGenerator) -> Value {
    let mut all = Map::new();
    for content in contents {
        let schema = (content.schema)(generator).to_value();
        for (at, media) in content.media.iter().enumerate() {
            let schema = match at {
                0 => schema.clone(),
                _ => json!({"type": "string"}),
            };
            all.insert((*media).to_owned(), json!({"schema": schema}));
        }
    }
    all.into()
}

/// Returns `run_post` for `POST /v1/run`.
fn operation_id(route: &Route) -> String {
    let words = route
        .path
        .split(['/', '.'])
        .filter(|word| !["", "v1"].contains(word));
    let words: Vec<&str> = words.map(|word| word.trim_matches(['{', '}'])).collect();
    format!(
        "{}_{}",
        words.join("_"),
        route.method.as_str().to_ascii_lowercase()
    )
}

/// Returns the names in braces.
fn parameters(path: &str) -> impl Iterator<Item = &str> {
    let inner = |part: &'_ str| -> Option<usize> { part.find('}') };
    path.split('{')
        .skip(1)
        .filter_map(move |part| part.get(..inner(part)?))
}

/// Returns the schema of a parameter of the path.
fn of_path(name: &str) -> Value {
    match name {
        "pid" => json!({"type": "integer", "minimum": 0, "maximum": u32::MAX}),
        "port" => json!({"type": "integer", "minimum": 1, "maximum": u16::MAX}),
        _ => json!({"type": "string", "minLength": 1}),
    }
}

/// Joins the meanings of a status.
fn meanings(status: u16) -> String {
    let rows = Reason::ALL.iter().map(|reason| reason.row());
    let of_status = rows.filter(|(other, ..)| *other == status);
    let meanings: Vec<String> = of_status
        .map(|(_, kind, meaning)| format!("`{kind}`: {meaning}"))
        .collect();
    meanings.join(" ")
}

/// Returns the schema of the body of an error. Both of its objects have names: generators of clients make up worse ones.
fn error_answer() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"$ref": "#/components/schemas/ErrorDetails"}},
    })
}

fn error_details() -> Value {
    let mut kinds: Vec<&str> = Reason::ALL.iter().map(|reason| reason.row().1).collect();
    kinds.sort_unstable();
    kinds.dedup();
    json!({
        "type": "object",
        "required": ["type", "message", "hint"],
        "properties": {
            "type": {"type": "string", "enum": kinds},
            "message": {"type": "string"},
            "hint": {"type": "string"},
        },
    })
}
