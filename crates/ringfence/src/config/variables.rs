//! Environment variables as a layer of the configuration.

use serde_json::Value;

use super::keys::{Keys, Path, is_tool_limit, normalise, snake};
use super::problem::Problem;
use super::suggest;
use crate::env::Environment;

/// Variables of the process that are not configuration keys.
const NOT_KEYS: &[&str] = &[
    "RINGFENCE_LOG",
    "RINGFENCE_API_KEY",
    "RINGFENCE_API_URL",
    "RINGFENCE_BIN",
];

/// A variable that sets a key.
#[derive(Debug)]
pub(super) struct Setting {
    pub variable: String,
    pub path: Path,
    pub value: Value,
}

/// A parser of a plain variable's text.
type Read = fn(&str) -> Result<Value, String>;

/// The variables of the sandbox specification, and those of E2B's clients, which lack our prefix.
const PLAIN: &[(&str, &str, Read)] = &[
    ("SANDBOX_TYPE", "sandbox.type", text),
    ("SANDBOX_TIMEOUT_SEC", "sandbox.timeout", text),
    ("SANDBOX_MAX_OUTPUT_KB", "sandbox.max_output", kibibytes),
    (
        "SANDBOX_BLOCK_DANGEROUS_IMPORTS",
        "sandbox.block_dangerous_imports",
        boolean,
    ),
    ("SANDBOX_STORE_CODE", "artifacts.store", text),
    ("DOCKER_IMAGE", "sandbox.docker.image", text),
    (
        "DOCKER_NETWORK_ENABLED",
        "sandbox.docker.network_enabled",
        boolean,
    ),
    ("DOCKER_CPU_LIMIT", "sandbox.docker.cpu_limit", text),
    ("DOCKER_MEMORY_LIMIT", "sandbox.docker.memory_limit", text),
    ("E2B_API_URL", "sandbox.e2b.api_url", text),
    ("E2B_SANDBOX_URL", "sandbox.e2b.sandbox_url", text),
    ("E2B_DOMAIN", "sandbox.e2b.domain", text),
];

/// Returns `true` if any variable may affect the configuration; if none does, the layer can be skipped.
pub(super) fn any(environment: &Environment) -> bool {
    environment
        .names()
        .any(|name| name.starts_with("RINGFENCE_") || PLAIN.iter().any(|(plain, ..)| *plain == name))
}

/// Returns the names of the variables of the sandbox specification.
pub(super) fn plain_names() -> impl Iterator<Item = &'static str> + Clone {
    PLAIN.iter().map(|(name, ..)| *name)
}

/// Returns `true` if a variable is one of the sandbox specification.
pub(super) fn is_plain(name: &str) -> bool {
    plain_names().any(|plain| plain == name)
}

/// Returns `true` if a variable of the sandbox specification accepts a value.
pub(super) fn accepts(name: &str, value: &str) -> bool {
    PLAIN.iter().any(|(plain, key, read)| {
        let path: Path = key.split('.').map(str::to_owned).collect();
        *plain == name && read(value).is_ok_and(|value| normalise(&path, &value).is_ok())
    })
}

/// Returns `true` if a name in capitals is that of a key of the section `sandbox`.
pub(super) fn is_key_of_sandbox(name: &str) -> bool {
    let keys = Keys::new();
    let sandbox = keys.defaults().get("sandbox").and_then(Value::as_object);
    sandbox.is_some_and(|keys| keys.contains_key(&name.to_ascii_lowercase()))
}

/// The parsed variables.
#[derive(Debug, Default)]
pub(super) struct ParsedVariables {
    pub settings: Vec<Setting>,
    /// Problems of other variables.
    pub problems: Vec<Problem>,
    /// Variables with our prefix that have no effect; one sentence each.
    pub idle: Vec<String>,
}

/// Parses the variables. Empty ones count as unset.
///
/// Variables with our prefix come last, so that `RINGFENCE_SANDBOX_TIMEOUT` wins over `SANDBOX_TIMEOUT_SEC`.
pub(super) fn settings(keys: &Keys, environment: &Environment) -> ParsedVariables {
    let mut settings = Vec::new();
    let mut problems = Vec::new();
    let mut idle = Vec::new();
    for (variable, key, read) in PLAIN {
        let Some(text) = text_of(environment, variable, &mut problems) else {
            continue;
        };
        let path: Path = key.split('.').map(str::to_owned).collect();
        let checked = read(text).and_then(|value| normalise(&path, &value).map(|_| value));
        keep(variable, path, checked, &mut settings, &mut problems);
    }
    let known: Vec<(String, Path, Value)> = keys
        .leaves()
        .into_iter()
        .map(|(path, default)| (name_of(&path), path, default))
        .collect();
    for variable in environment
        .names()
        .filter(|name| name.starts_with("RINGFENCE_") && !NOT_KEYS.contains(name))
    {
        let Some(text) = text_of(environment, variable, &mut problems) else {
            continue;
        };
        match find(&known, variable) {
            Some(path) => {
                let checked = read_any(&path, text);
                keep(variable, path, checked, &mut settings, &mut problems);
            }
            None => match unknown(&known, variable) {
                Some(problem) => problems.push(problem),
                None => idle.push(format!(
                    "the environment variable {variable} sets nothing: there is no such key; `ringfence config show` \
                     lists them"
                )),
            },
        }
    }
    ParsedVariables {
        settings,
        problems,
        idle,
    }
}

/// Returns a variable's text; invalid UTF-8 is a problem, not unset.
fn text_of<'a>(environment: &'a Environment, variable: &str, problems: &mut Vec<Problem>) -> Option<&'a str> {
    let text = environment.text(variable);
    if text.is_none() && environment.get(variable).is_some() {
        problems.push(Problem::new(
            format!("{variable}: not UTF-8 text"),
            format!("correct the environment variable {variable}, or unset it"),
        ));
    }
    text
}

fn keep(
    variable: &str,
    path: Path,
    checked: Result<Value, String>,
    settings: &mut Vec<Setting>,
    problems: &mut Vec<Problem>,
) {
    match checked {
        Ok(value) => settings.push(Setting {
            variable: variable.to_owned(),
            path,
            value,
        }),
        Err(message) => problems.push(Problem::new(
            format!("{variable}: `{}`: {message}", path.join(".")),
            format!("correct the environment variable {variable}, or unset it"),
        )),
    }
}

/// Returns the variable of a key: `sandbox.max_output` → `RINGFENCE_SANDBOX_MAX_OUTPUT`.
pub(super) fn name_of(path: &[String]) -> String {
    let words: Vec<String> = path
        .iter()
        .map(|name| snake(name).replace('-', "_").to_ascii_uppercase())
        .collect();
    format!("RINGFENCE_{}", words.join("_"))
}

fn find(known: &[(String, Path, Value)], variable: &str) -> Option<Path> {
    if let Some((_, path, _)) = known.iter().find(|(name, ..)| name == variable) {
        return Some(path.clone());
    }
    let tool = variable.strip_prefix("RINGFENCE_PERMISSIONS_TOOL_LIMITS_")?;
    let tool = tool.to_ascii_lowercase();
    is_tool_limit(&tool).then(|| vec!["permissions".to_owned(), "tool_limits".to_owned(), tool])
}

/// Returns a problem if the variable resembles one of a key; any other has no effect.
fn unknown(known: &[(String, Path, Value)], variable: &str) -> Option<Problem> {
    let near = suggest::nearest(variable, known.iter().map(|(name, ..)| name.as_str()));
    let section = known
        .iter()
        .any(|(_, path, _)| variable.starts_with(&format!("{}_", name_of(&path[..1]))));
    if near.is_none() && !section {
        return None;
    }
    let near = near
        .map(|near| format!("; did you mean {near}?"))
        .unwrap_or_default();
    Some(Problem::new(
        format!("unknown environment variable {variable}{near}"),
        "`ringfence config show` lists every key; write its path in capitals, with `_` between the parts",
    ))
}

/// Returns the first reading of `text` that the key accepts: a string, a JSON value, a comma-separated list.
fn read_any(path: &[String], text: &str) -> Result<Value, String> {
    let as_text = Value::from(text);
    let as_json = serde_json::from_str::<Value>(text).ok();
    let as_list = Value::from(text.split(',').map(str::trim).collect::<Vec<_>>());
    let first = match normalise(path, &as_text) {
        Ok(_) => return Ok(as_text),
        Err(message) => message,
    };
    let as_boolean = boolean(text).ok();
    let mut message = first;
    for (value, tells) in [(as_json, true), (as_boolean, false), (Some(as_list), false)] {
        let Some(value) = value else { continue };
        match normalise(path, &value) {
            Ok(_) => return Ok(value),
            Err(reason) if tells => message = reason,
            Err(_) => {}
        }
    }
    Err(message)
}

fn text(text: &str) -> Result<Value, String> {
    Ok(Value::from(text))
}

fn kibibytes(text: &str) -> Result<Value, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!(
            "`{text}` is not a number of kilobytes; write it like `10`"
        ));
    }
    Ok(Value::from(format!("{text}KiB")))
}

fn boolean(text: &str) -> Result<Value, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(Value::Bool(true)),
        "false" | "0" | "no" | "off" => Ok(Value::Bool(false)),
        _ => Err(format!("`{text}` is neither `true` nor `false`")),
    }
}
