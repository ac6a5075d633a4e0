//! Defines the tools, one per file; [`all`] lists them.

mod describe_function;
mod file_delete;
mod file_list;
mod file_read;
mod file_write;
mod host_exec;
mod http_fetch;
mod run_code;
mod run_python_code;
mod sandbox_exec;
mod search_skills;
mod shell;

use crate::toolbox::{Definition, Parts, Toolbox, UnknownTool};

/// Names of all tools, to validate the configuration before a [`Toolbox`] exists.
pub const NAMES: &[&str] = &[
    "run_python_code",
    "run_code",
    "sandbox_exec",
    "shell",
    "file_read",
    "file_write",
    "file_list",
    "file_delete",
    "http_fetch",
    "host_exec",
    "search_skills",
    "describe_function",
];

impl Toolbox {
    /// Creates a dispatcher of all tools.
    ///
    /// # Errors
    /// If `denied` names an unknown tool: a typo would leave the intended tool allowed.
    pub fn new(parts: Parts) -> Result<Self, UnknownTool> {
        Self::of(parts, all())
    }
}

/// Returns the names of the tools that act on this machine outside the fence.
pub fn host_tools() -> impl Iterator<Item = &'static str> {
    let tools = all().into_iter().filter(|tool| tool.on_host);
    tools.map(|tool| tool.name)
}

/// Returns all tools. A new one is added here and, in the same order, to [`NAMES`].
pub(crate) fn all() -> Vec<Definition> {
    vec![
        Definition::of::<run_python_code::RunPythonCode>(),
        Definition::of::<run_code::RunCode>(),
        Definition::of::<sandbox_exec::SandboxExec>(),
        Definition::of::<shell::Shell>(),
        Definition::of::<file_read::FileRead>(),
        Definition::of::<file_write::FileWrite>(),
        Definition::of::<file_list::FileList>(),
        Definition::of::<file_delete::FileDelete>(),
        Definition::of::<http_fetch::HttpFetch>(),
        Definition::of::<host_exec::HostExec>(),
        Definition::of::<search_skills::SearchSkills>(),
        Definition::of::<describe_function::DescribeFunction>(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_is_named_in_the_list() {
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tools")).unwrap();
        let files: BTreeSet<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .map(|name| name.trim_end_matches(".rs").to_owned())
            .collect();
        let named: BTreeSet<String> = all().iter().map(|tool| tool.name.to_owned()).collect();
        assert_eq!(files, named);
    }

    #[test]
    fn every_name_is_named() {
        let all: Vec<_> = all().iter().map(|tool| tool.name).collect();
        assert_eq!(all, NAMES);
    }

    /// Keywords that mean the same in drafts 7 and 2020-12 of JSON Schema, or are annotations in both.
    const COMMON: [&str; 17] = [
        "$schema",
        "additionalProperties",
        "anyOf",
        "default",
        "description",
        "enum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxLength",
        "maximum",
        "minLength",
        "minimum",
        "pattern",
        "properties",
        "required",
        "type",
    ];

    /// Asserts that a schema has no other keywords. `items` is one schema: as a list it means another thing.
    fn has_common_keywords(schema: &serde_json::Value) {
        let Some(members) = schema.as_object() else {
            return assert!(schema.is_boolean(), "{schema}");
        };
        for (keyword, value) in members {
            assert!(COMMON.contains(&keyword.as_str()), "{keyword}: {schema}");
            match keyword.as_str() {
                "properties" => value.as_object().unwrap().values().for_each(has_common_keywords),
                "anyOf" => value.as_array().unwrap().iter().for_each(has_common_keywords),
                "items" | "additionalProperties" => has_common_keywords(value),
                _ => {}
            }
        }
    }

    #[test]
    fn every_schema_means_the_same_in_draft_7() {
        for tool in all() {
            let schema = serde_json::Value::Object(tool.input_schema.clone());
            assert!(jsonschema::draft202012::meta::is_valid(&schema), "{}", tool.name);
            has_common_keywords(&schema);
        }
    }

    #[test]
    fn every_schema_describes_an_object_whose_members_are_described_and_known() {
        for tool in all() {
            let schema = serde_json::Value::Object(tool.input_schema.clone());
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
            for (name, member) in schema["properties"].as_object().unwrap() {
                assert!(member["description"].is_string(), "{}.{name}", tool.name);
            }
            assert!(
                tool.check(&json!({"no": "such member"})).is_err(),
                "{}",
                tool.name
            );
            assert!(tool.check(&json!([])).is_err(), "{}", tool.name);
        }
    }
}
