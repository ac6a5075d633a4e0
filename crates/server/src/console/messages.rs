//! Converts audit records to the JSON of the page.

use serde::Serialize;
use serde_json::Value;

use ringfence_gateway_protocol::{Piece, pieces, visible};

/// Maximum length of a record's arguments, in characters.
const MAX_ARGUMENTS: usize = 2_000;

/// A tool call.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    sequence: Option<u64>,
    time: Option<String>,
    scope: Option<String>,
    session: Option<String>,
    surface: Option<String>,
    client: Option<String>,
    tool: Option<String>,
    arguments: Vec<Piece>,
    attempts: Vec<String>,
    judgement: Option<String>,
    decision: Option<String>,
    outcome: Option<String>,
    error: Option<String>,
    duration_micros: Option<u64>,
}

impl Run {
    /// Parses a line of the audit log. `None` if it is not about tool calls.
    pub(super) fn read(line: &str) -> Option<Self> {
        let record: Value = serde_json::from_str(line).ok()?;
        if let Some(refused) = record.get("refused") {
            return Some(Self::counted(&record, refused));
        }
        let who = record.get("who")?;
        let text = |value: &Value| value.as_str().map(visible);
        let attempts = record["attempts"].as_array().into_iter().flatten();
        Some(Self {
            sequence: record["sequence"].as_u64(),
            time: text(&record["time"]),
            scope: text(&who["scope"]),
            session: text(&who["session"]),
            surface: text(&who["surface"]),
            client: text(&who["client"]),
            tool: text(&record["tool"]),
            arguments: pieces(&arguments(&record["arguments"])),
            attempts: attempts.filter_map(text).collect(),
            judgement: text(&record["judgement"]),
            decision: text(&record["decision"]),
            outcome: text(&record["outcome"]),
            error: text(&record["error"]),
            duration_micros: record["duration_micros"].as_u64(),
        })
    }

    /// Converts a record that only counts refused calls.
    fn counted(record: &Value, refused: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(visible);
        let count = refused["count"].as_u64().unwrap_or_default();
        let errors = refused["errors"].as_object().into_iter().flatten();
        let errors: Vec<String> = errors.map(|(kind, count)| format!("{kind}: {count}")).collect();
        Self {
            sequence: record["sequence"].as_u64(),
            time: text(&record["time"]),
            scope: text(&refused["scope"]),
            session: None,
            surface: None,
            client: None,
            tool: Some(format!("{count} uses")),
            arguments: Vec::new(),
            attempts: Vec::new(),
            judgement: None,
            decision: Some("refused".to_owned()),
            outcome: Some("failed".to_owned()),
            error: Some(visible(&errors.join(", "))),
            duration_micros: None,
        }
    }
}

/// Renders arguments for reading: a single one as its value, several with their names.
fn arguments(arguments: &Value) -> String {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let text = match arguments {
        Value::Object(map) if map.len() == 1 => map.values().map(shown).collect(),
        Value::Object(map) => {
            let lines: Vec<String> = map
                .iter()
                .map(|(name, value)| format!("{name}: {}", shown(value)))
                .collect();
            lines.join("\n")
        }
        Value::Null => String::new(),
        other => shown(other),
    };
    match text.char_indices().nth(MAX_ARGUMENTS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
