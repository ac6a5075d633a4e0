//! Conversion of results and errors to exit statuses and error output.

use std::io;
use std::process::ExitCode;

use ringfence::config::{Problem, Problems};
use ringfence::env::Environment;
use ringfence::{Cause, Error};
use ringfence_args::{ColorChoice, ErrorFormat};
use ringfence_policy::{ExecutionResult, Outcome};
use ringfence_tools::toolbox::ErrorKind;
use serde_json::json;

use crate::ui::{Ui, json_line};

/// Wrong usage, or an invalid configuration.
pub(crate) const USAGE: u8 = 2;
/// The program was killed at its time limit.
pub(crate) const TIMED_OUT: u8 = 124;
/// Ringfence failed or refused.
pub(crate) const FAILED: u8 = 125;
/// The program was refused before it ran.
pub(crate) const BLOCKED: u8 = 126;
/// A sandbox lacks the program of a command, as a shell reports it.
const NO_PROGRAM: u8 = 127;
/// The user, or the system, cancelled the request.
pub(crate) const INTERRUPTED: u8 = 128 + SIGINT;

/// The reader of our output has closed the pipe, as `head` does.
const UNREAD: u8 = 128 + SIGPIPE;

const SIGINT: u8 = 2;
const SIGKILL: u8 = 9;
const SIGPIPE: u8 = 13;

/// Returns the exit status of a run with a result.
pub(crate) fn status_of(result: &ExecutionResult) -> u8 {
    let by_signal = |signal: u8| 128 | (signal & 0x7f);
    let signal = u8::try_from(-i64::from(result.exit_code))
        .ok()
        .filter(|signal| *signal > 0);
    match result.meta.outcome {
        // The program succeeded, but the caller would go on without the files.
        Outcome::Exited if result.exit_code == 0 && result.meta.output_incomplete => FAILED,
        Outcome::Exited => u8::try_from(result.exit_code & 0xff).unwrap_or(FAILED),
        Outcome::TimedOut => TIMED_OUT,
        Outcome::MemoryExceeded => by_signal(signal.unwrap_or(SIGKILL)),
        Outcome::Signalled => signal.map_or(FAILED, by_signal),
        Outcome::Blocked => BLOCKED,
        Outcome::Cancelled => by_signal(SIGINT),
        Outcome::Unknown => FAILED,
    }
}

/// Prints an error to standard output in a form.
fn print(form: ErrorFormat, ui: Ui, error: &ErrorReport) {
    let ErrorReport { kind, message, hint } = error;
    let error = json!({"type": kind, "message": message, "hint": hint});
    let object = match form {
        ErrorFormat::Text => return,
        ErrorFormat::Json => json!({ "error": error }),
        ErrorFormat::Lines => json!({"type": "error", "error": error}),
    };
    // A caller that has closed standard output does not want the error.
    let _ = ui.out(json_line(&object));
}

/// An error as it is printed.
struct ErrorReport {
    /// Type, as the API names it.
    kind: String,
    message: String,
    hint: String,
}

/// Prints a usage error, or the requested help or version, and returns the exit status.
pub(crate) fn unparsed(mut error: clap::Error, form: ErrorFormat, color: ColorChoice) -> ExitCode {
    let hint = ringfence_args::usage_hint(&mut error);
    let ui = Ui::new(color, &Environment::of_process());
    // A closed stream leaves nobody to notify.
    let _ = match (error.use_stderr(), color) {
        (true, _) => ui.err(ui.styled(&error.render())),
        // The parser looks at standard output.
        (false, ColorChoice::Auto) => error.print(),
        (false, ColorChoice::Always | ColorChoice::Never) => ui.out(ui.styled(&error.render())),
    };
    if error.use_stderr() {
        if let Some(hint) = &hint {
            ui.hint(hint);
        }
        let text = error.render().to_string();
        let message = text.lines().take_while(|line| !line.trim().is_empty());
        let message = message.map(str::trim).collect::<Vec<_>>().join(" ");
        let hint = hint
            .unwrap_or_else(|| "`ringfence --help` and `ringfence COMMAND --help` list what there is".into());
        let explained = ErrorReport {
            kind: ErrorKind::InvalidArguments.as_str().to_owned(),
            message: message.strip_prefix("error: ").unwrap_or(&message).to_owned(),
            hint: hint.into_owned(),
        };
        print(form, ui, &explained);
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
}

/// Prints an error with its hint, and returns the exit status.
pub(crate) fn report(ui: Ui, form: ErrorFormat, error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::from(UNREAD);
    }
    let (status, problems) = explain(error);
    for ErrorReport { message, hint, .. } in &problems {
        ui.error(message);
        ui.hint(hint);
    }
    if let Some(ErrorReport { kind, .. }) = problems.first() {
        let all = |part: fn(&ErrorReport) -> &str| problems.iter().map(part).collect::<Vec<_>>().join("\n");
        let (message, hint) = (all(|problem| &problem.message), all(|problem| &problem.hint));
        // Some messages begin with their error type, which is a field of its own here.
        let said = message.strip_prefix(kind.as_str());
        let message = said.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&message);
        let explained = ErrorReport {
            kind: kind.clone(),
            message: message.to_owned(),
            hint,
        };
        print(form, ui, &explained);
    }
    ExitCode::from(status)
}

/// Returns the exit status of an error, and each of its problems with its hint.
fn explain(error: &anyhow::Error) -> (u8, Vec<ErrorReport>) {
    let (problems, failure) = match error.downcast_ref() {
        Some(Error::Invalid(problems)) => (Some(problems), None),
        Some(Error::Failed(failure)) => (None, Some(failure)),
        None => (error.downcast_ref(), error.downcast_ref()),
    };
    if let Some(Problems(problems)) = problems {
        let line = |problem: &Problem| ErrorReport {
            kind: ErrorKind::InvalidArguments.as_str().to_owned(),
            message: problem.message.clone(),
            hint: problem.hint.clone(),
        };
        return (USAGE, problems.iter().map(line).collect());
    }
    let refusal = error.downcast_ref::<ringfence_client::Error>();
    let mut message = format!("{error:#}");
    let (status, kind, hint) = match (failure, refusal) {
        (Some(failure), _) => {
            let status = match failure.cause {
                Cause::Usage => USAGE,
                Cause::Refused => FAILED,
            };
            (status, failure.kind.as_str(), failure.hint.as_str())
        }
        (None, Some(refusal)) => {
            // It names its sources itself.
            message = refusal.to_string();
            let status = if refusal.is_no_program() {
                NO_PROGRAM
            } else {
                FAILED
            };
            (status, refusal.kind(), refusal.hint())
        }
        (None, None) => (
            FAILED,
            ErrorKind::Internal.as_str(),
            "`ringfence doctor` checks this machine",
        ),
    };
    let explained = ErrorReport {
        kind: kind.to_owned(),
        message,
        hint: hint.to_owned(),
    };
    (status, vec![explained])
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::{Language, Limits, Meta, RuntimeKind};

    fn status(outcome: Outcome, exit_code: i32) -> u8 {
        let meta = Meta::of(RuntimeKind::Local, Language::Python, Limits::DEFAULT, outcome);
        status_of(&ExecutionResult {
            stdout: String::new(),
            stderr: String::new(),
            exit_code,
            duration: 0.0,
            meta,
        })
    }

    #[test]
    fn every_outcome_has_its_status() {
        assert_eq!(status(Outcome::Exited, 0), 0);
        assert_eq!(status(Outcome::Exited, 3), 3);
        assert_eq!(status(Outcome::TimedOut, -1), 124);
        assert_eq!(status(Outcome::Signalled, -11), 139);
        assert_eq!(status(Outcome::MemoryExceeded, -9), 137);
        assert_eq!(status(Outcome::MemoryExceeded, 1), 137);
        assert_eq!(status(Outcome::Blocked, 126), 126);
        assert_eq!(status(Outcome::Cancelled, -2), 130);
        assert_eq!(status(Outcome::Unknown, 0), 125);
    }
}
