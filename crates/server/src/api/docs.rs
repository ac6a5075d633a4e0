//! `/docs`: the description of the API for people, rendered from the document that programs get.
//!
//! The page has no script, and loads nothing but its style from this server: it works without a network.

use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::json_schema;
use serde_json::{Map, Value};

use super::content::Content;
use super::openapi;
use super::route::{AllRoutes, Needs, Route};
use super::state::Api;

static PAGE: OnceLock<String> = OnceLock::new();

const STYLE: &str = include_str!("docs/style.css");

pub(super) fn routes() -> Vec<Route> {
    let route = |path, summary, answer, handler: fn(MethodFilter) -> MethodRouter<Arc<Api>>| Route {
        method: Method::GET,
        path,
        needs: Needs::Nothing,
        summary,
        recorded: None,
        parameters: &[],
        request: None,
        answers: vec![answer],
        handler,
    };
    let html = Content::new(&["text/html"], |_| json_schema!({"type": "string"}));
    let css = Content::new(&["text/css"], |_| json_schema!({"type": "string"}));
    vec![
        route("/docs", "Describe the API on a page.", html, |method| {
            on(method, show)
        }),
        route("/docs/style.css", "Show the style of that page.", css, |method| {
            on(method, style)
        }),
    ]
}

async fn show(Extension(AllRoutes(all)): Extension<AllRoutes>) -> Response {
    let page = PAGE.get_or_init(|| page(&openapi::document(&all())));
    (
        [(header::CONTENT_TYPE, "text/html; charset=utf-8")],
        page.as_str(),
    )
        .into_response()
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}

/// An operation of the document, with its place.
struct Operation<'a> {
    method: String,
    path: &'a str,
    value: &'a Value,
}

fn page(document: &Value) -> String {
    let operations = operations(document);
    let links: String = operations.iter().map(Operation::link).collect();
    let sections: String = operations.iter().map(Operation::section).collect();
    let schemas: String = members(&document["components"]["schemas"])
        .map(|(name, schema)| {
            format!(
                "<section id=\"schema-{0}\"><h3><code>{0}</code></h3>{1}</section>\n",
                escaped(name),
                described(schema)
            )
        })
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Ringfence HTTP API</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><link rel=\"stylesheet\" href=\"/docs/style.css\"></head><body>\n\
         <h1>Ringfence HTTP API {}</h1>\n<p>{}</p>\n<p>Over TCP, send a key as <code>Authorization: Bearer KEY</code> or \
         <code>X-API-Key: KEY</code>. Programs read <a href=\"/openapi.json\">openapi.json</a>.</p>\n\
         <nav><ul>\n{links}</ul></nav>\n<h2>Routes</h2>\n{sections}<h2>Schemas</h2>\n{schemas}</body></html>\n",
        text(&document["info"]["version"]),
        text(&document["info"]["description"]),
    )
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let mut all = Vec::new();
    for (path, methods) in members(&document["paths"]) {
        for (method, value) in members(methods) {
            all.push(Operation {
                method: method.to_ascii_uppercase(),
                path,
                value,
            });
        }
    }
    all
}

impl Operation<'_> {
    fn link(&self) -> String {
        format!(
            "<li><a href=\"#{}\"><code>{} {}</code></a> {}</li>\n",
            text(&self.value["operationId"]),
            self.method,
            escaped(self.path),
            text(&self.value["summary"])
        )
    }

    fn section(&self) -> String {
        let Self { method, path, value } = self;
        let mut html = format!(
            "<section id=\"{}\"><h3><code>{method} {}</code></h3><p>{} {}</p>",
            text(&value["operationId"]),
            escaped(path),
            text(&value["summary"]),
            text(&value["description"])
        );
        let parameters = value["parameters"].as_array().into_iter().flatten();
        let parameters: String = parameters.map(parameter).collect();
        if !parameters.is_empty() {
            html += &format!("<p>Parameters:</p><ul>{parameters}</ul>");
        }
        if let Some(body) = value.get("requestBody") {
            html += &format!("<p>Body. {}</p>{}", text(&body["description"]), contents(body));
        }
        for (status, answer) in members(&value["responses"]) {
            // Errors have one form, which is shown once below.
            html += &match status.starts_with('2') {
                true => format!("<p>Answer {}:</p>{}", escaped(status), contents(answer)),
                false => String::new(),
            };
        }
        let errors = members(&value["responses"]).filter(|(status, _)| !status.starts_with('2'));
        let errors = errors.map(|(status, answer)| {
            let (status, meaning) = (escaped(status), text(&answer["description"]));
            format!("<tr><td>{status}</td><td>{meaning}</td></tr>")
        });
        let errors: String = errors.collect();
        html + &format!("<details><summary>Errors</summary><table>{errors}</table></details></section>\n")
    }
}

fn parameter(parameter: &Value) -> String {
    let required = if parameter["required"] == true {
        ", required"
    } else {
        ""
    };
    format!(
        "<li><code>{}</code> ({}{required}) {}</li>",
        text(&parameter["name"]),
        text(&parameter["in"]),
        text(&parameter["description"])
    )
}

/// Renders the schemas of a body, by media type.
fn contents(body: &Value) -> String {
    let media = members(&body["content"]).map(|(media, content)| {
        let schema = described(&content["schema"]);
        format!("<li><code>{}</code>: {schema}</li>", escaped(media))
    });
    let media: String = media.collect();
    if media.is_empty() {
        return "<p>Nothing.</p>".to_owned();
    }
    format!("<ul>{media}</ul>")
}

/// Renders a schema. Those with a name are linked and not repeated.
fn described(schema: &Value) -> String {
    let mut html = kind(schema);
    if let Some(description) = schema["description"].as_str() {
        html += &format!(" {}", escaped(description));
    }
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties: String = members(&schema["properties"])
        .map(|(name, property)| {
            let is_required = required.iter().any(|required| required == name);
            let required = if is_required { " (required)" } else { "" };
            format!(
                "<li><code>{}</code>{required}: {}</li>",
                escaped(name),
                described(property)
            )
        })
        .collect();
    if !properties.is_empty() {
        html += &format!("<ul>{properties}</ul>");
    }
    html
}

/// Renders the type of a schema.
fn kind(schema: &Value) -> String {
    if let Some(target) = schema["$ref"].as_str() {
        let name = escaped(target.rsplit('/').next().unwrap_or_default());
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    for choice in ["anyOf", "oneOf", "allOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let choices: Vec<String> = choices.iter().map(described).collect();
            return choices.join(" or ");
        }
    }
    if let Some(items) = schema.get("items") {
        return format!("array of {}", described(items));
    }
    let constant = schema.get("const").or_else(|| schema.get("enum"));
    match constant.or_else(|| schema.get("type")) {
        Some(Value::String(name)) => escaped(name),
        Some(Value::Array(names)) => {
            let names: Vec<String> = names.iter().map(text).collect();
            names.join(" or ")
        }
        Some(other) => escaped(&other.to_string()),
        None => "any value".to_owned(),
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let members = value.as_object().map(Map::iter).into_iter().flatten();
    members.map(|(name, value)| (name.as_str(), value))
}

/// Returns a text as HTML; the JSON of anything else, and nothing for null.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => escaped(text),
        Value::Null => String::new(),
        other => escaped(&other.to_string()),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_and_schema_is_on_the_page_and_every_link_leads_somewhere() {
        let document = table::document();
        let page = page(&document);
        let ids: Vec<&str> = page
            .split(" id=\"")
            .skip(1)
            .filter_map(|part| part.split('"').next())
            .collect();
        let distinct: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), distinct.len());
        let schemas = members(&document["components"]["schemas"]).count();
        assert_eq!(ids.len(), operations(&document).len() + schemas);
        let links = page.split("href=\"#").skip(1);
        for target in links.filter_map(|part| part.split('"').next()) {
            assert!(distinct.contains(target), "{target}");
        }
    }

    #[test]
    fn the_page_runs_nothing_and_loads_its_style_alone() {
        let page = page(&table::document());
        for absent in [
            "<script",
            "style=",
            "src=",
            "http://",
            "https://",
            "onclick",
            "javascript:",
        ] {
            assert!(!page.contains(absent), "{absent}");
        }
        let loaded: Vec<_> = page.split("<link ").skip(1).collect();
        assert!(loaded.len() == 1 && loaded[0].starts_with("rel=\"stylesheet\" href=\"/docs/style.css\""));
    }

    #[test]
    fn text_is_no_markup() {
        assert_eq!(text(&"<b a=\"x\">&".into()), "&lt;b a=&quot;x&quot;&gt;&amp;");
    }
}
