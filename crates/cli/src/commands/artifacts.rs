//! `ringfence artifacts`: looking at stored runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::args::ArtifactsCommand;
use crate::context::Context;
use crate::exit::Failure;
use crate::high;
use crate::ui::visible;

pub(crate) fn run(command: &ArtifactsCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let dir = high::artifacts_dir(context)?.join("executions");
    match command {
        ArtifactsCommand::Ls { json } => list(&dir, *json, context)?,
        ArtifactsCommand::Show { name, json } => show(&dir, name, *json, context)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(dir: &Path, as_json: bool, context: &Context) -> anyhow::Result<()> {
    let rows: Vec<Value> = names(dir)?
        .iter()
        .map(|name| match read(&dir.join(name)) {
            Ok(document) => summary(name, &document),
            // A half-written or foreign file is shown, not hidden, and does not spoil the list.
            Err(error) => json!({"name": name, "error": format!("{error:#}")}),
        })
        .collect();
    if as_json {
        context.ui.out(serde_json::to_string_pretty(&rows)? + "\n")?;
        return Ok(());
    }
    let text: String = rows.iter().map(|row| line(row) + "\n").collect();
    context.ui.out(text)?;
    Ok(())
}

fn show(dir: &Path, name: &str, as_json: bool, context: &Context) -> anyhow::Result<()> {
    let document = read(&pick(dir, name)?)?;
    if as_json {
        context.ui.out(serde_json::to_string_pretty(&document)? + "\n")?;
        return Ok(());
    }
    let result = &document["result"];
    let mut text = format!("time      {}\n", shown(&document["timestamp"]));
    text.push_str(&format!("language  {}\n", shown(&result["meta"]["language"])));
    text.push_str(&format!("runtime   {}\n", shown(&result["meta"]["runtime"])));
    text.push_str(&format!(
        "outcome   {}, status {}\n",
        shown(&result["meta"]["outcome"]),
        shown(&result["exit_code"])
    ));
    text.push_str(&format!("duration  {} s\n", shown(&result["duration"])));
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
    context.ui.out(text)?;
    Ok(())
}

/// The names of stored runs, newest first: they begin with their time.
fn names(dir: &Path) -> anyhow::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", dir.display())),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        names.extend(
            name.to_str()
                .filter(|name| name.ends_with(".json") && !name.starts_with('.'))
                .map(str::to_owned),
        );
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

fn pick(dir: &Path, part: &str) -> anyhow::Result<PathBuf> {
    let names = names(dir)?;
    let exact = names
        .iter()
        .find(|name| *name == part || name.strip_suffix(".json") == Some(part));
    let mut fitting = names.iter().filter(|name| name.contains(part));
    match (exact, fitting.next(), fitting.next()) {
        (Some(name), ..) | (None, Some(name), None) => Ok(dir.join(name)),
        (None, Some(_), Some(_)) => Err(Failure::usage(
            format!("several stored runs fit `{part}`"),
            "give more of the name",
        )
        .into()),
        (None, None, _) => {
            let hint = "`ringfence artifacts ls` lists the stored runs";
            Err(Failure::usage(format!("no stored run is called `{part}`"), hint).into())
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
}

fn summary(name: &str, document: &Value) -> Value {
    let result = &document["result"];
    json!({
        "name": name,
        "timestamp": document["timestamp"],
        "language": result["meta"]["language"],
        "outcome": result["meta"]["outcome"],
        "exit_code": result["exit_code"],
        "duration": result["duration"],
    })
}

fn line(row: &Value) -> String {
    let name = shown(&row["name"]);
    if let Some(error) = row["error"].as_str() {
        return format!("{name}  unreadable: {}", visible(error));
    }
    let (language, outcome) = (shown(&row["language"]), shown(&row["outcome"]));
    format!(
        "{name}  {language:<10}  {outcome:<15}  status {}",
        shown(&row["exit_code"])
    )
}

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

    fn store(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(dir.path().join(name), "{}").unwrap();
        }
        dir
    }

    #[test]
    fn the_newest_comes_first_and_foreign_files_do_not_count() {
        let dir = store(&[
            "2026-01-01_aa.json",
            "2026-02-01_bb.json",
            ".tmp.json",
            "notes.txt",
        ]);
        assert_eq!(
            names(dir.path()).unwrap(),
            ["2026-02-01_bb.json", "2026-01-01_aa.json"]
        );
        assert!(names(&dir.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn a_part_of_a_name_is_enough_if_it_fits_once() {
        let dir = store(&["2026-01-01_aa.json", "2026-02-01_bb.json"]);
        assert!(pick(dir.path(), "bb").unwrap().ends_with("2026-02-01_bb.json"));
        assert!(
            pick(dir.path(), "2026")
                .unwrap_err()
                .to_string()
                .contains("several")
        );
        assert!(
            pick(dir.path(), "../../etc/passwd")
                .unwrap_err()
                .to_string()
                .contains("no stored run")
        );
    }
}
