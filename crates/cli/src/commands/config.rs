//! `ringfence config`: prints the effective configuration and the source of each value.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::ui;
use ringfence::config::values::{ShellFallback, ShellRunner};
use ringfence::config::{Config, reference};
use ringfence::doctor;
use ringfence::parts::missing_key;
use ringfence_args::ConfigCommand;

pub(crate) fn run(command: &ConfigCommand, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Show { json } => context.ui.out(if *json {
            show_json(context)?
        } else {
            show(context)?
        })?,
        ConfigCommand::Check { .. } => context.ui.out(check(context)?)?,
        ConfigCommand::Schema { markdown: true } => context.ui.out(reference::markdown())?,
        ConfigCommand::Schema { markdown: false } => context.ui.out(pretty(&reference::json_schema())?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(context: &Context) -> anyhow::Result<String> {
    let rows: Vec<_> = context
        .loaded()?
        .values()
        .into_iter()
        .map(|(key, value, origin)| {
            let value = if value.is_null() {
                "unset".to_owned()
            } else {
                value.to_string()
            };
            (format!("{key} = {value}"), origin)
        })
        .collect();
    // One very long list must not push every source off the screen.
    let width = rows
        .iter()
        .map(|(row, _)| row.chars().count())
        .filter(|width| *width <= 60)
        .max()
        .unwrap_or(0);
    Ok(rows
        .iter()
        .map(|(row, origin)| format!("{row:width$}  # {origin}\n"))
        .collect())
}

fn show_json(context: &Context) -> anyhow::Result<String> {
    let rows: Map<String, Value> = context
        .loaded()?
        .values()
        .into_iter()
        .map(|(key, value, origin)| (key, json!({"value": value, "origin": origin.to_string()})))
        .collect();
    pretty(&Value::Object(rows))
}

fn check(context: &Context) -> anyhow::Result<String> {
    let assessor = context.parts()?.host.assessor.as_deref();
    if let Some(sentence) = assessor.and_then(missing_key) {
        context.ui.warn(&sentence);
    }
    context.tell_passed_over()?;
    if let Some(sentence) = unfenced_shell(context.config()?) {
        context.ui.warn(sentence);
    }
    for conflict in doctor::server_conflicts(context)? {
        context
            .ui
            .warn(&format!("{conflict}; {}", conflict.hint().person()));
    }
    let files: Vec<_> = context
        .loaded()?
        .files
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    Ok(if files.is_empty() {
        "ok: no configuration file; the built-in defaults and the environment hold\n".to_owned()
    } else {
        format!("ok: {}\n", files.join(", "))
    })
}

/// Returns a warning about commands that the tool `shell` runs outside of the fence.
fn unfenced_shell(config: &Config) -> Option<&'static str> {
    let shell = &config.permissions.shell;
    match (shell.runner, shell.container_fallback) {
        (ShellRunner::Host, _) => Some(
            "`permissions.shell.runner`: with `host` every command of the tool `shell` runs on this machine at once, with your \
             rights; no list, no risk score and no approval applies; use `host_exec` to be asked",
        ),
        (ShellRunner::Container, ShellFallback::Host) => Some(
            "`permissions.shell.container_fallback`: without a container engine every command of the tool `shell` runs on this \
             machine at once, with your rights; no list, no risk score and no approval applies",
        ),
        (ShellRunner::Fenced | ShellRunner::Container, _) => None,
    }
}

fn pretty(value: &Value) -> anyhow::Result<String> {
    Ok(ui::json(value)?)
}
