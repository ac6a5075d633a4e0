//! Contexts in JavaScript and TypeScript: a JSON value a line on the bridge, in both directions; Node.js evaluates.

use std::collections::BTreeMap;

use ringfence_exec::local::session_messages::NoAnswer;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::{Answer, CUT, Code, read_until};

/// Longest answer, in bytes: a value of 64 Ki characters, each escaped.
const MAX_ANSWER: usize = 1 << 20;

const SCRIPT: &str = include_str!("javascript.js");

#[derive(Serialize)]
struct EvaluationRequest<'a> {
    number: u32,
    after_interrupt: bool,
    typed: bool,
    code: &'a str,
    variables: BTreeMap<&'a str, &'a str>,
}

#[derive(Deserialize)]
struct EvaluationReply {
    number: u32,
    status: u8,
    value: Option<String>,
    #[serde(default)]
    cut: bool,
}

/// Returns the program of an interpreter, with its arguments.
pub(super) fn command() -> (String, Vec<String>) {
    // In a function, its names are its own: what `-e` declares at the top, code sees and cannot declare again.
    let script = format!("(() => {{\n{SCRIPT}}})();");
    ("node".to_owned(), vec!["-e".to_owned(), script])
}

/// Code to evaluate.
pub(super) struct Evaluation<'a> {
    pub(super) number: u32,
    pub(super) after_interrupt: bool,
    /// Set for TypeScript.
    pub(super) typed: bool,
    pub(super) code: &'a Code,
}

/// Sends code to the interpreter, and waits for the answer.
pub(super) async fn evaluate(
    bridge: &mut DuplexStream,
    evaluation: Evaluation<'_>,
) -> Result<Answer, NoAnswer> {
    let Evaluation {
        number,
        after_interrupt,
        typed,
        code,
    } = evaluation;
    let variables = code.variables.iter();
    let request = EvaluationRequest {
        number,
        after_interrupt,
        typed,
        code: &code.code,
        variables: variables
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect(),
    };
    let mut message = serde_json::to_vec(&request).map_err(|_| NoAnswer::Nonsense)?;
    message.push(b'\n');
    bridge.write_all(&message).await.map_err(NoAnswer::from)?;
    let line = read_until(bridge, b'\n', MAX_ANSWER).await?;
    let reply: EvaluationReply = serde_json::from_slice(&line).map_err(|_| NoAnswer::Nonsense)?;
    // An answer that code has written before it was asked for has another number.
    if reply.number != number {
        return Err(NoAnswer::Nonsense);
    }
    let cut = reply.cut.then(|| CUT.to_owned());
    Ok(Answer {
        status: reply.status,
        value: reply.value,
        warnings: cut.into_iter().collect(),
        ..Answer::default()
    })
}
