//! Restricts a server's JSON Schema to a finite part that is cheap to validate.
//!
//! A server's schema can refer to itself, double with each reference, or have a regular expression with
//! exponential backtracking. Leaving parts out only makes it weaker: the server validates its arguments
//! itself.

use serde_json::{Map, Value, json};

/// Maximum number of copied schemas.
const MAX_SCHEMAS: usize = 1000;
/// Maximum nesting, including references.
const MAX_DEPTH: usize = 16;
/// Maximum number of values of an enumeration.
const MAX_CHOICES: usize = 256;
/// Maximum length of a type in Python syntax.
const MAX_ANNOTATION: usize = 120;

const TYPES: &[&str] = &[
    "null", "boolean", "object", "array", "number", "string", "integer",
];

/// Copies a server's schema without expensive parts.
pub(super) fn restricted(schema: &Value, root: &Value) -> Value {
    Copier {
        root,
        left: MAX_SCHEMAS,
    }
    .copy(schema, MAX_DEPTH)
}

struct Copier<'a> {
    root: &'a Value,
    left: usize,
}

impl Copier<'_> {
    fn copy(&mut self, schema: &Value, room: usize) -> Value {
        let Value::Object(members) = schema else {
            return Value::Bool(schema != &Value::Bool(false));
        };
        if room == 0 || self.left == 0 {
            return Value::Bool(true);
        }
        self.left -= 1;
        if let Some(Value::String(reference)) = members.get("$ref") {
            let root = self.root;
            let target = reference.strip_prefix('#').and_then(|path| root.pointer(path));
            return target.map_or(Value::Bool(true), |target| self.copy(target, room - 1));
        }
        let copied = members
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), self.member(key, value, room - 1)?)));
        // `oneOf` would become stricter as its parts become weaker.
        let copied = copied.map(|(key, value)| match key.as_str() {
            "oneOf" => ("anyOf".to_owned(), value),
            _ => (key, value),
        });
        Value::Object(copied.collect())
    }

    fn member(&mut self, key: &str, value: &Value, room: usize) -> Option<Value> {
        match (key, value) {
            ("type", Value::String(name)) if TYPES.contains(&name.as_str()) => Some(value.clone()),
            ("type", Value::Array(names)) => {
                let known = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
                let unique = (1..names.len()).all(|at| !names[..at].contains(&names[at]));
                (!names.is_empty() && names.len() <= TYPES.len() && unique && names.iter().all(known))
                    .then(|| value.clone())
            }
            ("enum", Value::Array(choices)) if (1..=MAX_CHOICES).contains(&choices.len()) => {
                Some(value.clone())
            }
            ("const", _) => Some(value.clone()),
            ("properties", Value::Object(members)) => {
                let copied = members
                    .iter()
                    .map(|(name, schema)| (name.clone(), self.copy(schema, room)));
                Some(Value::Object(copied.collect::<Map<_, _>>()))
            }
            ("required", Value::Array(names)) => names.iter().all(Value::is_string).then(|| value.clone()),
            ("additionalProperties" | "items", Value::Object(_) | Value::Bool(_)) => {
                Some(self.copy(value, room))
            }
            ("prefixItems" | "anyOf" | "oneOf" | "allOf", Value::Array(parts)) if !parts.is_empty() => {
                Some(parts.iter().map(|part| self.copy(part, room)).collect())
            }
            ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", Value::Number(_)) => {
                Some(value.clone())
            }
            (
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties",
                Value::Number(number),
            ) => number.as_u64().map(|number| json!(number)),
            _ => None,
        }
    }
}

/// Renders a restricted schema as a Python type. `None` if it is unrestricted or too long.
pub(super) fn annotation(schema: &Value) -> Option<String> {
    let text = written(schema, 4)?;
    (text.chars().count() <= MAX_ANNOTATION).then_some(text)
}

fn written(schema: &Value, room: usize) -> Option<String> {
    let room = room.checked_sub(1)?;
    if let Some(Value::Array(choices)) = schema.get("enum") {
        let choices: Option<Vec<String>> = choices.iter().map(literal).collect();
        return Some(format!("Literal[{}]", choices?.join(", ")));
    }
    if let Some(Value::Array(parts)) = schema.get("anyOf") {
        let parts: Option<Vec<String>> = parts.iter().map(|part| written(part, room)).collect();
        return parts.map(|parts| parts.join(" | "));
    }
    match schema.get("type")? {
        Value::Array(names) => {
            let names: Option<Vec<String>> = names
                .iter()
                .map(|name| written(&json!({"type": name}), room))
                .collect();
            names.map(|names| names.join(" | "))
        }
        Value::String(name) => Some(named(name, schema, room)),
        _ => None,
    }
}

fn named(name: &str, schema: &Value, room: usize) -> String {
    let of = |key: &str| schema.get(key).and_then(|part| written(part, room));
    match name {
        "null" => "None".to_owned(),
        "boolean" => "bool".to_owned(),
        "integer" => "int".to_owned(),
        "number" => "float".to_owned(),
        "string" => "str".to_owned(),
        "array" => of("items").map_or("list".to_owned(), |items| format!("list[{items}]")),
        _ => of("additionalProperties").map_or("dict".to_owned(), |of| format!("dict[str, {of}]")),
    }
}

/// Renders a scalar as a Python literal.
fn literal(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("None".to_owned()),
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Number(number) => Some(number.to_string()),
        // A JSON string is a valid Python string if it has no escapes.
        Value::String(text) => {
            let plain = text.chars().all(|c| !c.is_control() && c != '\\' && c != '"');
            (plain && text.chars().count() <= MAX_ANNOTATION).then(|| format!("\"{text}\""))
        }
        Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, expected: Value) {
        assert_eq!(restricted(&schema, &schema), expected, "{schema}");
    }

    #[test]
    fn what_costs_much_is_left_out() {
        check(
            json!({"type": "string", "pattern": "(a+)+$", "format": "email", "maxLength": 5}),
            json!({"type": "string", "maxLength": 5}),
        );
        check(json!({"not": {}, "uniqueItems": true, "if": {}}), json!({}));
        check(
            json!({"oneOf": [{"type": "null"}, 7]}),
            json!({"anyOf": [{"type": "null"}, true]}),
        );
        check(
            json!({"type": "no", "required": [1], "minimum": "a", "properties": []}),
            json!({}),
        );
        check(json!({"$ref": "https://a.test/schema"}), json!(true));
        check(json!(false), json!(false));
    }

    #[test]
    fn references_are_followed_as_far_as_they_lead() {
        let root = json!({
            "$defs": {"city": {"type": "string"}, "self": {"$ref": "#/$defs/self"}},
            "properties": {"a": {"$ref": "#/$defs/city"}, "b": {"$ref": "#/$defs/self"}, "c": {"$ref": "#/none"}},
        });
        let expected = json!({"properties": {"a": {"type": "string"}, "b": true, "c": true}});
        check(root, expected);
    }

    #[test]
    fn what_doubles_with_each_reference_ends() {
        let mut defs = Map::new();
        for number in 0..60 {
            let next = json!({"$ref": format!("#/$defs/{}", number + 1)});
            defs.insert(number.to_string(), json!({"allOf": [next, next]}));
        }
        let root = json!({"$defs": defs, "$ref": "#/$defs/0"});
        let copied = restricted(&root, &root);
        assert!(copied.to_string().len() < 100_000);
        let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
        assert!(restricted(&deep, &deep).to_string().len() < 1000);
    }

    #[test]
    fn types_are_written_as_in_python() {
        for (schema, expected) in [
            (json!({"type": "integer"}), Some("int")),
            (json!({"type": ["string", "null"]}), Some("str | None")),
            (
                json!({"anyOf": [{"type": "number"}, {"type": "null"}]}),
                Some("float | None"),
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                Some("list[str]"),
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "integer"}}),
                Some("dict[str, int]"),
            ),
            (json!({"enum": ["a", 1, null]}), Some("Literal[\"a\", 1, None]")),
            (json!({"enum": ["\u{1b}"]}), None),
            (json!({}), None),
            (json!(true), None),
        ] {
            assert_eq!(annotation(&schema).as_deref(), expected, "{schema}");
        }
    }
}
