//! Prints a run's output and its result, as text or as JSON.

use std::io::{self, Write};
use std::process::ExitCode;

use ringfence_exec::local::{Chunk, Stream, is_limits_gap, notice, session_ended, session_kept};
use ringfence_policy::hints;
use ringfence_policy::{ExecutionResult, Outcome, RichResult, SessionFacts};
use ringfence_sandbox::TextDecoder;
use serde_json::{Value, json};

use crate::exit;
use crate::plan::Report;
use crate::ui::Ui;

/// Prints a program's output as it arrives, to our own two streams.
pub(super) fn print_chunks(chunks: impl Iterator<Item = Chunk>) -> io::Result<()> {
    for chunk in chunks {
        match chunk.stream {
            Stream::Stdout => print_to(&mut io::stdout(), &chunk.bytes),
            Stream::Stderr => print_to(&mut io::stderr(), &chunk.bytes),
        }?;
    }
    Ok(())
}

/// Prints a program's output as it arrives, as events.
pub(super) fn print_events(chunks: impl Iterator<Item = Chunk>) -> io::Result<()> {
    let (mut out, mut err) = (TextDecoder::default(), TextDecoder::default());
    for chunk in chunks {
        let text = match chunk.stream {
            Stream::Stdout => out.push(&chunk.bytes),
            Stream::Stderr => err.push(&chunk.bytes),
        };
        print_event(chunk.stream, &text)?;
    }
    print_event(Stream::Stdout, &out.finish())?;
    print_event(Stream::Stderr, &err.finish())
}

fn print_event(stream: Stream, text: &str) -> io::Result<()> {
    let name = match stream {
        _ if text.is_empty() => return Ok(()),
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    print_to(
        &mut io::stdout(),
        event(&json!({"type": name, "text": text})).as_bytes(),
    )
}

fn event(event: &Value) -> String {
    format!("{event}\n")
}

fn print_to(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// The options of a run on which its report depends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requested {
    /// Set if the command line has a limit of memory or processors.
    pub(super) limits: bool,
    /// Set if there is a directory for output files.
    pub(super) output: bool,
    /// Set if the working directory has a virtual environment, and no interpreter was named.
    pub(super) unused_environment: bool,
}

/// Path of a virtual environment's interpreter, where tools make one for a project. It is named and never used unasked:
/// a project's files may be as hostile as the program.
pub(super) const ENVIRONMENT: &str = ".venv/bin/python";

/// Prints the result of a run, and returns the exit status.
pub(super) fn finish(
    result: &ExecutionResult,
    report: Report,
    requested: Requested,
    ui: Ui,
) -> anyhow::Result<ExitCode> {
    match report {
        Report::Json => {
            ui.json(&with_hints(result, requested))?;
        }
        Report::JsonLines => ui.out(event(
            &json!({"type": "result", "result": with_hints(result, requested)}),
        ))?,
        Report::Stream => send(result, requested, ui)?,
    }
    Ok(ExitCode::from(exit::status_of(result)))
}

fn with_hints(result: &ExecutionResult, requested: Requested) -> ExecutionResult {
    let mut result = result.clone();
    let hints = hints_of(&result, requested);
    result.meta.hints.extend(hints);
    result
}

fn hints_of(result: &ExecutionResult, requested: Requested) -> Vec<String> {
    let hints = hints::hints(result).into_iter().map(|hint| hint.person);
    let named = (requested.unused_environment && hints::lacks_module(result)).then(|| {
        format!("this directory has a virtual environment; `--python {ENVIRONMENT}` runs with its packages")
    });
    hints.chain(named).collect()
}

/// Prints the value, as a prompt does, and the fate of the session if the evaluation was stopped.
fn tell_of_session(session: &SessionFacts, ui: Ui) -> anyhow::Result<()> {
    if let Some(value) = &session.value {
        ui.out(format!("{value}\n"))?;
    }
    if session.interrupted {
        ui.warn(&session_kept(&session.id));
    }
    if session.ended {
        ui.error(&session_ended(&session.id));
    }
    Ok(())
}

/// Prints the text of a displayed result, and names the pictures and documents of any.
fn show(result: &RichResult, ui: Ui) -> anyhow::Result<()> {
    if let (false, Some(text)) = (result.main, result.text()) {
        ui.out(format!("{text}\n"))?;
    }
    for (mime, length) in result.documents() {
        ui.hint(&format!(
            "a result is {mime} ({length} bytes); `--json` has it in `meta.results`"
        ));
    }
    Ok(())
}

/// Signals of a crash or of `kill -9`, with their names. Others end programs regularly, as SIGPIPE at the end
/// of `| head`.
const CRASHES: &[(i32, &str)] = &[
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (24, "SIGXCPU"),
    (25, "SIGXFSZ"),
    (31, "SIGSYS"),
];

/// Returns the error for a program that crashed.
fn crash(result: &ExecutionResult) -> Option<String> {
    let signal = -result.exit_code;
    let (_, name) = CRASHES.iter().find(|(number, _)| *number == signal)?;
    (result.meta.outcome == Outcome::Signalled).then(|| format!("killed by signal {signal} ({name})"))
}

/// Prints notices and warnings that are not part of the streams.
fn send(result: &ExecutionResult, requested: Requested, ui: Ui) -> anyhow::Result<()> {
    let meta = &result.meta;
    match notice(meta.outcome, &meta.resource_limits) {
        Some(notice) => ui.error(&notice),
        None if meta.outcome == Outcome::Blocked => ui.err(&result.stderr)?,
        None => crash(result).iter().for_each(|crash| ui.error(crash)),
    }
    for result in &meta.results {
        show(result, ui)?;
    }
    if let Some(session) = &meta.session {
        tell_of_session(session, ui)?;
    }
    // Only where a limit was requested: it would appear at every run of an ordinary user.
    let is_told = |warning: &&String| requested.limits || !is_limits_gap(warning);
    for warning in result.meta.warnings.iter().filter(is_told) {
        ui.warn(warning);
    }
    if meta.output_incomplete {
        ui.hint("make room in the output directory, or name another one");
    }
    for hint in hints_of(result, requested) {
        ui.hint(&hint);
    }
    if !requested.output && !result.meta.output_files.is_empty() {
        let names: Vec<&str> = result
            .meta
            .output_files
            .iter()
            .map(|file| file.path.as_str())
            .collect();
        ui.hint(&format!(
            "the program left {} in /output; pass `--output DIR` to keep it",
            names.join(", ")
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::{Language, Limits, Meta, RuntimeKind};

    #[test]
    fn a_crash_has_its_signals_name() {
        let check = |outcome, exit_code, expected: Option<&str>| {
            let meta = Meta::of(RuntimeKind::Local, Language::Bash, Limits::DEFAULT, outcome);
            let result = ExecutionResult {
                stdout: String::new(),
                stderr: String::new(),
                exit_code,
                duration: 0.0,
                meta,
            };
            assert_eq!(crash(&result).as_deref(), expected, "{exit_code}");
        };
        check(Outcome::Signalled, -11, Some("killed by signal 11 (SIGSEGV)"));
        check(Outcome::Signalled, -13, None);
        check(Outcome::Exited, -11, None);
        check(Outcome::Exited, 139, None);
    }
}
