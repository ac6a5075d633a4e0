//! Converts tools, results and errors to MCP types.

use std::sync::Arc;

use ringfence_tools::toolbox::{Answer, Definition, Effects, ErrorKind, ToolError};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// Converts a tool for a list.
pub(super) fn listed(definition: &Definition) -> Tool {
    let input = plain(definition.input_schema.clone());
    let tool = Tool::new(definition.name, definition.description, Arc::new(input))
        .with_title(definition.title)
        .with_annotations(annotations(definition.effects));
    match &*definition.output_schema {
        Some(schema) => tool.with_raw_output_schema(Arc::new(or_error(plain(schema.clone())))),
        None => tool,
    }
}

fn annotations(effects: Effects) -> ToolAnnotations {
    let hints = |reads, destroys, reaches| {
        ToolAnnotations::new()
            .read_only(reads)
            .destructive(destroys)
            .open_world(reaches)
    };
    match effects {
        Effects::Reads => hints(true, false, false),
        Effects::Writes => hints(false, false, false),
        Effects::Destroys => hints(false, true, false),
        Effects::Reaches => hints(false, true, true),
    }
}

/// Removes parts that clients mishandle: the dialect, which they would look up (MCP's default is 2020-12),
/// and the formats of Rust's numbers.
fn plain(mut schema: Map<String, Value>) -> Map<String, Value> {
    schema.remove("$schema");
    schema.values_mut().for_each(without_widths);
    schema
}

fn without_widths(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let kind = object.get("type");
            if kind.is_some_and(|kind| names(kind, "integer") || names(kind, "number")) {
                object.remove("format");
            }
            object.values_mut().for_each(without_widths);
        }
        Value::Array(items) => items.iter_mut().for_each(without_widths),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns `true` if a schema's `type` is, or includes, this one.
fn names(kind: &Value, wanted: &str) -> bool {
    let among = |kinds: &Vec<Value>| kinds.iter().any(|kind| kind == wanted);
    kind == wanted || kind.as_array().is_some_and(among)
}

/// Returns the schema of a result or an error: clients validate errors against it too.
fn or_error(answer: Map<String, Value>) -> Map<String, Value> {
    let text = json!({"type": "string"});
    let error = json!({
        "type": "object",
        "description": "In place of an answer, where there is none.",
        "properties": {
            "error": {
                "type": "object",
                "properties": {"type": text, "message": text, "hint": text},
                "required": ["type", "message", "hint"],
            },
        },
        "required": ["error"],
    });
    Map::from_iter([
        ("type".to_owned(), Value::from("object")),
        ("anyOf".to_owned(), json!([answer, error])),
    ])
}

pub(super) fn answered(answer: Answer) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(answer.text)]);
    result.structured_content = answer.structured;
    result
}

/// Converts an error to a result, so that a model can read it and act on it.
pub(super) fn failed(error: &ToolError) -> CallToolResult {
    let text = format!("{}: {}\nhint: {}", error.kind.as_str(), error.message, error.hint);
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({"error": error.to_json()}));
    result
}

pub(super) fn unknown(error: &ToolError) -> ErrorData {
    ErrorData::invalid_params(error.message.clone(), Some(json!({"hint": error.hint})))
}

/// Creates the error for a call beyond the limit.
pub(super) fn too_many() -> ToolError {
    ToolError::new(
        ErrorKind::LimitExceeded,
        "too many calls at once on this connection",
        "wait for some of the answers, then call again",
    )
}

/// Creates the error for a request that resumes no waiting call.
pub(super) fn not_waiting() -> ToolError {
    ToolError::new(
        ErrorKind::InvalidArguments,
        "no call waits for an answer with this request state, these arguments and this tool",
        "make the call anew, without a request state",
    )
}

pub(super) fn warnings(answer: &Answer) -> Vec<String> {
    let warnings = answer
        .structured
        .as_ref()
        .and_then(|value| value.pointer("/meta/warnings"));
    let texts = warnings.and_then(Value::as_array).into_iter().flatten();
    texts
        .filter_map(|text| text.as_str().map(ToOwned::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn schemas_lose_their_dialect_and_the_widths_of_numbers() {
        let schema = object(json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "format": {"type": "string", "format": "uri"},
                "count": {"type": ["integer", "null"], "format": "uint64", "minimum": 0},
                "list": {"type": "array", "items": [{"type": "number", "format": "double"}]},
            },
        }));
        let expected = json!({
            "type": "object",
            "properties": {
                "format": {"type": "string", "format": "uri"},
                "count": {"type": ["integer", "null"], "minimum": 0},
                "list": {"type": "array", "items": [{"type": "number"}]},
            },
        });
        assert_eq!(Value::Object(plain(schema)), expected);
    }

    #[test]
    fn an_answers_schema_takes_either_an_answer_or_an_error() {
        let schema = object(json!({
            "type": "object",
            "properties": {"stdout": {"type": "string"}},
            "required": ["stdout"],
            "additionalProperties": false,
        }));
        let schema = Value::Object(or_error(schema));
        let accepts = |value: Value| jsonschema::draft202012::is_valid(&schema, &value);
        assert!(accepts(json!({"stdout": ""})));
        let error = ToolError::new(ErrorKind::Timeout, "m", "h");
        assert!(accepts(failed(&error).structured_content.unwrap()));
        assert!(!accepts(json!({})));
        assert!(!accepts(json!({"error": {"type": "timeout"}})));
        assert!(!accepts(json!({"stdout": 5})));
    }

    #[test]
    fn an_error_says_what_and_what_to_do_to_models_and_programs() {
        let result = failed(&ToolError::new(
            ErrorKind::NotFound,
            "there is no file `a`",
            "list the directory",
        ));
        let result = serde_json::to_value(result).unwrap();
        assert_eq!(result["isError"], true);
        assert_eq!(
            result["content"][0]["text"],
            "not_found: there is no file `a`\nhint: list the directory"
        );
        assert_eq!(
            result["structuredContent"]["error"],
            json!({"type": "not_found", "message": "there is no file `a`", "hint": "list the directory"})
        );
    }

    #[test]
    fn warnings_are_found_where_results_hold_them() {
        let of = |value| {
            warnings(&Answer {
                text: String::new(),
                structured: Some(value),
            })
        };
        assert_eq!(of(json!({"meta": {"warnings": ["a", 5, "b"]}})), ["a", "b"]);
        assert_eq!(of(json!({"meta": {}})), [""; 0]);
        assert_eq!(of(json!({"meta": {"warnings": "a"}})), [""; 0]);
    }
}
