//! Converts the result of a tool to a value for a program.

use serde_json::{Map, Value};

use super::super::CallError;
use super::tools::Tool;

/// Members of content that are included.
const MEMBERS: &[&str] = &[
    "type",
    "text",
    "data",
    "blob",
    "mimeType",
    "uri",
    "name",
    "title",
    "description",
    "size",
];

/// Converts the result of a call.
///
/// # Errors
/// If the tool reports an error, or violates its declared output schema.
pub(super) fn value(result: &Value, tool: &Tool) -> Result<Value, CallError> {
    let content = result.get("content").and_then(Value::as_array);
    let content: &[Value] = content.map_or(&[], Vec::as_slice);
    if result.get("isError") == Some(&Value::Bool(true)) {
        return Err(CallError::new("failed", failure(content)));
    }
    match result.get("structuredContent") {
        Some(Value::Object(members)) if tool.is_wrapped => {
            let wrapped = members.get("result").cloned();
            wrapped.ok_or_else(|| CallError::new("failed", "it gave no `result`, as it promises"))
        }
        Some(structured @ Value::Object(_)) => Ok(structured.clone()),
        _ if tool.is_structured => Err(CallError::new(
            "failed",
            "it gave no structured result, as it promises",
        )),
        _ => Ok(shown(content)),
    }
}

fn failure(content: &[Value]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|part| part.get("text")?.as_str())
        .collect();
    match texts.is_empty() {
        true => "it failed, and does not say why".to_owned(),
        false => texts.join("\n"),
    }
}

/// Converts content without a structured form: null, one part, or a list of parts. A text part becomes a
/// string.
fn shown(content: &[Value]) -> Value {
    let mut parts: Vec<Value> = content.iter().map(part).collect();
    match parts.len() {
        0 => Value::Null,
        1 => parts.remove(0),
        _ => Value::Array(parts),
    }
}

fn part(content: &Value) -> Value {
    let kind = content.get("type").and_then(Value::as_str).unwrap_or_default();
    match (kind, content.get("text")) {
        ("text", Some(text @ Value::String(_))) => text.clone(),
        _ => {
            // The resource is in a nested object.
            let inner = content.get("resource").and_then(Value::as_object);
            let members = inner.into_iter().chain(content.as_object()).flatten();
            let known = members.filter(|(name, value)| {
                MEMBERS.contains(&name.as_str()) && (value.is_string() || value.is_number())
            });
            Value::Object(
                known
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect::<Map<_, _>>(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tools::Tools;
    use super::*;
    use serde_json::json;

    fn check(output: Value, result: Value, expected: Result<Value, &str>) {
        let mut tools = Tools::default();
        let page = json!({"tools": [{"name": "t", "outputSchema": output}]});
        tools.add("Test", &page).unwrap();
        let found = value(&result, tools.tool("Test.t").unwrap());
        assert_eq!(
            found.map_err(|fault| fault.message),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn content_becomes_values() {
        let text = |text: &str| json!({"type": "text", "text": text});
        check(Value::Null, json!({"content": []}), Ok(Value::Null));
        check(Value::Null, json!({}), Ok(Value::Null));
        check(Value::Null, json!({"content": [text("[1]")]}), Ok(json!("[1]")));
        check(
            Value::Null,
            json!({"content": [text("a"), text("b")]}),
            Ok(json!(["a", "b"])),
        );
        check(
            Value::Null,
            json!({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png", "_meta": {}}]}),
            Ok(json!({"type": "image", "data": "aGk=", "mimeType": "image/png"})),
        );
        check(
            Value::Null,
            json!({"content": [{"type": "resource", "resource": {"uri": "a://b", "text": "hi"}}]}),
            Ok(json!({"uri": "a://b", "text": "hi", "type": "resource"})),
        );
    }

    #[test]
    fn structured_results_are_what_the_schema_says() {
        let wrap =
            json!({"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]});
        let structured = json!({"content": [], "structuredContent": {"result": 3}});
        check(wrap.clone(), structured.clone(), Ok(json!(3)));
        check(Value::Null, structured.clone(), Ok(json!({"result": 3})));
        check(json!({"type": "object"}), structured, Ok(json!({"result": 3})));
        let promised = Err("it gave no structured result, as it promises");
        check(json!({"type": "object"}), json!({"content": []}), promised);
        check(
            wrap,
            json!({"structuredContent": {}}),
            Err("it gave no `result`, as it promises"),
        );
    }

    #[test]
    fn a_failure_is_told() {
        let failed = json!({"isError": true, "content": [{"type": "text", "text": "no such city"}]});
        check(json!({"type": "object"}), failed, Err("no such city"));
        check(
            Value::Null,
            json!({"isError": true}),
            Err("it failed, and does not say why"),
        );
    }
}
