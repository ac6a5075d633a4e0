//! The JSON Schema and the reference page of the configuration.

use serde_json::Value;

use super::keys::{Keys, dotted, get};
use super::schema::Config;
use super::variables;

/// Returns the JSON Schema (2020-12) of a configuration file.
pub fn json_schema() -> Value {
    let mut schema = schemars::schema_for!(Config).to_value();
    // Absent keys take their defaults, and a file may name its schema.
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove("$schema");
    }
    schema
}

/// Renders the reference page: every key with its default, its variable and its meaning.
pub fn markdown() -> String {
    let schema = json_schema();
    let mut page = String::from(
        "# Configuration\n\n\
         <!-- Written by `ringfence config schema --markdown`; do not edit. -->\n\n\
         `ringfence.toml`, `ringfence.yaml` or `ringfence.json`. Later layers win: built-in defaults, `/etc/ringfence/`,\n\
         `~/.config/ringfence/` (`$XDG_CONFIG_HOME`), the working directory, environment variables, the command line.\n\
         `--config FILE` takes the place of the three files. Keys may be written in `snake_case` or `camelCase`.\n\
         A file in the working directory may not loosen the fence or name programs to start: `sandbox.python`,\n\
         `sandbox.javascript`, `sandbox.pass_env` and `artifacts.dir`, for example, are refused there.\n",
    );
    let mut section = String::new();
    for (path, default) in Keys::new().leaves() {
        let (Some(key), parent) = (path.last(), &path[..path.len() - 1]) else {
            continue;
        };
        if section != dotted(parent) {
            section = dotted(parent);
            let about = description(&schema, parent).unwrap_or_default();
            page.push_str(&format!(
                "\n## `{section}`\n\n{about}\n\n| key | default | variable | meaning |\n| --- | --- | --- | --- |\n"
            ));
        }
        let meaning = description(&schema, &path).unwrap_or_default().replace('\n', " ");
        let meaning = meaning.replace('|', "\\|");
        let default = if default.is_null() {
            "unset".to_owned()
        } else {
            format!("`{default}`")
        };
        page.push_str(&format!(
            "| `{key}` | {default} | `{}` | {meaning} |\n",
            variables::name_of(&path)
        ));
    }
    page.push_str(
        "\nThe variables of the sandbox specification are read too: `SANDBOX_TYPE`, `SANDBOX_TIMEOUT_SEC`,\n\
         `SANDBOX_MAX_OUTPUT_KB`, `SANDBOX_BLOCK_DANGEROUS_IMPORTS`, `SANDBOX_STORE_CODE`, `DOCKER_IMAGE`,\n\
         `DOCKER_NETWORK_ENABLED`, `DOCKER_CPU_LIMIT` and `DOCKER_MEMORY_LIMIT`.\n",
    );
    page
}

/// Returns the description of the key at `path`.
fn description(schema: &Value, path: &[String]) -> Option<String> {
    let mut node = schema;
    for name in path {
        let section = resolve(schema, node);
        node = get(section, &["properties".to_owned(), name.clone()])
            .or_else(|| section.get("additionalProperties"))?;
    }
    let own = node
        .get("description")
        .or_else(|| resolve(schema, node).get("description"));
    own.and_then(Value::as_str).map(str::to_owned)
}

fn resolve<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    let target = node
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|target| target.strip_prefix('#'));
    target.and_then(|pointer| schema.pointer(pointer)).unwrap_or(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_of_the_promised_dialect_and_closed() {
        let schema = json_schema();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["additionalProperties"], false);
        assert!(schema["properties"]["hostExecution"].is_object());
    }

    #[test]
    fn every_key_has_a_meaning() {
        let schema = json_schema();
        for (path, _) in Keys::new().leaves() {
            assert!(
                description(&schema, &path).is_some_and(|text| text.len() > 5),
                "{}",
                dotted(&path)
            );
        }
    }

    #[test]
    fn the_page_lists_every_key_with_its_variable() {
        let page = markdown();
        for (path, _) in Keys::new().leaves() {
            assert!(
                page.contains(&format!("`{}`", variables::name_of(&path))),
                "{}",
                dotted(&path)
            );
        }
    }
}
