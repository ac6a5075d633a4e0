//! Renders records of the audit log for people.

use ringfence_server::api::FIXED;
use serde_json::Value;

use crate::ui::visible;

/// Maximum displayed length of the arguments.
const MAX_ARGUMENTS: usize = 100;

/// Renders a record on one line. Text from an agent or a guest must not control the terminal.
pub(super) fn readable(line: &str) -> String {
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
    let who = format!("{} ({})", text(caller(who)), text(&who["surface"]));
    let outcome = match (record["decision"].as_str(), record["error"].as_str()) {
        (Some("refused"), Some(error)) => format!("refused: {}", visible(error)),
        (_, Some(error)) => visible(error),
        _ => text(&record["outcome"]),
    };
    let duration = duration(record["duration_micros"].as_u64().unwrap_or_default());
    let arguments = visible(&short(&record["arguments"].to_string()));
    let tool = text(&record["tool"]);
    // Who and the tool have their width; what varies most stands last.
    format!("{time}  {who:<22}  {tool:<16}  {duration:>7}  {outcome:<10}  {arguments}")
}

/// Returns the caller by which people know it: over HTTP the key, whose scope is a digest, elsewhere the scope. Over other surfaces
/// a client may call itself anything.
fn caller(who: &Value) -> &Value {
    let is_http = matches!(who["surface"].as_str(), Some("http" | "mcp_http"));
    let is_key = who["client"]
        .as_str()
        .is_some_and(|client| client == FIXED || client.starts_with("rf_"));
    match is_http && is_key {
        true => &who["client"],
        false => &who["scope"],
    }
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
    use serde_json::json;

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
            "2026-11-21T22:15:00.123Z  ann (mcp)               run\\u{1b}[2J       12.3ms  answered    \
             {\"code\":\"\\u{9b}31m\\u{202e}\\u{2028}x\\n\"}"
        );
    }

    #[test]
    fn a_key_is_told_by_its_id_and_nobody_passes_for_one() {
        let check = |surface: &str, client: Value, expected: &str| {
            let who = json!({"scope": "key-0123", "surface": surface, "client": client});
            let line = readable(&json!({"time": "t", "who": who}).to_string());
            assert!(
                line.starts_with(&format!("t  {expected} ({surface})  ")),
                "{line}"
            );
        };
        check("http", json!("rf_1a2b3c4d"), "rf_1a2b3c4d");
        check("mcp_http", json!("RINGFENCE_API_KEY"), "RINGFENCE_API_KEY");
        check("http", json!("socket"), "key-0123");
        check("mcp", json!("rf_1a2b3c4d"), "key-0123");
        check("http", Value::Null, "key-0123");
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
