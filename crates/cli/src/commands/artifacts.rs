//! `ringfence artifacts`: lists and prints stored runs.

use std::process::ExitCode;

use anyhow::Context as _;
use ringfence_exec::artifact::{Entry, Error, Store};
use ringfence_tools::toolbox::ErrorKind;
use serde_json::Value;

use crate::context::Context;
use crate::ui::{json, table, visible};
use ringfence::Failure;
use ringfence::settings;
use ringfence_args::ArtifactsCommand;

pub(crate) fn run(command: &ArtifactsCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let store = settings::store(context)?;
    let text = match command {
        ArtifactsCommand::Ls { json: true } => json(&store.list(usize::MAX)?)?,
        ArtifactsCommand::Ls { json: false } => {
            let all = store.list(usize::MAX)?;
            if all.is_empty() {
                context.ui.note("there are no stored runs");
            }
            table(["NAME", "LANGUAGE", "OUTCOME", "STATUS"], all.iter().map(row))
        }
        ArtifactsCommand::Show { name, json: true } => show(&store, name)? + "\n",
        ArtifactsCommand::Show { name, json: false } => readable(&show(&store, name)?)?,
    };
    context.ui.out(text)?;
    Ok(ExitCode::SUCCESS)
}

fn show(store: &Store, name: &str) -> anyhow::Result<String> {
    store.show(name).map_err(|error| match error {
        Error::Name(_) | Error::NotFound(_) => {
            let hint = "`ringfence artifacts ls` lists the stored runs";
            let failure = Failure::refused(format!("no stored run is called `{name}`"), hint);
            failure.of(ErrorKind::NotFound).into()
        }
        Error::Ambiguous { count, .. } => Failure::usage(
            format!("{count} stored runs begin with `{name}`"),
            "write more of the name",
        )
        .into(),
        other @ (Error::File { .. } | Error::Encode(_) | Error::TooLong(_)) => other.into(),
    })
}

/// Returns the cells of a stored run in a list.
fn row(entry: &Entry) -> [String; 4] {
    let name = entry.name.clone();
    // A half-written or foreign file is listed and does not fail the list.
    let Some(summary) = &entry.summary else {
        return [name, String::new(), "unreadable".to_owned(), String::new()];
    };
    let outcome = serde_json::to_value(summary.outcome).unwrap_or_default();
    let language = summary.language.as_str().to_owned();
    [name, language, shown(&outcome), summary.exit_code.to_string()]
}

fn readable(document: &str) -> anyhow::Result<String> {
    let document: Value = serde_json::from_str(document).context("the stored run is not valid JSON")?;
    let (result, meta) = (&document["result"], &document["result"]["meta"]);
    let mut text = String::new();
    for (title, value) in [
        ("time", &document["timestamp"]),
        ("name", &document["metadata"]["name"]),
        ("language", &document["language"]),
        ("runtime", &meta["runtime"]),
        ("outcome", &meta["outcome"]),
        ("status", &result["exit_code"]),
        ("seconds", &result["duration"]),
    ] {
        text.push_str(&format!("{title:<10}{}\n", shown(value)));
    }
    for (title, part) in [
        ("code", &document["code"]),
        ("stdout", &result["stdout"]),
        ("stderr", &result["stderr"]),
    ] {
        let lines = part.as_str().unwrap_or_default().lines();
        let body: String = lines.map(|line| format!("  {}\n", visible(line))).collect();
        if !body.is_empty() {
            text.push_str(&format!("\n{title}\n{body}"));
        }
    }
    Ok(text)
}

/// Renders a value. Text that a guest chose must not control the terminal.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => visible(text),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_stored_run_is_readable_and_its_control_characters_are_not_sent() {
        let document = json!({
            "code": "a\nb", "language": "python", "timestamp": "2026-01-02T03:04:05Z",
            "result": {"stdout": "\u{1b}[2Jhi\n", "stderr": "", "exit_code": 3, "meta": {"outcome": "exited"}},
        });
        let text = readable(&document.to_string()).unwrap();
        assert!(
            text.contains("status    3\n") && text.contains("\ncode\n  a\n  b\n"),
            "{text}"
        );
        assert!(
            text.contains("\\u{1b}[2Jhi") && !text.contains("stderr"),
            "{text}"
        );
    }

    #[test]
    fn an_unreadable_record_is_listed_as_such() {
        let entry = Entry {
            name: "x".to_owned(),
            bytes: 1,
            summary: None,
        };
        assert_eq!(row(&entry), ["x", "", "unreadable", ""]);
    }
}
