//! An execution as lines of JSON.

use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes};
use ringfence_policy::{Outcome, RichResult};
use ringfence_sandbox::context::{Execution, Language};
use ringfence_sandbox::output::{Chunk, Stream};
use ringfence_sandbox::{Error as SandboxError, TextDecoder, rfc3339};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use super::traceback::Filter;
use crate::body::{self, BrokenOff};
use crate::error::advised;
use crate::known::Opened;

/// Time without output after which a line says that the connection lives.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Members of a result, by media type.
const MEMBERS: [(&str, &str); 12] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("application/vnd.ringfence.data+json", "data"),
    ("application/vnd.ringfence.chart+json", "chart"),
];

/// Code under way. Dropping it closes its output, which interrupts it.
pub(super) struct Running {
    opened: Opened,
    language: Language,
    executing: Option<oneshot::Receiver<Result<Execution, SandboxError>>>,
    chunks: mpsc::Receiver<Chunk>,
    stdout: TextDecoder,
    stderr: TextDecoder,
    filter: Filter,
}

impl Running {
    pub(super) fn new(
        opened: Opened,
        language: Language,
        executing: oneshot::Receiver<Result<Execution, SandboxError>>,
        chunks: mpsc::Receiver<Chunk>,
    ) -> Self {
        Self {
            opened,
            language,
            executing: Some(executing),
            chunks,
            stdout: TextDecoder::default(),
            stderr: TextDecoder::default(),
            filter: Filter::new(language),
        }
    }

    /// Returns the body of the answer.
    pub(super) fn into_body(self) -> Body {
        body::streamed(self, |mut running| async move {
            let lines = running.next().await?;
            Ok(lines.map(|lines| (Bytes::from(lines), running)))
        })
    }

    /// Returns the next lines; `None` at the end.
    async fn next(&mut self) -> Result<Option<String>, BrokenOff> {
        loop {
            let lines = match tokio::time::timeout(KEEPALIVE, self.chunks.recv()).await {
                Ok(Some(chunk)) => self.output(&chunk),
                Ok(None) => match self.executing.take() {
                    Some(executing) => self.ended(executing.await.ok())?,
                    None => return Ok(None),
                },
                Err(_) => line(&json!({"type": "keepalive"})),
            };
            if !lines.is_empty() {
                return Ok(Some(lines));
            }
        }
    }

    fn output(&mut self, chunk: &Chunk) -> String {
        match chunk.stream {
            Stream::Stdout => printed("stdout", &self.stdout.push(&chunk.bytes)),
            Stream::Stderr => {
                let text = self.stderr.push(&chunk.bytes);
                printed("stderr", &self.filter.push(&text))
            }
        }
    }

    /// Returns the last lines.
    fn ended(&mut self, executed: Option<Result<Execution, SandboxError>>) -> Result<String, BrokenOff> {
        if !self.opened.is_running() {
            return Err(BrokenOff);
        }
        let mut lines = printed("stdout", &self.stdout.finish());
        let rest = self.stderr.finish();
        let rest = self.filter.push(&rest);
        lines += &printed("stderr", &rest);
        let execution = match executed {
            Some(Ok(execution)) => execution,
            Some(Err(error)) => {
                lines += &failed("ExecutionError", &advised(&error), "");
                return Ok(lines + &line(&json!({"type": "end_of_execution"})));
            }
            None => return Err(BrokenOff),
        };
        lines +=
            &line(&json!({"type": "number_of_executions", "execution_count": execution.execution_count}));
        for result in results(&execution) {
            lines += &line(&result);
        }
        lines += &self.error(&execution);
        lines += &printed("stderr", &self.filter.release());
        Ok(lines + &line(&json!({"type": "end_of_execution"})))
    }

    /// Returns the error of an execution, if it failed.
    fn error(&mut self, execution: &Execution) -> String {
        if execution.context_ended {
            let value = "the interpreter has ended, and its state is lost";
            let name = match execution.outcome {
                Outcome::MemoryExceeded => "MemoryError",
                _ => "ContextEnded",
            };
            return failed(name, value, "");
        }
        if execution.exit_code == 0 || self.language == Language::Bash {
            return String::new();
        }
        match self.filter.exception() {
            Some(exception) => failed(&exception.name, &exception.value, &exception.traceback),
            None if execution.outcome == Outcome::Exited => {
                failed("SystemExit", &execution.exit_code.to_string(), "")
            }
            None => failed("KeyboardInterrupt", "the code was interrupted", ""),
        }
    }
}

fn line(event: &Value) -> String {
    format!("{event}\n")
}

fn printed(kind: &str, text: &str) -> String {
    match text {
        "" => String::new(),
        text => line(&json!({"type": kind, "text": text, "timestamp": rfc3339(SystemTime::now())})),
    }
}

fn failed(name: &str, value: &str, traceback: &str) -> String {
    line(&json!({"type": "error", "name": name, "value": value, "traceback": traceback}))
}

/// Returns the results of an execution: what was shown, and the value of its last expression.
fn results(execution: &Execution) -> Vec<Value> {
    let mut results: Vec<Value> = execution.results.iter().map(rendered).collect();
    if let Some(value) = &execution.value
        && !execution.results.iter().any(|result| result.main)
    {
        results.push(json!({"type": "result", "text": unquoted(value), "is_main_result": true}));
    }
    results
}

fn rendered(result: &RichResult) -> Value {
    let (mut members, mut extra) = (Map::new(), Map::new());
    members.insert("type".to_owned(), "result".into());
    for (media, value) in &result.data {
        let known = MEMBERS.iter().find(|(known, _)| known == media);
        match known {
            Some((_, "text")) => {
                let text = value
                    .as_str()
                    .map_or_else(|| value.clone(), |text| unquoted(text).into());
                members.insert("text".to_owned(), text);
            }
            Some((_, name)) => {
                members.insert((*name).to_owned(), value.clone());
            }
            None => {
                extra.insert(media.clone(), value.clone());
            }
        }
    }
    if !extra.is_empty() {
        members.insert("extra".to_owned(), extra.into());
    }
    members.insert("is_main_result".to_owned(), result.main.into());
    members.into()
}

/// Returns a text without one pair of quotes around it, as E2B shows strings.
fn unquoted(text: &str) -> &str {
    let stripped = ['\'', '"']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    stripped.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_the_members_that_clients_know() {
        let data = [
            ("text/plain", json!("'a'")),
            ("image/png", json!("AA==")),
            ("application/vnd.ringfence.data+json", json!({"n": [1, 3]})),
            ("application/vnd.other+json", json!(1)),
        ];
        let result = RichResult {
            main: true,
            data: data.map(|(media, value)| (media.to_owned(), value)).into(),
            omitted: std::collections::BTreeMap::default(),
        };
        assert_eq!(
            rendered(&result),
            json!({"type": "result", "text": "a", "png": "AA==", "data": {"n": [1, 3]},
                "extra": {"application/vnd.other+json": 1}, "is_main_result": true})
        );
    }

    #[test]
    fn one_pair_of_quotes_is_removed() {
        for (text, expected) in [("'a'", "a"), ("\"'\"", "'"), ("'", "'"), ("'a", "'a"), ("2", "2")] {
            assert_eq!(unquoted(text), expected);
        }
    }
}
