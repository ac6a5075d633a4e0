//! Validates a tool's arguments against the JSON Schema derived from its Rust type: of draft 2020-12, in keywords that
//! mean the same in draft 7.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use schemars::JsonSchema;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value};

use super::{ErrorKind, ToolError};

/// Maximum number of reported schema violations.
const MAX_TOLD: usize = 5;

/// Returns the schema of a type's deserialized or serialized form, with inlined references. A member that is
/// skipped when empty is not required.
pub(crate) fn of<T: JsonSchema>(contract: Contract) -> Map<String, Value> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.contract = contract;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // Title and description of the type itself are internal.
    schema.remove("title");
    schema.remove("description");
    match schema.to_value() {
        Value::Object(object) => object,
        // `true`: a type that accepts any value.
        _ => Map::new(),
    }
}

/// Compiles a schema by the rules of draft 7, which are the same for the keywords of our types: the test of all
/// tools lists them. The library compares a schema with its draft's meta-schema first, and to compile that of
/// draft 2020-12, nine documents, takes most of the time of a process that calls one tool.
#[expect(
    clippy::expect_used,
    reason = "schemas come from our own types; the test of all tools compiles each"
)]
pub(crate) fn validator(schema: &Map<String, Value>) -> Validator {
    jsonschema::draft7::options()
        // An annotation since draft 2019-09.
        .should_validate_formats(false)
        .build(&Value::Object(schema.clone()))
        .expect("a derived schema is a valid schema")
}

/// Renders the members of a schema, required ones first: `code, timeout?`.
pub(crate) fn members(schema: &Map<String, Value>) -> String {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
    let names = schema.get("properties").and_then(Value::as_object);
    let names = names.into_iter().flat_map(Map::keys);
    let (needed, optional): (Vec<_>, Vec<_>) = names.partition(|name| is_required(name));
    let optional = optional.into_iter().map(|name| format!("{name}?"));
    let all: Vec<String> = needed.into_iter().cloned().chain(optional).collect();
    all.join(", ")
}

/// Returns `true` if a value fulfils a schema, as far as its most frequent keywords tell; `false` leaves it to the [`validator`].
///
/// To compile a validator takes longer than all else in a process that calls one tool, and most arguments are right.
pub(crate) fn accepts(schema: &Map<String, Value>, value: &Value) -> bool {
    let accepts_of =
        |schema: &Value, value: &Value| schema.as_object().is_some_and(|schema| accepts(schema, value));
    let number = |is_within: fn(f64, f64) -> bool, limit: &Value| {
        let both = value.as_f64().zip(limit.as_f64());
        both.is_some_and(|(value, limit)| is_within(value, limit))
    };
    schema.iter().all(|(keyword, expected)| match keyword.as_str() {
        // Annotations: formats are not asserted.
        "$schema" | "description" | "default" | "format" => true,
        "type" => match expected {
            Value::Array(types) => types.iter().any(|one| is_of_type(one, value)),
            one => is_of_type(one, value),
        },
        "enum" => each(expected).any(|one| one == value),
        "anyOf" => each(expected).any(|schema| accepts_of(schema, value)),
        "exclusiveMinimum" => number(|value, limit| value > limit, expected),
        "maximum" => number(|value, limit| value <= limit, expected),
        "required" => each(expected).all(|name| name.as_str().is_some_and(|name| value.get(name).is_some())),
        // Both together, as all of our objects have them: each member is known, and fulfils its schema.
        "properties" => value.as_object().is_some_and(|members| {
            members
                .iter()
                .all(|(name, value)| expected.get(name).is_some_and(|schema| accepts_of(schema, value)))
        }),
        "additionalProperties" => *expected == Value::Bool(false) && schema.contains_key("properties"),
        _ => false,
    })
}

/// Returns the elements of a keyword's list.
fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Compares the type of a value. An integer that is written as a decimal fraction is left to the library.
fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        _ => false,
    }
}

/// Validates arguments; the error names the members and their violations.
pub(crate) fn check(
    tool: &str,
    schema: &Map<String, Value>,
    validator: &Validator,
    arguments: &Value,
) -> Result<(), ToolError> {
    if validator.is_valid(arguments) {
        return Ok(());
    }
    let mut told: Vec<String> = validator
        .iter_errors(arguments)
        .take(MAX_TOLD)
        .map(|error| {
            let what: String = words(&error).chars().take(200).collect();
            match error.instance_path().to_string().as_str() {
                "" => what,
                path => format!("`{path}`: {what}"),
            }
        })
        .collect();
    told.dedup();
    let first = validator.iter_errors(arguments).next();
    let wrong = first.map(|error| error.instance_path().to_string());
    let hint = wrong.and_then(|path| described(schema, &path));
    Err(ToolError::new(
        ErrorKind::InvalidArguments,
        format!("{}: {}", wrong_arguments(tool), told.join("; ")),
        hint.unwrap_or_else(|| format!("write an object with these members: {}", members(schema))),
    ))
}

/// Advice where arguments have the form of the schema, and cannot be read all the same.
pub const ADVICE: &str = "correct the arguments; the tool's schema says what each takes";

/// Returns the beginning of the message about wrong arguments of a tool; a colon and what is wrong follow.
pub fn wrong_arguments(tool: &str) -> String {
    format!("the arguments of `{tool}` are not right")
}

fn words(error: &ValidationError<'_>) -> String {
    match error.kind() {
        // The member's description lists the accepted forms.
        ValidationErrorKind::AnyOf { .. } => format!("{} cannot be read", error.instance()),
        _ => error.to_string(),
    }
}

/// Returns the description of the member that a path points into.
fn described(schema: &Map<String, Value>, path: &str) -> Option<String> {
    let name = path.strip_prefix('/')?.split('/').next()?;
    let words = schema
        .get("properties")?
        .get(name)?
        .get("description")?
        .as_str()?;
    // A description that is a doc comment has its line breaks.
    let words: Vec<&str> = words.split_whitespace().collect();
    Some(format!("`{name}`: {}", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::all;
    use serde_json::json;

    /// Values at the edges of the keywords.
    fn values() -> Vec<Value> {
        let numbers = [
            json!(-1),
            json!(0),
            json!(0.5),
            json!(1),
            json!(1.0),
            json!(86_400),
            json!(86_401),
        ];
        let words = ["", "python", "local", "5s", "x y", "\u{0}"].map(Value::from);
        let others = [
            json!(null),
            json!(true),
            json!([]),
            json!(["a"]),
            json!({}),
            json!({"a": "b"}),
        ];
        numbers.into_iter().chain(words).chain(others).collect()
    }

    #[test]
    fn what_is_accepted_early_fulfils_the_schema() {
        let mut early = 0;
        for tool in all() {
            let schema = &*tool.input_schema;
            let library = validator(schema);
            let mut judge = |arguments: Value| {
                if accepts(schema, &arguments) {
                    early += 1;
                    assert!(library.is_valid(&arguments), "{}: {arguments}", tool.name);
                }
            };
            let required = schema.get("required").and_then(Value::as_array);
            let least = |value: &Value| -> Map<_, _> {
                let names = required.into_iter().flatten().filter_map(Value::as_str);
                names.map(|name| (name.to_owned(), value.clone())).collect()
            };
            for value in values() {
                judge(value.clone());
                judge(least(&value).into());
                for name in schema["properties"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(String::as_str)
                    .chain(["other"])
                {
                    let mut members = least(&json!("python"));
                    members.insert(name.to_owned(), value.clone());
                    judge(members.clone().into());
                    members.retain(|member, _| member == name);
                    judge(members.into());
                }
            }
        }
        assert!(early > 100, "{early}");
    }
}
