//! Describes a host function: its name, parameters and result.

use jsonschema::Validator;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Policy;
use ringfence_records::audit::Digest;

/// Maximum length of the name of a skill, function or parameter.
const MAX_NAME: usize = 64;
/// Maximum number of parameters of a function.
const MAX_PARAMETERS: usize = 32;
/// Maximum length of an annotation or default, in characters.
const MAX_SHOWN: usize = 200;
/// Maximum length of the documentation, in characters; the rest is truncated.
const MAX_DOC: usize = 2000;
/// Maximum number of reported schema violations.
const MAX_TOLD: usize = 3;

/// Declaration of a function by its skill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// Skill and function, such as `Notes.add`.
    pub path: String,
    /// Documentation; the first line is the summary.
    #[serde(default)]
    pub doc: String,
    /// Parameters in order.
    #[serde(default)]
    pub parameters: Vec<Parameter>,
    /// Return type in Python syntax.
    #[serde(default)]
    pub returns: Option<String>,
    /// JSON Schema of the result; `None` accepts anything.
    #[serde(default)]
    pub result: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    pub name: String,
    /// Passing mode.
    #[serde(default)]
    pub kind: ParameterKind,
    /// Type in Python syntax.
    #[serde(default)]
    pub annotation: Option<String>,
    /// Default in Python syntax. `None`: the parameter is required.
    #[serde(default)]
    pub default: Option<String>,
    /// JSON Schema; `None` accepts anything.
    #[serde(default)]
    pub schema: Option<Value>,
}

/// Passing mode of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParameterKind {
    PositionalOnly,
    #[default]
    PositionalOrKeyword,
    KeywordOnly,
}

/// A function cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` cannot be offered: {why}")]
pub struct Wrong {
    path: String,
    why: String,
}

/// A function that programs can call.
#[derive(Debug)]
pub struct Function {
    declared: Declared,
    arguments: Map<String, Value>,
    takes: Validator,
    gives: Option<Validator>,
    definition: Digest,
    /// Policy that the function's skill demands.
    pub policy: Policy,
}

impl Function {
    /// Creates a function from its declaration.
    ///
    /// # Errors
    /// If a name or a schema is invalid.
    pub fn new(mut declared: Declared, policy: Policy) -> Result<Self, Wrong> {
        let wrong = |why: String| Wrong {
            path: declared.path.chars().take(2 * MAX_NAME).collect(),
            why,
        };
        check(&declared).map_err(wrong)?;
        // Before truncation: the digest covers the parts that are not shown.
        let definition = Digest::of_value(&json!(declared));
        let arguments = arguments(&declared.parameters);
        let takes = validator(&Value::Object(arguments.clone())).map_err(wrong)?;
        let gives = declared
            .result
            .as_ref()
            .map(validator)
            .transpose()
            .map_err(wrong)?;
        if declared.doc.chars().count() > MAX_DOC {
            declared.doc = declared.doc.chars().take(MAX_DOC).chain("…".chars()).collect();
        }
        Ok(Self {
            declared,
            arguments,
            takes,
            gives,
            definition,
            policy,
        })
    }

    /// Includes `source`, the digest of its code or server, in the digest of its definition.
    #[must_use]
    pub fn with_source(mut self, source: Digest) -> Self {
        self.definition = Digest::of(format!("{source} {}", self.definition).as_bytes());
        self
    }

    /// Returns the digest of the function's definition. An approval holds for this definition only.
    pub const fn definition(&self) -> Digest {
        self.definition
    }

    /// Returns skill and function, such as `Notes.add`.
    pub fn path(&self) -> &str {
        &self.declared.path
    }

    pub fn skill(&self) -> &str {
        self.path().split('.').next().unwrap_or_default()
    }

    /// Returns the function's name without the skill's.
    pub fn name(&self) -> &str {
        self.path().split('.').nth(1).unwrap_or_default()
    }

    pub fn doc(&self) -> &str {
        &self.declared.doc
    }

    /// Returns the first line of its documentation; empty if the documentation covers types only.
    pub fn summary(&self) -> &str {
        self.doc().lines().next().unwrap_or_default()
    }

    /// Returns the JSON Schema of its arguments by name.
    pub const fn arguments(&self) -> &Map<String, Value> {
        &self.arguments
    }

    /// Returns the JSON Schema of its result.
    pub const fn result(&self) -> Option<&Value> {
        self.declared.result.as_ref()
    }

    /// Renders the function's signature in Python syntax: `add(text: str, tags: list[str] = []) -> int`.
    pub fn signature(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut last = None;
        for parameter in &self.declared.parameters {
            match (last, parameter.kind) {
                (Some(ParameterKind::PositionalOnly), ParameterKind::PositionalOrKeyword) => {
                    parts.push("/".to_owned());
                }
                (Some(ParameterKind::PositionalOnly), ParameterKind::KeywordOnly) => {
                    parts.extend(["/".to_owned(), "*".to_owned()]);
                }
                (None | Some(ParameterKind::PositionalOrKeyword), ParameterKind::KeywordOnly) => {
                    parts.push("*".to_owned());
                }
                _ => {}
            }
            parts.push(parameter.shown());
            last = Some(parameter.kind);
        }
        if last == Some(ParameterKind::PositionalOnly) {
            parts.push("/".to_owned());
        }
        let returns = self.declared.returns.as_ref();
        let returns = returns
            .map(|returns| format!(" -> {returns}"))
            .unwrap_or_default();
        format!("{}({}){returns}", self.name(), parts.join(", "))
    }

    /// Renders the function's `def` line and its documentation.
    pub fn description(&self) -> String {
        let doc = self
            .doc()
            .trim()
            .replace('\n', "\n    ")
            .replace("\n    \n", "\n\n");
        let body = match doc.as_str() {
            "" => "...".to_owned(),
            doc => format!("\"\"\"{doc}\"\"\""),
        };
        format!("def {}:\n    {body}", self.signature())
    }

    /// Renders the function's entry in the catalogue for programs.
    pub(super) fn entry(&self) -> Value {
        let Declared {
            path,
            doc,
            parameters,
            returns,
            ..
        } = &self.declared;
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|parameter| {
                json!({
                    "name": parameter.name,
                    "kind": parameter.kind,
                    "annotation": parameter.annotation,
                    "default": parameter.default,
                })
            })
            .collect();
        json!({"path": path, "doc": doc, "parameters": parameters, "returns": returns})
    }

    /// Binds arguments to parameter names and validates them.
    ///
    /// # Errors
    /// If they are invalid, with a message for the author of the call.
    pub(super) fn bind(
        &self,
        args: Vec<Value>,
        kwargs: Map<String, Value>,
    ) -> Result<Map<String, Value>, String> {
        let bound = self.named(args, kwargs)?;
        let value = Value::Object(bound);
        check_value(&self.takes, &value)?;
        match value {
            Value::Object(bound) => Ok(bound),
            _ => Ok(Map::new()),
        }
    }

    fn named(&self, args: Vec<Value>, kwargs: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let (given, parameters) = (args.len(), &self.declared.parameters);
        let by_place = parameters
            .iter()
            .filter(|parameter| parameter.kind != ParameterKind::KeywordOnly);
        let places = by_place.clone().count();
        if given > places {
            return Err(format!("it takes {places} positional arguments, got {given}"));
        }
        let mut bound: Map<String, Value> = by_place
            .map(|parameter| parameter.name.clone())
            .zip(args)
            .collect();
        for (name, value) in kwargs {
            let shown: String = name.chars().take(MAX_NAME).collect();
            let known = parameters.iter().find(|parameter| parameter.name == name);
            match known {
                Some(parameter) if parameter.kind == ParameterKind::PositionalOnly => {
                    return Err(format!("`{shown}` is positional-only"));
                }
                None => return Err(format!("unexpected argument `{}`", shown.escape_debug())),
                Some(_) => {}
            }
            if bound.insert(name, value).is_some() {
                return Err(format!("argument `{shown}` was given twice"));
            }
        }
        let missing =
            |parameter: &&Parameter| parameter.default.is_none() && !bound.contains_key(&parameter.name);
        let missing: Vec<&str> = parameters
            .iter()
            .filter(missing)
            .map(|parameter| parameter.name.as_str())
            .collect();
        match missing.is_empty() {
            true => Ok(bound),
            false => Err(format!("it needs `{}`", missing.join("`, `"))),
        }
    }

    /// Validates a result against the declared schema.
    ///
    /// # Errors
    /// If it is invalid.
    pub(super) fn check_result(&self, result: &Value) -> Result<(), String> {
        self.gives
            .as_ref()
            .map_or(Ok(()), |gives| check_value(gives, result))
    }
}

impl Parameter {
    fn shown(&self) -> String {
        let annotation = self.annotation.as_ref();
        let annotation = annotation.map(|annotation| format!(": {annotation}"));
        let default = self.default.as_ref().map(|default| match annotation {
            Some(_) => format!(" = {default}"),
            None => format!("={default}"),
        });
        [Some(self.name.clone()), annotation, default]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Returns `true` if a text is a valid name of a skill or function: a public identifier.
pub(super) fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && text.len() <= MAX_NAME
}

/// Names that `device` itself uses.
const RESERVED: &[&str] = &["device", "search_skills", "describe_function"];

fn check(declared: &Declared) -> Result<(), String> {
    let path = declared.path.split_once('.');
    if !path.is_some_and(|(skill, function)| is_name(skill) && is_name(function)) {
        return Err("its name must be `Skill.function`, in letters, digits and `_`".to_owned());
    }
    if path.is_some_and(|(skill, _)| RESERVED.contains(&skill)) {
        return Err("another skill has this name".to_owned());
    }
    if declared.parameters.len() > MAX_PARAMETERS {
        return Err(format!("it takes more than {MAX_PARAMETERS} arguments"));
    }
    let mut order = 0;
    for parameter in &declared.parameters {
        let name = &parameter.name;
        let plain = name.chars().all(|c| c == '_' || c.is_alphanumeric());
        if name.is_empty() || name.chars().count() > MAX_NAME || !plain {
            return Err(format!(
                "`{}` is not a valid name of an argument",
                name.escape_debug()
            ));
        }
        if declared
            .parameters
            .iter()
            .filter(|other| other.name == *name)
            .count()
            > 1
        {
            return Err(format!("it takes two arguments `{name}`"));
        }
        let place = parameter.kind as u8;
        if place < order {
            return Err("its arguments are out of order".to_owned());
        }
        order = place;
    }
    let shown = declared
        .parameters
        .iter()
        .flat_map(|parameter| [parameter.annotation.as_ref(), parameter.default.as_ref()]);
    let long = |text: &String| text.chars().count() > MAX_SHOWN || text.contains(char::is_control);
    if shown.chain([declared.returns.as_ref()]).flatten().any(long) {
        return Err(format!(
            "a type or default in its signature is longer than {MAX_SHOWN} characters, or not plain text"
        ));
    }
    Ok(())
}

fn arguments(parameters: &[Parameter]) -> Map<String, Value> {
    let anything = || Value::Bool(true);
    let properties: Map<String, Value> = parameters
        .iter()
        .map(|parameter| {
            let schema = parameter.schema.clone().unwrap_or_else(anything);
            (parameter.name.clone(), schema)
        })
        .collect();
    let required: Vec<&str> = parameters
        .iter()
        .filter(|parameter| parameter.default.is_none())
        .map(|parameter| parameter.name.as_str())
        .collect();
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

fn validator(schema: &Value) -> Result<Validator, String> {
    jsonschema::draft202012::new(schema).map_err(|error| {
        let why: String = error.to_string().chars().take(MAX_SHOWN).collect();
        format!("a JSON Schema is invalid: {why}")
    })
}

fn check_value(validator: &Validator, value: &Value) -> Result<(), String> {
    if validator.is_valid(value) {
        return Ok(());
    }
    let told: Vec<String> = validator
        .iter_errors(value)
        .take(MAX_TOLD)
        .map(|error| {
            let what: String = error.to_string().chars().take(MAX_SHOWN).collect();
            match error.instance_path().to_string().trim_start_matches('/') {
                "" => what,
                path => format!("`{}`: {what}", path.chars().take(MAX_SHOWN).collect::<String>()),
            }
        })
        .collect();
    Err(told.join("; "))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates `find(text: str, /, limit: int = 10, *, exact: bool = False) -> list[str]`.
    pub(in super::super) fn find(path: &str, policy: Policy) -> Function {
        let declared = json!({
            "path": path,
            "doc": "Finds notes.\n\nNewest first.",
            "parameters": [
                {"name": "text", "kind": "positional_only", "annotation": "str", "schema": {"type": "string"}},
                {"name": "limit", "annotation": "int", "default": "10", "schema": {"type": "integer"}},
                {"name": "exact", "kind": "keyword_only", "annotation": "bool", "default": "False", "schema": {"type": "boolean"}},
            ],
            "returns": "list[str]",
            "result": {"type": "array", "items": {"type": "string"}},
        });
        Function::new(serde_json::from_value(declared).unwrap(), policy).unwrap()
    }

    fn bound(args: Value, kwargs: Value) -> Result<Value, String> {
        let Value::Object(kwargs) = kwargs else { panic!() };
        let args = args.as_array().unwrap().clone();
        find("Notes.find", Policy::Allow)
            .bind(args, kwargs)
            .map(Value::Object)
    }

    #[test]
    fn it_is_described_as_python_writes_it() {
        let function = find("Notes.find", Policy::Allow);
        assert_eq!(
            function.description(),
            "def find(text: str, /, limit: int = 10, *, exact: bool = False) -> list[str]:\n    \
             \"\"\"Finds notes.\n\n    Newest first.\"\"\""
        );
        assert_eq!(function.summary(), "Finds notes.");
    }

    #[test]
    fn arguments_are_bound_by_place_and_name() {
        assert_eq!(
            bound(json!(["a", 3]), json!({"exact": true})),
            Ok(json!({"text": "a", "limit": 3, "exact": true}))
        );
        assert_eq!(
            bound(json!(["a"]), json!({"limit": 3})),
            Ok(json!({"text": "a", "limit": 3}))
        );
        for (args, kwargs, expected) in [
            (json!([]), json!({}), "it needs `text`"),
            (json!([]), json!({"text": "a"}), "`text` is positional-only"),
            (
                json!(["a", 1, true]),
                json!({}),
                "it takes 2 positional arguments, got 3",
            ),
            (
                json!(["a", 1]),
                json!({"limit": 2}),
                "argument `limit` was given twice",
            ),
            (
                json!(["a"]),
                json!({"__class__": 1}),
                "unexpected argument `__class__`",
            ),
            (json!([7]), json!({}), "`text`: 7 is not of type \"string\""),
            (
                json!(["a", true]),
                json!({}),
                "`limit`: true is not of type \"integer\"",
            ),
        ] {
            assert_eq!(bound(args, kwargs), Err(expected.to_owned()));
        }
    }

    #[test]
    fn what_is_no_function_is_not_offered() {
        let refused = |declared: Value| {
            let declared = serde_json::from_value(declared).unwrap();
            let refused = Function::new(declared, Policy::Allow);
            assert!(refused.is_err(), "{refused:?}");
        };
        for path in [
            "add",
            "Notes._add",
            "_Notes.add",
            "Notes.a.b",
            "Notes.",
            "device.x",
            "search_skills.x",
            "N\u{e9}.a",
        ] {
            refused(json!({"path": path}));
        }
        for name in ["", "a b", "a\n"] {
            refused(json!({"path": "A.b", "parameters": [{"name": name}]}));
        }
        refused(json!({"path": "A.b", "parameters": [{"name": "x"}, {"name": "x"}]}));
        refused(json!({"path": "A.b", "parameters": [{"name": "x", "schema": {"type": "no such"}}]}));
        refused(json!({"path": "A.b", "result": {"$ref": "http://127.0.0.1:9/schema"}}));
        refused(json!({"path": "A.b", "returns": "a\nb"}));
        let swapped = [json!({"name": "x", "kind": "keyword_only"}), json!({"name": "y"})];
        refused(json!({"path": "A.b", "parameters": swapped}));
    }

    #[test]
    fn a_result_must_be_what_was_promised() {
        let function = find("Notes.find", Policy::Allow);
        assert_eq!(function.check_result(&json!(["a"])), Ok(()));
        assert!(function.check_result(&json!("a")).is_err());
    }
}
