//! Conversion of results and errors to exit statuses and error output.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use ringfence::config::{Problem, Problems};
use ringfence::{Cause, Error};
use ringfence_policy::{ExecutionResult, Outcome};
use ringfence_tools::toolbox::{ErrorKind, ToolError};
use serde_json::json;

use crate::ui::Ui;

/// Wrong usage, or an invalid configuration.
pub(crate) const USAGE: u8 = 2;
/// The program was killed at its time limit.
pub(crate) const TIMED_OUT: u8 = 124;
/// Ringfence failed or refused.
pub(crate) const FAILED: u8 = 125;
/// The program was refused before it ran.
pub(crate) const BLOCKED: u8 = 126;

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

/// The format of errors on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// None: people read standard error.
    Text,
    /// One JSON object, `{"error": {…}}`.
    Json,
    /// One JSON object on its own line, after the objects printed before.
    Lines,
}

impl Form {
    /// Returns the format that a command line, valid or not, asks for.
    pub(crate) fn of(arguments: &[OsString]) -> Self {
        let own = arguments.iter().skip(1).map(|argument| argument.to_str());
        let own: Vec<&str> = own
            .map_while(|argument| Some(argument.unwrap_or_default()).filter(|own| *own != "--"))
            .collect();
        let has = |flag: &str| own.contains(&flag);
        match command_of(&own) {
            Some("run") if has("--json-stream") => Self::Lines,
            Some("run" | "tool") if has("--json") => Self::Json,
            _ => Self::Text,
        }
    }

    /// Prints the error to standard output.
    fn print(self, ui: Ui, error: &ToolError) {
        let object = match self {
            Self::Text => return,
            Self::Json => json!({"error": error.to_json()}),
            Self::Lines => json!({"type": "error", "error": error.to_json()}),
        };
        // A caller that has closed standard output does not want the error.
        let _ = ui.out(format!("{object}\n"));
    }
}

/// Returns the name of the command: the first argument that is neither an option nor an option's value.
fn command_of<'a>(arguments: &[&'a str]) -> Option<&'a str> {
    let mut arguments = arguments.iter();
    loop {
        match *arguments.next()? {
            "--config" | "--color" => drop(arguments.next()),
            option if option.starts_with('-') => {}
            command => return Some(command),
        }
    }
}

/// Prints a usage error, or the requested help or version, and returns the exit status.
pub(crate) fn unparsed(error: &clap::Error, form: Form) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let hint = match takes_more(error.kind(), &text) {
            true => Some(BEHIND),
            false => unknown_command(error).and_then(docker_hint),
        };
        if let Some(hint) = hint {
            Ui::plain().hint(hint);
        }
        let hint = hint.unwrap_or("`ringfence --help` and `ringfence COMMAND --help` list what there is");
        form.print(
            Ui::plain(),
            &ToolError::new(ErrorKind::InvalidArguments, message, hint),
        );
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE))
}

const BEHIND: &str = "write a command, or the arguments of a program, after `--`";

/// Returns `true` if an argument is unexpected only at its position: the command takes some after `--`.
fn takes_more(kind: clap::error::ErrorKind, rendered: &str) -> bool {
    let usage = rendered.lines().find(|line| line.starts_with("Usage: "));
    kind == clap::error::ErrorKind::UnknownArgument
        && !rendered.contains("unexpected argument '-")
        && usage.is_some_and(|usage| usage.contains("-- <"))
}

/// Returns the unknown command of a usage error, if it stands directly behind `ringfence` or `ringfence sandbox`.
fn unknown_command(error: &clap::Error) -> Option<&str> {
    let usage = error.get(ContextKind::Usage)?.to_string();
    // `Usage: ringfence sandbox [OPTIONS] <COMMAND>`
    let words = usage.split_whitespace().skip(2);
    let parents: Vec<&str> = words.take_while(|word| !word.starts_with(['[', '<'])).collect();
    if !matches!(parents[..], [] | ["sandbox"]) {
        return None;
    }
    match error.get(ContextKind::InvalidSubcommand)? {
        ContextValue::String(command) => Some(command),
        _ => None,
    }
}

/// Returns the counterpart of a command of Docker, for a hint.
fn docker_hint(command: &str) -> Option<&'static str> {
    Some(match command {
        "attach" => "`ringfence sandbox shell NAME` opens a shell in a sandbox",
        "commit" => "`ringfence sandbox snapshot create` keeps the files of a sandbox",
        "create" | "exec" => {
            "`ringfence sandbox create` makes a sandbox, `ringfence sandbox exec` runs a command in it"
        }
        "images" | "pull" => "`ringfence image` manages images",
        "inspect" => "`ringfence sandbox get NAME` describes a sandbox",
        "kill" | "delete" | "remove" => "`ringfence sandbox rm NAME` removes a sandbox and its files",
        "list" | "ps" => "`ringfence sandbox ls` lists the sandboxes",
        "start" | "unpause" => "`ringfence sandbox resume NAME` continues a sandbox that was paused",
        "stop" => "`ringfence sandbox pause NAME` keeps a sandbox and stops its processes; `rm` removes it",
        _ => return None,
    })
}

/// Prints an error with its hint, and returns the exit status.
pub(crate) fn report(ui: Ui, form: Form, error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::from(UNREAD);
    }
    let (status, lines) = explain(error);
    for (_, message, hint) in &lines {
        ui.error(message);
        ui.hint(hint);
    }
    if let Some((kind, ..)) = lines.first() {
        let all = |part: fn(&(ErrorKind, String, String)) -> &str| {
            lines.iter().map(part).collect::<Vec<_>>().join("\n")
        };
        let (message, hint) = (all(|(_, message, _)| message), all(|(.., hint)| hint));
        // Some messages begin with their error type, which is a field of its own here.
        let said = message.strip_prefix(kind.as_str());
        let message = said.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&message);
        form.print(ui, &ToolError::new(*kind, message, hint));
    }
    ExitCode::from(status)
}

/// Returns the exit status of an error, and each of its problems with its hint.
fn explain(error: &anyhow::Error) -> (u8, Vec<(ErrorKind, String, String)>) {
    let (problems, failure) = match error.downcast_ref() {
        Some(Error::Invalid(problems)) => (Some(problems), None),
        Some(Error::Failed(failure)) => (None, Some(failure)),
        None => (error.downcast_ref(), error.downcast_ref()),
    };
    if let Some(Problems(problems)) = problems {
        let line = |problem: &Problem| {
            (
                ErrorKind::InvalidArguments,
                problem.message.clone(),
                problem.hint.clone(),
            )
        };
        return (USAGE, problems.iter().map(line).collect());
    }
    let message = format!("{error:#}");
    match failure {
        Some(failure) => {
            let status = match failure.cause {
                Cause::Usage => USAGE,
                Cause::Refused => FAILED,
            };
            (status, vec![(failure.kind, message, failure.hint.clone())])
        }
        None => {
            let hint = "`ringfence doctor` checks this machine".to_owned();
            (FAILED, vec![(ErrorKind::Internal, message, hint)])
        }
    }
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
    fn the_form_is_known_whether_the_command_line_is_right_or_not() {
        for (line, expected) in [
            ("run --json -c 1", Form::Json),
            ("run -c 1 --json --no-such", Form::Json),
            ("--config a.toml --color=never run --json x.py", Form::Json),
            ("run --json-stream x.py", Form::Lines),
            ("tool --json shell", Form::Json),
            ("tool --json-stream shell", Form::Text),
            ("run x.py -- --json", Form::Text),
            ("sandbox run x --json", Form::Text),
            ("--config run doctor --json", Form::Text),
            ("", Form::Text),
        ] {
            let words = ["ringfence"].into_iter().chain(line.split_whitespace());
            let arguments: Vec<OsString> = words.map(OsString::from).collect();
            assert_eq!(Form::of(&arguments), expected, "{line}");
        }
    }

    #[test]
    fn an_argument_before_the_dashes_has_a_hint() {
        use clap::Parser;
        let takes = |line: &str| {
            let error = ringfence_args::Cli::try_parse_from(line.split(' ')).unwrap_err();
            takes_more(error.kind(), &error.render().to_string())
        };
        assert!(takes("ringfence policy check touch x"));
        assert!(takes("ringfence run x.py first"));
        assert!(!takes("ringfence run --frob x.py"));
        assert!(!takes("ringfence doctor now"));
    }

    #[test]
    fn commands_docker_hint_have_hints() {
        use clap::Parser;
        let hint = |line: &str| {
            let error = ringfence_args::Cli::try_parse_from(line.split(' ')).unwrap_err();
            unknown_command(&error).and_then(docker_hint)
        };
        assert!(hint("ringfence sandbox stop x").is_some_and(|hint| hint.contains("sandbox pause")));
        assert!(hint("ringfence ps").is_some_and(|hint| hint.contains("sandbox ls")));
        assert_eq!(hint("ringfence sandbox frob"), None);
        assert_eq!(hint("ringfence sandbox get --stop"), None);
        // They would name a command for another object.
        assert_eq!(hint("ringfence keys delete x"), None);
        assert_eq!(hint("ringfence sandbox snapshot delete x"), None);
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
