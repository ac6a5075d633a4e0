//! The code interpreter of a sandbox: contexts, and executions as lines of JSON.

mod execution;
mod traceback;

use axum::Extension;
use axum::Json;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringfence_policy::Timeout;
use ringfence_sandbox::ContextChoice;
use ringfence_sandbox::context::{Code, ContextInfo, Language};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

use crate::body::{self, Described};
use crate::envd::HOME;
use crate::error::Error;
use crate::known::Opened;
use crate::target::plane_parts;

/// Time limit of code: clients end it by closing the connection.
const TIMEOUT: Timeout = Timeout::seconds(24 * 60 * 60);
/// Pieces of output that a slow reader leaves unread before the code has to wait.
const UNREAD: usize = 16;
/// Languages whose contexts exist from the beginning, by the id of these.
const DEFAULTS: [(&str, Language); 4] = [
    ("python", Language::Python),
    ("javascript", Language::Javascript),
    ("typescript", Language::Typescript),
    ("bash", Language::Bash),
];

/// Returns `true` for a request that needs no credential.
pub(crate) fn is_open(request: &Request) -> bool {
    request.uri().path() == "/health"
}

pub(crate) async fn answer(opened: Opened, request: Request) -> Result<Response, Error> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match (method.as_str(), &plane_parts(&path)[..]) {
        ("GET", ["health"]) => Ok(Json(json!("OK")).into_response()),
        ("POST", ["execute"]) => execute(&opened, request).await,
        ("GET", ["contexts"]) => Ok(Json(list(&opened)).into_response()),
        ("POST", ["contexts"]) => create(&opened, request).await,
        ("POST", ["contexts", id, "restart"]) => {
            opened.sandbox.restart_context(id).await?;
            Ok(Json(Value::Null).into_response())
        }
        ("DELETE", ["contexts", id]) => {
            opened.sandbox.remove_context(id)?;
            Ok(Json(Value::Null).into_response())
        }
        _ => Err(Error::not_found("there is no such route")),
    }
}

#[derive(Debug, Deserialize)]
struct ExecuteRequest {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
struct CreateRequest {
    language: Option<String>,
    cwd: Option<String>,
}

/// Returns the language of this name.
fn language(name: Option<&str>) -> Result<Language, Error> {
    match name.map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "python" | "python3") => Ok(Language::Python),
        Some("bash" | "sh") => Ok(Language::Bash),
        Some("javascript" | "js") => Ok(Language::Javascript),
        Some("typescript" | "ts") => Ok(Language::Typescript),
        Some(other) => Err(Error::not_supported(
            &format!("language `{}`", other.chars().take(40).collect::<String>()),
            "contexts are python, javascript, typescript or bash; start other interpreters as commands",
        )),
    }
}

async fn execute(opened: &Opened, request: Request) -> Result<Response, Error> {
    let asked: ExecuteRequest = body::json(request).await?;
    let (choice, language) = match (&asked.context_id, &asked.language) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid("name a context or a language, and not both"));
        }
        (None, name) => {
            let language = language(name.as_deref())?;
            (ContextChoice::Default(language), language)
        }
        (Some(id), None) => find(opened, id)?,
    };
    let env = asked.env_vars.unwrap_or_default();
    let mut variables = Vec::new();
    for (name, value) in env {
        let name = name
            .parse()
            .map_err(|error| Error::invalid(format!("`env_vars`: {error}")))?;
        variables.push((name, value));
    }
    let described = Described(json!({
        "code": asked.code, "language": asked.language, "context": asked.context_id,
    }));
    let code = Code {
        code: match language {
            Language::Python => dedented(&asked.code),
            Language::Bash | Language::Javascript | Language::Typescript => asked.code,
        },
        user: None,
        timeout: TIMEOUT,
        variables,
    };
    let (sender, chunks) = mpsc::channel(UNREAD);
    let executing = opened.sandbox.spawn_execution(choice, code, sender);
    let running = execution::Running::new(opened.clone(), language, executing, chunks);
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((Extension(described), headers, running.into_body()).into_response())
}

/// Removes the indentation of the first line that is not blank from all lines, as IPython does.
fn dedented(code: &str) -> String {
    let is_blank = |line: &&str| line.trim_ascii().is_empty();
    let first = code.lines().find(|line| !is_blank(line)).unwrap_or_default();
    let indentation = &first[..first.len() - first.trim_start_matches([' ', '\t']).len()];
    let lines = code.split_inclusive('\n');
    lines
        .map(|line| line.strip_prefix(indentation).unwrap_or(line))
        .collect()
}

/// Finds a context by its id: those of the languages exist even before their first code.
fn find(opened: &Opened, id: &str) -> Result<(ContextChoice, Language), Error> {
    let default = DEFAULTS.iter().find(|(default, _)| *default == id);
    if let Some((_, language)) = default {
        return Ok((ContextChoice::Default(*language), *language));
    }
    let found = opened
        .sandbox
        .contexts()
        .into_iter()
        .find(|context| context.id == id);
    match found {
        Some(context) => Ok((ContextChoice::Id(context.id), context.language)),
        None => {
            let id: String = id.chars().take(80).collect();
            Err(Error::not_found(format!("context `{id}` was not found")))
        }
    }
}

fn described(context: &ContextInfo) -> Value {
    json!({"id": context.id, "language": context.language, "cwd": context.cwd})
}

/// Lists the contexts, the newest last.
fn list(opened: &Opened) -> Value {
    let mut contexts = opened.sandbox.contexts();
    contexts.sort_by(|one, other| one.created_at.cmp(&other.created_at));
    let is_there = |id: &str| contexts.iter().any(|context| context.id == id);
    let defaults = DEFAULTS.iter().filter(|(id, _)| !is_there(id));
    let defaults = defaults.map(|(id, language)| json!({"id": id, "language": language, "cwd": HOME}));
    defaults.chain(contexts.iter().map(described)).collect()
}

async fn create(opened: &Opened, request: Request) -> Result<Response, Error> {
    let CreateRequest { language: name, cwd } = body::json(request).await?;
    let language = language(name.as_deref())?;
    let cwd = cwd
        .filter(|cwd| !cwd.is_empty())
        .unwrap_or_else(|| HOME.to_owned());
    let made = opened.sandbox.create_context(language, Some(cwd), None).await?;
    Ok((StatusCode::OK, Json(described(&made))).into_response())
}

#[cfg(test)]
mod tests {
    use super::dedented;

    #[test]
    fn indented_code_loses_the_indentation_of_its_first_line() {
        for (code, expected) in [
            ("x\n", "x\n"),
            ("\n    if x:\n        y\n    \n    z", "\nif x:\n    y\n\nz"),
            ("\tx\n y", "x\n y"),
            ("", ""),
            (" \n", " \n"),
        ] {
            assert_eq!(dedented(code), expected, "{code:?}");
        }
    }
}
