//! Converts a server's tools to functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::{Declared, Function, Parameter, ParameterKind, Policy};
use super::names::{identifier, plain};
use super::schema::{annotation, restricted};
use ringfence_records::audit::Digest;

/// Maximum number of tools of a server.
const MAX_TOOLS: usize = 128;
/// Maximum number of reported problems.
const MAX_PROBLEMS: usize = 8;
/// Maximum length of a description.
const MAX_DESCRIPTION: usize = 1500;
/// Maximum length of an argument's description.
const MAX_NOTE: usize = 200;
/// Maximum length of a name in a message.
const MAX_SHOWN: usize = 80;

/// A server's tool behind a function.
#[derive(Debug)]
pub(super) struct Tool {
    /// Name on the server.
    pub(super) name: String,
    /// Renamed arguments: our name, and the server's.
    renamed: Vec<(String, String)>,
    /// Set if the tool declares a structured result.
    pub(super) is_structured: bool,
    /// Set if the tool's structured result is an object with the only member `result`, which is unwrapped.
    pub(super) is_wrapped: bool,
}

#[derive(Debug, Default)]
pub(super) struct Tools {
    tools: BTreeMap<String, (Arc<Function>, Tool)>,
    problems: Vec<String>,
    more: usize,
}

impl Tools {
    /// Adds a page of a server's list, and returns the cursor of the next one.
    ///
    /// # Errors
    /// If the page has no list of tools.
    pub(super) fn add(&mut self, skill: &str, page: &Value) -> Result<Option<String>, String> {
        let Some(Value::Array(tools)) = page.get("tools") else {
            return Err("its list of tools is malformed".to_owned());
        };
        for tool in tools {
            if self.tools.len() >= MAX_TOOLS {
                self.send(format!(
                    "{skill}: it has more than {MAX_TOOLS} tools; the rest is left out"
                ));
                return Ok(None);
            }
            if let Err(why) = self.add_one(skill, tool) {
                let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
                let (name, _) = plain(name, MAX_SHOWN);
                self.send(format!(
                    "{skill}: its tool `{}` is left out: {why}",
                    name.escape_debug()
                ));
            }
        }
        let cursor = page.get("nextCursor").and_then(Value::as_str);
        // Some servers send an empty cursor at the end.
        Ok(cursor.filter(|cursor| !cursor.is_empty()).map(str::to_owned))
    }

    fn add_one(&mut self, skill: &str, given: &Value) -> Result<(), String> {
        let name = given.get("name").and_then(Value::as_str);
        let name = name.ok_or("it has no name")?;
        let own = identifier(name).ok_or("its name cannot be made into one of Python")?;
        let path = format!("{skill}.{own}");
        if let Some((_, other)) = self.tools.get(&path) {
            let (other, _) = plain(&other.name, MAX_SHOWN);
            return Err(format!(
                "`{path}` is already the name of `{}`",
                other.escape_debug()
            ));
        }
        let empty = Value::Object(Map::new());
        let input = given.get("inputSchema").unwrap_or(&empty);
        let arguments = Arguments::of(input)?;
        let (doc, hidden) = doc(given, &arguments);
        if hidden {
            self.send(format!(
                "`{path}`: characters that cannot be seen were taken out of what it says"
            ));
        }
        let output = given.get("outputSchema").filter(|output| output.is_object());
        let output = output.map(|output| restricted(output, output));
        let wrapped = output.as_ref().and_then(only_result);
        let result = wrapped.clone().or_else(|| output.clone());
        let tool = Tool {
            name: name.to_owned(),
            renamed: arguments.renamed,
            is_structured: output.is_some(),
            is_wrapped: wrapped.is_some(),
        };
        let declared = Declared {
            path: path.clone(),
            doc,
            parameters: arguments.parameters,
            returns: result.as_ref().and_then(annotation),
            result,
        };
        let function = Function::new(declared, Policy::Allow).map_err(|wrong| wrong.to_string())?;
        let function = function.with_source(definition(given));
        self.tools.insert(path, (Arc::new(function), tool));
        Ok(())
    }

    /// Reports that further pages are left out.
    pub(super) fn cut(&mut self, skill: &str, pages: usize) {
        self.send(format!(
            "{skill}: its list of tools has more than {pages} pages; the rest is left out"
        ));
    }

    fn send(&mut self, problem: String) {
        match self.problems.len() < MAX_PROBLEMS {
            true => self.problems.push(problem),
            false => self.more += 1,
        }
    }

    /// Returns the tool behind a function.
    pub(super) fn tool(&self, path: &str) -> Option<&Tool> {
        self.tools.get(path).map(|(_, tool)| tool)
    }

    pub(super) fn definition(&self, path: &str) -> Option<Digest> {
        self.tools.get(path).map(|(function, _)| function.definition())
    }

    pub(super) fn functions(&self) -> impl Iterator<Item = Arc<Function>> {
        self.tools.values().map(|(function, _)| Arc::clone(function))
    }

    /// Returns the reasons why tools are left out or changed.
    pub(super) fn problems(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("and {} more of this kind", self.more));
        self.problems.iter().cloned().chain(more)
    }
}

/// Returns the digest of a tool as its server defines it, including its own name: `read-file` and `read_file`
/// have the same path.
fn definition(tool: &Value) -> Digest {
    const MEMBERS: [&str; 5] = ["name", "title", "description", "inputSchema", "outputSchema"];
    let members = MEMBERS.map(|member| tool.get(member).unwrap_or(&Value::Null));
    Digest::of_value(&json!(members))
}

impl Tool {
    /// Renames arguments to the server's names.
    pub(super) fn named(&self, mut arguments: Map<String, Value>) -> Map<String, Value> {
        for (ours, theirs) in &self.renamed {
            if let Some(value) = arguments.remove(ours) {
                arguments.insert(theirs.clone(), value);
            }
        }
        arguments
    }
}

/// Parameters of a tool.
struct Arguments {
    parameters: Vec<Parameter>,
    renamed: Vec<(String, String)>,
    /// Descriptions by parameter.
    notes: Vec<(String, String)>,
}

impl Arguments {
    /// Converts the properties of a schema. Required ones come first and may be positional; optional ones are
    /// keyword-only.
    fn of(schema: &Value) -> Result<Self, String> {
        let mut arguments = Self {
            parameters: Vec::new(),
            renamed: Vec::new(),
            notes: Vec::new(),
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| {
            required.is_some_and(|names| names.iter().any(|required| required.as_str() == Some(name)))
        };
        for (name, given) in properties.into_iter().flatten() {
            arguments.add(name, given, schema, is_required(name))?;
        }
        for (name, given, required) in composed(schema) {
            if !properties.is_some_and(|own| own.contains_key(&name)) {
                let given = match given.as_slice() {
                    [only] => only.clone(),
                    several => json!({"anyOf": several}),
                };
                arguments.add(&name, &given, &Value::Null, required)?;
            }
        }
        arguments.parameters.sort_by_key(|parameter| parameter.kind as u8);
        Ok(arguments)
    }

    fn add(&mut self, name: &str, given: &Value, whole: &Value, required: bool) -> Result<(), String> {
        let own = identifier(name).ok_or("an argument's name cannot be made into one of Python")?;
        if own != name {
            self.renamed.push((own.clone(), name.to_owned()));
        }
        if let Some(note) = given.get("description").and_then(Value::as_str) {
            self.notes.push((own.clone(), note.to_owned()));
        }
        let schema = restricted(given, whole);
        self.parameters.push(Parameter {
            name: own,
            kind: match required {
                true => ParameterKind::PositionalOrKeyword,
                false => ParameterKind::KeywordOnly,
            },
            annotation: annotation(&schema),
            // Python notation for a default that is not shown.
            default: (!required).then(|| "...".to_owned()),
            schema: Some(schema),
        });
        Ok(())
    }
}

/// Parameters of a composed schema: name, alternative schemas, required. The server validates the
/// combination.
type Composed = Vec<(String, Vec<Value>, bool)>;

fn composed(schema: &Value) -> Composed {
    let mut found = Composed::new();
    let composes = |key: &&str| schema.get(*key).is_some();
    if ["$ref", "allOf", "anyOf", "oneOf"].iter().any(composes) {
        collect(&restricted(schema, schema), true, &mut found);
    }
    found
}

/// Collects the properties of a restricted schema and of its parts. Those of one alternative are optional.
fn collect(schema: &Value, must: bool, found: &mut Composed) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    for (name, given) in properties.into_iter().flatten() {
        let required = must && required.is_some_and(|names| names.iter().any(|own| own == name));
        match found.iter_mut().find(|(known, ..)| known == name) {
            None => found.push((name.clone(), vec![given.clone()], required)),
            Some((_, schemas, is_required)) => {
                *is_required |= required;
                if !schemas.contains(given) {
                    schemas.push(given.clone());
                }
            }
        }
    }
    for (key, must) in [("allOf", must), ("anyOf", false)] {
        for part in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
            collect(part, must, found);
        }
    }
}

/// Composes the documentation of a tool and its parameters; returns whether invisible characters were
/// removed.
fn doc(tool: &Value, arguments: &Arguments) -> (String, bool) {
    let said = tool.get("description").or_else(|| tool.get("title"));
    let said = said.and_then(Value::as_str).unwrap_or_default();
    let (said, mut hidden) = plain(said, MAX_DESCRIPTION);
    let mut doc = said.trim().to_owned();
    for (at, (name, note)) in arguments.notes.iter().enumerate() {
        let (note, unseen) = plain(note, MAX_NOTE);
        hidden |= unseen;
        let gap = if at == 0 { "\n\n" } else { "\n" };
        doc.push_str(&format!("{gap}{name}: {}", note.replace('\n', " ")));
    }
    (doc, hidden)
}

/// Returns the schema of `result` if it is the object's only member: servers wrap results that are not
/// objects.
fn only_result(schema: &Value) -> Option<Value> {
    let properties = schema.get("properties")?.as_object()?;
    let required = schema.get("required")?.as_array()?;
    let alone = properties.len() == 1 && required.len() == 1 && required.first()? == "result";
    properties.get("result").filter(|_| alone).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(given: Value) -> Tools {
        let mut tools = Tools::default();
        tools.add("Test", &json!({"tools": given})).unwrap();
        tools
    }

    #[test]
    fn a_tool_becomes_a_function() {
        let tools = tools(json!([{
            "name": "get-weather",
            "description": "Weather of a city.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "unit-name": {"type": "string", "enum": ["C", "F"]},
                    "city": {"$ref": "#/$defs/city"},
                },
                "required": ["city"],
                "$defs": {"city": {"type": "string", "description": "Its name."}},
            },
            "outputSchema": {
                "type": "object",
                "properties": {"result": {"type": "number"}},
                "required": ["result"],
            },
        }]));
        let function = tools.functions().next().unwrap();
        assert_eq!(
            function.signature(),
            "get_weather(city: str, *, unit_name: Literal[\"C\", \"F\"] = ...) -> float"
        );
        assert_eq!(function.doc(), "Weather of a city.");
        let tool = tools.tool("Test.get_weather").unwrap();
        assert!(tool.is_structured && tool.is_wrapped);
        let Value::Object(given) = json!({"city": "Bern", "unit_name": "C"}) else {
            panic!()
        };
        assert_eq!(
            Value::Object(tool.named(given)),
            json!({"city": "Bern", "unit-name": "C"})
        );
    }

    #[test]
    fn schemas_that_are_composed_of_others_have_arguments() {
        let taken = |schema: Value, expected: &str| {
            let tools = tools(json!([{"name": "f", "inputSchema": schema}]));
            assert_eq!(tools.functions().next().unwrap().signature(), expected);
        };
        let day = json!({"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]});
        taken(
            json!({"$ref": "#/definitions/Day", "definitions": {"Day": day}}),
            "f(day: str)",
        );
        taken(
            json!({"allOf": [day, {"properties": {"hour": {"type": "integer"}}}]}),
            "f(day: str, *, hour: int = ...)",
        );
        let number = json!({"properties": {"day": {"type": "integer"}}, "required": ["day"]});
        taken(json!({"oneOf": [day, number]}), "f(*, day: str | int = ...)");
        taken(
            json!({"properties": {"a": {}}, "required": ["a"], "anyOf": [{"required": ["a"]}, day]}),
            "f(a, *, day: str = ...)",
        );
        let endless = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}, day]});
        // Anything is accepted beyond the copied part.
        taken(endless, "f(day)");
    }

    #[test]
    fn an_empty_cursor_ends_a_list() {
        for (cursor, next) in [
            (json!(""), None),
            (json!(null), None),
            (json!("2"), Some("2".to_owned())),
        ] {
            let page = json!({"tools": [], "nextCursor": cursor});
            assert_eq!(Tools::default().add("Test", &page).unwrap(), next);
        }
    }

    #[test]
    fn what_cannot_be_offered_is_told() {
        let tools = tools(json!([
            {"name": "a-b"},
            {"name": "a_b"},
            {"name": 7},
            {"name": "é"},
            {"name": "hidden", "description": "Adds.\u{202e}"},
            {"name": "clash", "inputSchema": {"properties": {"x-y": {}, "x_y": {}}}},
        ]));
        assert_eq!(tools.functions().count(), 2);
        let problems: Vec<String> = tools.problems().collect();
        for (at, told) in [
            "`a_b` is left out: `Test.a_b` is already the name of `a-b`",
            "it has no name",
            "cannot be made into one of Python",
            "`Test.hidden`: characters that cannot be seen",
            "two arguments `x_y`",
        ]
        .iter()
        .enumerate()
        {
            assert!(problems[at].contains(told), "{told}: {problems:?}");
        }
    }

    #[test]
    fn a_list_without_end_is_bounded() {
        let many: Vec<Value> = (0..10_000)
            .map(|number| json!({"name": format!("t{number}")}))
            .collect();
        let tools = tools(json!(many));
        assert_eq!(tools.functions().count(), MAX_TOOLS);
        let bad: Vec<Value> = (0..10_000).map(|_| json!({})).collect();
        let tools = super::tests::tools(json!(bad));
        assert_eq!(tools.problems().count(), MAX_PROBLEMS + 1);
        assert!(Tools::default().add("Test", &json!({"tools": 1})).is_err());
    }
}
