//! A tool's arguments against its JSON Schema (draft 2020-12), which comes from its Rust type.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use schemars::JsonSchema;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value};

use super::{ErrorKind, ToolError};

/// How many violations are told at once.
const MAX_TOLD: usize = 5;

/// The schema of a type as it is read or written, as one object without references to elsewhere. What is not written
/// where it is empty is no member that must be there.
pub(crate) fn of<T: JsonSchema>(contract: Contract) -> Map<String, Value> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.contract = contract;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // The type's own name and words are ours, not the model's.
    schema.remove("title");
    schema.remove("description");
    match schema.to_value() {
        Value::Object(object) => object,
        // A type that takes anything.
        _ => Map::new(),
    }
}

/// Compiles a schema.
#[expect(
    clippy::expect_used,
    reason = "schemas come from our own types; the test of all tools compiles each"
)]
pub(crate) fn validator(schema: &Map<String, Value>) -> Validator {
    jsonschema::draft202012::new(&Value::Object(schema.clone())).expect("a derived schema is a valid schema")
}

/// The members of a schema as people read them, those that must be there first: `code, timeout?`.
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

/// Says where arguments violate a schema, and how.
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
        format!("the arguments of `{tool}` are not right: {}", told.join("; ")),
        hint.unwrap_or_else(|| format!("write an object with these members: {}", members(schema))),
    ))
}

fn words(error: &ValidationError<'_>) -> String {
    match error.kind() {
        // Which of the forms it should have had is in the member's description.
        ValidationErrorKind::AnyOf { .. } => format!("{} cannot be read", error.instance()),
        _ => error.to_string(),
    }
}

/// What a schema says about the member that a path leads into.
fn described(schema: &Map<String, Value>, path: &str) -> Option<String> {
    let name = path.strip_prefix('/')?.split('/').next()?;
    let words = schema
        .get("properties")?
        .get(name)?
        .get("description")?
        .as_str()?;
    Some(format!("`{name}`: {words}"))
}
