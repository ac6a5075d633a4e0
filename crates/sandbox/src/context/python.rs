//! Contexts in Python: the protocol of sessions, on a bridge.

use ringfence_exec::local::session_messages::{Evaluation, Lasting, NoAnswer};
use ringfence_exec::local::{Imports, interpreter_command, interpreter_greeting};
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::{Answer, CUT, Code};

/// Bytes of a value's text that are wanted.
const WANTED: u32 = 64 * 1024;

/// Returns the program of an interpreter, with its arguments.
pub(super) fn command(python: &str) -> (String, Vec<String>) {
    let arguments = interpreter_command().map(str::to_owned);
    (python.to_owned(), arguments.into())
}

/// Makes a session of an interpreter that has been started. One that has ended already is noticed at its first use.
pub(super) async fn greet(bridge: &mut DuplexStream, directory: &str, imports: Imports) {
    let _ = bridge.write_all(&interpreter_greeting(directory, imports)).await;
}

/// Sends code to the interpreter, and waits for the answer.
pub(super) async fn evaluate(
    bridge: &mut DuplexStream,
    number: u32,
    after_interrupt: bool,
    code: &Code,
) -> Result<Answer, NoAnswer> {
    let name = format!("<cell {number}>");
    let evaluation = Evaluation {
        number,
        wanted: WANTED,
        stdin: false,
        bridge: false,
        after_interrupt,
        name: &name,
        code: &code.code,
        arguments: &[],
        variables: &code.variables,
        lasting: Lasting::Evaluation,
    };
    bridge
        .write_all(&evaluation.message())
        .await
        .map_err(NoAnswer::from)?;
    let answer = evaluation.answer(bridge).await?;
    let is_cut = answer.value.as_ref().is_some_and(|value| value.cut);
    let cut = is_cut.then(|| CUT.to_owned());
    Ok(Answer {
        status: answer.status,
        value: answer.value.map(|value| value.text),
        results: answer.results.results,
        warnings: cut.into_iter().chain(answer.results.warnings).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A longer one would wait for an interpreter that may never read. Python keeps text beyond ASCII with two bytes for a
    /// character.
    #[test]
    fn a_greeting_fits_into_a_bridge() {
        let greeting = interpreter_greeting(&"d".repeat(4096), Imports::Packages);
        assert!(greeting.len() < super::super::BRIDGE, "{}", greeting.len());
        assert!(command("python3").1.iter().all(|argument| argument.is_ascii()));
    }
}
