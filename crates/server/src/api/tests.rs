//! Tests of the documents that are made from the table of routes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use axum::http::Method;
use serde_json::Value;

use super::error::Reason;
use super::operation_cost::OperationCost;
use super::recording::ends_something;
use super::route::Needs;
use super::table::{self, document};

#[test]
fn the_reference_is_made_from_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let written = fs::read_to_string(root.join("docs/reference/api.md")).unwrap_or_default();
    let current = reference();
    if current != written {
        fs::write(root.join("target/api.md"), &current).unwrap();
    }
    assert_eq!(written, current, "copy target/api.md to docs/reference/api.md");
}

#[test]
fn what_changes_a_sandbox_leaves_a_record() {
    let routes = table::all();
    let of_sandboxes = routes
        .iter()
        .filter(|route| route.path.starts_with("/v1/sandboxes"));
    let unrecorded = of_sandboxes.filter(|route| route.method != Method::GET && route.recorded.is_none());
    let unrecorded: Vec<&str> = unrecorded.map(|route| route.path).collect();
    assert_eq!(unrecorded, ["/v1/sandboxes/{id}/processes/{pid}/resize"]);
    let cost = |wanted: OperationCost| {
        let recorded = routes.iter().filter_map(|route| route.recorded);
        recorded
            .filter(|name| OperationCost::of(name) == wanted)
            .collect::<Vec<_>>()
    };
    let places = [
        "sandbox.create",
        "sandbox.create_context",
        "sandbox.fork",
        "sandbox.restart_context",
    ];
    let runs = ["sandbox.exec", "sandbox.run", "sandbox.start"];
    assert_eq!(
        BTreeSet::from_iter(cost(OperationCost::Place)),
        BTreeSet::from(places)
    );
    assert_eq!(
        BTreeSet::from_iter(cost(OperationCost::Run)),
        BTreeSet::from(runs)
    );
    // The routes of other protocols are other ways to the same operations.
    let others = ["/jupyter/", "/librechat/"];
    let own = routes
        .iter()
        .filter(|route| !others.iter().any(|prefix| route.path.starts_with(prefix)));
    let names: Vec<&str> = own.filter_map(|route| route.recorded).collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len());
}

#[test]
fn what_is_removed_by_a_route_ends_something() {
    let removals = table::all()
        .into_iter()
        .filter(|route| route.method == Method::DELETE);
    let names: Vec<&str> = removals.filter_map(|route| route.recorded).collect();
    assert!(names.len() > 5, "{names:?}");
    let others: Vec<&&str> = names.iter().filter(|name| !ends_something(name)).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(!ends_something("sandbox.create"));
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    fn check(value: &Value, document: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(target)) = members.get("$ref") {
                    let path = target.strip_prefix('#').unwrap();
                    assert!(document.pointer(path).is_some(), "{target}");
                }
                members.values().for_each(|value| check(value, document));
            }
            Value::Array(items) => items.iter().for_each(|value| check(value, document)),
            _ => {}
        }
    }
    let document = document();
    check(&document, &document);
    // Types of the same name would be numbered: `List2`.
    let names = document["components"]["schemas"].as_object().unwrap().keys();
    let numbered: Vec<_> = names.filter(|name| name.ends_with(char::is_numeric)).collect();
    assert_eq!(numbered, [""; 0]);
    let members = &document["components"]["schemas"]["RemoteRequest"];
    assert!(members["properties"]["files"].is_object());
    assert!(members["properties"]["files"].get("default").is_none());
    assert_eq!(members["additionalProperties"], false);
    assert_eq!(members["required"], serde_json::json!(["code"]));
}

#[test]
fn parameters_have_the_forms_that_the_server_parses() {
    let document = document();
    let schema = |route: (&str, &str), name: &str| {
        let parameters = document["paths"][route.0][route.1]["parameters"]
            .as_array()
            .unwrap();
        let found = parameters.iter().find(|parameter| parameter["name"] == name);
        found.unwrap()["schema"].clone()
    };
    let files = ("/v1/sandboxes/{id}/files", "get");
    assert_eq!(schema(files, "id")["minLength"], 1);
    assert_eq!(schema(files, "path")["pattern"], "^/");
    assert_eq!(schema(files, "offset")["maximum"], u64::MAX);
    let process = ("/v1/sandboxes/{id}/processes/{pid}", "get");
    assert_eq!(schema(process, "pid")["maximum"], u32::MAX);
    let port = ("/v1/sandboxes/{id}/ports/{port}", "post");
    assert_eq!(schema(port, "port")["minimum"], 1);
    let run = ("/v1/run", "post");
    assert_eq!(schema(run, "Idempotency-Key")["pattern"], "^[!-~]{1,255}$");
    let mcp = ("/mcp", "post");
    assert!(
        schema(mcp, "MCP-Protocol-Version")["enum"]
            .as_array()
            .unwrap()
            .contains(&"2025-11-25".into())
    );
    // A body of bytes may have none.
    assert_eq!(
        document["paths"]["/v1/run"]["post"]["requestBody"]["required"],
        true
    );
    assert_eq!(
        document["paths"][files.0]["put"]["requestBody"]["required"],
        false
    );
}

/// Renders the reference for people.
fn reference() -> String {
    let mut text = "# HTTP API\n\n\
        <!-- Written by the test `the_reference_is_made_from_the_table`; `docs/guide/server.md` explains. -->\n\n\
        `GET /openapi.json` describes every body.\n\n\
        | route | right | limit of the body | |\n| --- | --- | --- | --- |\n"
        .to_owned();
    for route in table::all() {
        let right = match route.needs {
            Needs::Nothing => "none".to_owned(),
            Needs::AnyKey => "any".to_owned(),
            Needs::Key(right) => format!("`{}`", right.as_str()),
        };
        let most = route
            .request
            .as_ref()
            .map(|content| format!("{} MiB", content.max / (1024 * 1024)));
        text.push_str(&format!(
            "| `{} {}` | {right} | {} | {} |\n",
            route.method,
            route.path,
            most.unwrap_or_default(),
            route.summary
        ));
    }
    text.push_str(
        "\n## Errors\n\nEvery error is `{\"error\": {\"type\", \"message\", \"hint\"}}`. A program that fails, or is killed at its \
         limit, is no error of the API: the status is 200, and the result says how it ended.\n\n",
    );
    text.push_str("| status | type | meaning |\n| --- | --- | --- |\n");
    for reason in Reason::ALL {
        let (status, kind, meaning) = reason.row();
        text.push_str(&format!("| {status} | `{kind}` | {meaning} |\n"));
    }
    text
}
