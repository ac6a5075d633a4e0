//! A tool's arguments against its JSON Schema (draft 2020-12), which comes from its Rust type.

use jsonschema::Validator;
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

/// Says where arguments violate a schema, and how.
pub(crate) fn check(tool: &str, validator: &Validator, arguments: &Value) -> Result<(), ToolError> {
    if validator.is_valid(arguments) {
        return Ok(());
    }
    let mut told: Vec<String> = validator
        .iter_errors(arguments)
        .take(MAX_TOLD)
        .map(|error| {
            let what: String = error.to_string().chars().take(200).collect();
            match error.instance_path().to_string().as_str() {
                "" => what,
                path => format!("`{path}`: {what}"),
            }
        })
        .collect();
    told.dedup();
    Err(ToolError::new(
        ErrorKind::InvalidArguments,
        format!("the arguments of `{tool}` are not right: {}", told.join("; ")),
        "correct the arguments; the tool's schema says what each takes",
    ))
}
