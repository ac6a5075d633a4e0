//! Schemas in lists of tools, as short as they can be: a model reads the list in each of its conversations.

use serde_json::{Map, Value, json};

/// Keywords that do not constrain a value, or that clients mishandle: the dialect, which they would look up
/// (MCP's default is 2020-12), and the formats of Rust's numbers.
const LEFT_OUT: [&str; 4] = ["$schema", "title", "format", "default"];
/// Levels of an answer that are described: its members. Below, an object is any object, whose members
/// `ringfence tool --list --json` has.
const LEVELS: usize = 1;

/// Returns the schema of a tool's arguments, of which models read the descriptions.
pub(super) fn arguments(schema: &Map<String, Value>) -> Map<String, Value> {
    shortened(schema)
}

/// Returns the schema of an answer or an error, since clients validate both. Programs read it, so
/// descriptions are left to the documentation.
pub(super) fn answer(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut outline = outlined(&shortened(schema), LEVELS);
    let required = outline.remove("required").unwrap_or_else(|| json!([]));
    let error = json!({"type": "object", "required": ["type", "message", "hint"]});
    if let Some(Value::Object(properties)) = outline.get_mut("properties") {
        properties.insert("error".to_owned(), error);
    }
    let mut either = vec![json!({"required": required})];
    // The variants of an enum, whose common members are required, too.
    if let Some(variants) = outline.remove("oneOf") {
        either[0]["oneOf"] = variants;
    }
    either.push(json!({"required": ["error"]}));
    outline.insert("anyOf".to_owned(), Value::Array(either));
    outline
}

/// Returns a schema without these keywords, with nested alternatives joined.
fn shortened(schema: &Map<String, Value>) -> Map<String, Value> {
    let kept = schema
        .iter()
        .filter(|(key, _)| !LEFT_OUT.contains(&key.as_str()))
        .map(|(key, value)| {
            let value = match (key.as_str(), value) {
                ("properties", Value::Object(members)) => {
                    let member = |(name, value): (&String, &Value)| (name.clone(), short(value));
                    Value::Object(members.iter().map(member).collect())
                }
                ("anyOf", Value::Array(items)) => Value::Array(items.iter().flat_map(alternatives).collect()),
                (_, value) => short(value),
            };
            (key.clone(), value)
        });
    let mut schema: Map<String, Value> = kept.collect();
    if let Some(names) = constants(&schema) {
        schema.remove("oneOf");
        schema.insert("enum".to_owned(), names);
    }
    schema
}

fn short(value: &Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(shortened(object)),
        Value::Array(items) => Value::Array(items.iter().map(short).collect()),
        other => other.clone(),
    }
}

/// Returns the alternatives that an alternative is made of.
fn alternatives(value: &Value) -> Vec<Value> {
    match short(value) {
        Value::Object(object) if object.len() == 1 => match object.get("anyOf") {
            Some(Value::Array(items)) => items.clone(),
            _ => vec![Value::Object(object)],
        },
        other => vec![other],
    }
}

/// Returns the values of a schema whose alternatives are constants.
fn constants(schema: &Map<String, Value>) -> Option<Value> {
    let variants = schema.get("oneOf")?.as_array()?;
    let values = variants.iter().map(|variant| variant.get("const").cloned());
    values.collect::<Option<Vec<_>>>().map(Value::Array)
}

/// Returns the outline of a schema: no description, and no more than this many levels of objects.
fn outlined(schema: &Map<String, Value>, levels: usize) -> Map<String, Value> {
    const SHAPE: [&str; 4] = ["type", "enum", "const", "required"];
    let is = |kind| schema.get("type").is_some_and(|found| names(found, kind));
    if levels == 0 && (is("object") || is("array")) {
        return Map::from_iter([("type".to_owned(), schema["type"].clone())]);
    }
    let mut outline = Map::new();
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            (key, value) if SHAPE.contains(&key) => value.clone(),
            ("properties", Value::Object(members)) => {
                let member = |(name, value): (&String, &Value)| (name.clone(), outline_of(value, levels - 1));
                Value::Object(members.iter().map(member).collect())
            }
            ("items", value) => outline_of(value, levels - 1),
            ("oneOf" | "anyOf", Value::Array(items)) => {
                Value::Array(items.iter().map(|item| outline_of(item, levels)).collect())
            }
            _ => continue,
        };
        outline.insert(key.clone(), value);
    }
    outline
}

fn outline_of(value: &Value, levels: usize) -> Value {
    match value {
        Value::Object(object) => Value::Object(outlined(object, levels)),
        other => other.clone(),
    }
}

/// Returns `true` if a schema's `type` is, or includes, this one.
fn names(kind: &Value, wanted: &str) -> bool {
    let among = |kinds: &Vec<Value>| kinds.iter().any(|kind| kind == wanted);
    kind == wanted || kind.as_array().is_some_and(among)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_tools::toolbox::{ErrorKind, ToolError};

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn arguments_lose_their_dialect_and_the_widths_of_numbers() {
        let schema = object(json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "format": {"type": "string", "format": "uri", "description": "A format."},
                "title": {"type": ["integer", "null"], "format": "uint64", "minimum": 0},
                "time": {"anyOf": [{"anyOf": [{"type": "number"}, {"type": "string"}]}, {"type": "null"}]},
            },
        }));
        let expected = json!({
            "type": "object",
            "properties": {
                "format": {"type": "string", "description": "A format."},
                "title": {"type": ["integer", "null"], "minimum": 0},
                "time": {"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]},
            },
        });
        assert_eq!(Value::Object(arguments(&schema)), expected);
    }

    #[test]
    fn an_answers_schema_takes_either_an_answer_or_an_error() {
        let schema = object(json!({
            "type": "object",
            "description": "An answer.",
            "properties": {
                "stdout": {"type": "string", "description": "Output."},
                "meta": {
                    "type": "object",
                    "properties": {
                        "deep": {"type": "string"},
                    },
                    "required": ["deep"],
                },
                "outcome": {"oneOf": [{"const": "exited"}, {"const": "unknown"}]},
            },
            "required": ["stdout"],
        }));
        let schema = Value::Object(answer(&schema));
        assert!(!schema.to_string().contains("description"), "{schema}");
        let accepts = |value: Value| jsonschema::draft202012::is_valid(&schema, &value);
        assert!(accepts(json!({"stdout": ""})));
        assert!(accepts(
            json!({"stdout": "", "meta": {"deep": 5}, "outcome": "exited"})
        ));
        let error = ToolError::new(ErrorKind::Timeout, "m", "h").to_json();
        assert!(accepts(json!({"error": error})));
        for wrong in [
            json!({}),
            json!({"error": {"type": "timeout"}}),
            json!({"stdout": 5}),
            json!({"stdout": "", "outcome": "other"}),
            json!({"stdout": "", "meta": "x"}),
        ] {
            assert!(!accepts(wrong.clone()), "{wrong}");
        }
    }
}
