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
    Some(format!("`{name}`: {words}"))
}
