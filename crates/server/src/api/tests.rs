//! Tests of the documents that are made from the table of routes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use axum::http::Method;
use serde_json::Value;

use super::error::Reason;
use super::openapi::document;
use super::table::{self, Needs};
use super::usage::Work;

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
    let work = |wanted: Work| {
        let recorded = routes.iter().filter_map(|route| route.recorded);
        recorded
            .filter(|name| Work::of(name) == wanted)
            .collect::<Vec<_>>()
    };
    let places = ["sandbox.create", "sandbox.create_context", "sandbox.fork"];
    let runs = ["sandbox.exec", "sandbox.run", "sandbox.start"];
    assert_eq!(BTreeSet::from_iter(work(Work::Place)), BTreeSet::from(places));
    assert_eq!(BTreeSet::from_iter(work(Work::Run)), BTreeSet::from(runs));
    let names: Vec<&str> = routes.iter().filter_map(|route| route.recorded).collect();
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), distinct.len());
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
