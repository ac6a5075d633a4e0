//! `ringfence audit`: verifies and prints the audit log.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_records::audit::{self, Error, Follow, Link, Verified};
use serde_json::{Value, json};

use crate::args::AuditCommand;
use crate::commands::run::interrupted;
use crate::context::Context;
use crate::ui::{Ui, visible};
use ringfence::audit::{directory, failure};

/// Polling interval of `--follow`.
const INTERVAL: Duration = Duration::from_millis(250);

/// Maximum displayed length of the arguments.
const MAX_ARGUMENTS: usize = 100;

pub(crate) fn run(command: &AuditCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let directory = directory(context)?;
    match command {
        AuditCommand::Verify { host, head, json } => {
            verify(&directory, *host, head.as_ref(), *json, context.ui)?;
        }
        AuditCommand::Tail {
            host,
            lines,
            follow,
            json,
        } => {
            let directory = if *host { audit::host(&directory) } else { directory };
            let line = if *json { visible } else { readable };
            let newest = audit::tail(&directory, *lines as usize).map_err(failure)?;
            let text: String = newest.iter().map(|text| line(text) + "\n").collect();
            context.ui.out(text)?;
            if *follow {
                go_on(Follow::behind(&directory, &newest), line, context.ui)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Verifies both logs, or the host log alone. A head belongs to the named log, or to the first.
fn verify(directory: &Path, host: bool, head: Option<&Link>, json: bool, ui: Ui) -> anyhow::Result<()> {
    let own = audit::host(directory);
    let result = if host {
        audit::verify(&own, head)
    } else {
        audit::verify(directory, head)
    };
    let second = (!host).then(|| audit::verify(&own, None));
    if json {
        let mut object = shown(&result)?;
        if let Some(second) = &second {
            object["host"] = shown(second)?;
        }
        if !object["intact"].is_null() {
            ui.out(serde_json::to_string_pretty(&object)? + "\n")?;
        }
    }
    let verified = result.map_err(failure)?;
    let second = second.transpose().map_err(failure)?;
    if !json {
        ui.out(summary(&verified))?;
        if let Some(second) = second.filter(|second| second.records > 0) {
            ui.out(format!("commands on the host and answers:\n{}", summary(&second)))?;
        }
    }
    Ok(())
}

/// Renders the result as JSON; null if the log cannot be read.
fn shown(result: &Result<Verified, Error>) -> serde_json::Result<Value> {
    let mut object = match result {
        Ok(verified) => serde_json::to_value(verified)?,
        Err(Error::Broken(broken)) => json!({
            "file": broken.file, "line": broken.line, "sequence": broken.sequence, "what": broken.what,
        }),
        Err(error @ Error::Gone { sequence, .. }) => {
            json!({"file": null, "line": null, "sequence": sequence, "what": error.to_string()})
        }
        Err(_) => return Ok(Value::Null),
    };
    object["intact"] = result.is_ok().into();
    Ok(object)
}

fn summary(verified: &Verified) -> String {
    let (Some(first), Some(head)) = (verified.first, verified.head) else {
        return "intact: no records\n".to_owned();
    };
    let (records, files, last) = (verified.records, verified.files, head.sequence);
    let plural = |one: bool| if one { "" } else { "s" };
    let mut text = format!(
        "intact: {records} record{}, {first} to {last}, in {files} file{}\n",
        plural(records == 1),
        plural(files == 1)
    );
    if let (2.., Some(at)) = (first, &verified.removed_at) {
        let gone = first - 1;
        text.push_str(&format!(
            "removed: records 1 to {gone}, the newest of them at {}, to make room (`audit.max_files`)\n",
            visible(at)
        ));
    }
    if verified.counted > 0 {
        let counted = verified.counted;
        text.push_str(&format!(
            "counted: {counted} refused uses have no record of their own\n"
        ));
    }
    if verified.repairs > 0 {
        text.push_str(&format!("repaired: {} torn records\n", verified.repairs));
    }
    if verified.torn_bytes > 0 {
        let bytes = verified.torn_bytes;
        text.push_str(&format!(
            "torn: {bytes} bytes of a record that was never finished\n"
        ));
    }
    text + &format!("head: {head}\n")
}

/// Prints appended records until interrupted.
fn go_on(mut follow: Follow, line: fn(&str) -> String, ui: Ui) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let stop = interrupted();
        tokio::pin!(stop);
        let mut looks = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                () = &mut stop => return Ok(()),
                _ = looks.tick() => follow.poll(|text| ui.out(line(text) + "\n"))?,
            }
        }
    })
}

/// Renders a record on one line. Text from an agent or a guest must not control the terminal.
fn readable(line: &str) -> String {
    let Ok(record) = serde_json::from_str::<Value>(line) else {
        return format!("unreadable: {}", visible(&short(line)));
    };
    let text = |value: &Value| value.as_str().map_or_else(|| "-".to_owned(), visible);
    let time = text(&record["time"]);
    if let Some(repair) = record.get("repair") {
        let bytes = repair["bytes"].as_u64().unwrap_or_default();
        return format!("{time}  repaired: {bytes} bytes of a record that was never finished were cut off");
    }
    if let Some(removed) = record.get("removed") {
        let last = removed["last"].as_u64().unwrap_or_default();
        return format!("{time}  removed: the records up to {last}, to make room");
    }
    if let Some(refused) = record.get("refused") {
        let (count, scope) = (
            refused["count"].as_u64().unwrap_or_default(),
            text(&refused["scope"]),
        );
        let since = text(&refused["since"]);
        return format!("{time}  {scope:<12}  refused: {count} uses since {since}, counted");
    }
    if let Some(answer) = record.get("answer") {
        return answered(&time, answer);
    }
    let who = &record["who"];
    let who = format!("{} ({})", text(&who["scope"]), text(&who["surface"]));
    let outcome = match (record["decision"].as_str(), record["error"].as_str()) {
        (Some("refused"), Some(error)) => format!("refused: {}", visible(error)),
        (_, Some(error)) => visible(error),
        _ => text(&record["outcome"]),
    };
    let duration = duration(record["duration_micros"].as_u64().unwrap_or_default());
    let arguments = visible(&short(&record["arguments"].to_string()));
    let tool = text(&record["tool"]);
    format!("{time}  {who:<12}  {tool:<16}  {outcome:<10}  {duration:>7}  {arguments}")
}

/// Renders a person's answer on one line.
fn answered(time: &str, answer: &Value) -> String {
    let text = |name: &str| answer[name].as_str().map_or_else(|| "-".to_owned(), visible);
    let word = if answer["approved"] == true {
        "approved"
    } else {
        "denied"
    };
    let (by, remember, kind) = (text("by"), text("remember"), text("kind"));
    let asked = visible(&short(answer["text"].as_str().unwrap_or_default()));
    let scope = text("scope");
    format!("{time}  {scope:<12}  {word} by {by}, {remember}  {kind}  {asked}")
}

fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros}µs"),
        1_000..1_000_000 => format!("{}.{}ms", micros / 1_000, micros / 100 % 10),
        _ => format!("{}.{}s", micros / 1_000_000, micros / 100_000 % 10),
    }
}

fn short(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_ARGUMENTS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_that_steers_nothing() {
        let record = json!({
            "time": "2026-11-21T22:15:00.123Z", "who": {"scope": "ann", "surface": "mcp"}, "tool": "run\u{1b}[2J",
            "arguments": {"code": "\u{9b}31m\u{202e}\u{2028}x\n"}, "decision": "allowed", "outcome": "answered",
            "error": null, "duration_micros": 12_345,
        });
        let line = readable(&record.to_string());
        assert_eq!(
            line,
            "2026-11-21T22:15:00.123Z  ann (mcp)     run\\u{1b}[2J      answered     12.3ms  \
             {\"code\":\"\\u{9b}31m\\u{202e}\\u{2028}x\\n\"}"
        );
    }

    #[test]
    fn errors_repairs_and_damaged_lines_are_told() {
        let check =
            |line: &str, expected: &str| assert!(readable(line).contains(expected), "{}", readable(line));
        check(
            r#"{"decision":"refused","error":"not_found"}"#,
            "refused: not_found",
        );
        check(
            r#"{"decision":"allowed","outcome":"failed","error":"timeout"}"#,
            "timeout",
        );
        check(r#"{"time":"t","repair":{"bytes":7}}"#, "t  repaired: 7 bytes");
        check(
            r#"{"time":"t","removed":{"last":7}}"#,
            "removed: the records up to 7",
        );
        check(
            r#"{"time":"t","refused":{"scope":"a","count":7,"since":"s"}}"#,
            "refused: 7 uses since s",
        );
        check(
            r#"{"time":"t","answer":{"scope":"a","approved":true,"by":"ann","remember":"once","kind":"command","text":"rm x"}}"#,
            "approved by ann, once  command  rm x",
        );
        check("\u{1b}[2J", "unreadable: \\u{1b}[2J");
        check("[1]", "-  - (-)");
    }

    #[test]
    fn durations_have_a_unit_that_fits() {
        assert_eq!([7, 1_250, 61_000_000].map(duration), ["7µs", "1.2ms", "61.0s"]);
    }
}
