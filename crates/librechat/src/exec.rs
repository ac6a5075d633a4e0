//! Programs that are run at once.

use ringfence_policy::{Bytes, Outcome, Scope, Timeout};
use ringfence_sandbox::output::Collected;
use ringfence_sandbox::process::ProcessEnd;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::language::{HAS_TYPES, Language};
use crate::program_sandbox::{ProgramSandbox, RemainingFiles};
use crate::session::{FileRef, InputFile, MAX_FILES};
use crate::sessions::Sessions;

/// Time limit of a program that names none, and of those that ask for more.
const TIMEOUT: Timeout = Timeout::seconds(60);
const MAX_TIMEOUT: u64 = 5 * 60 * 1000;

/// Lifetime of its sandbox: more than its program and its files need.
const LIFETIME: Timeout = Timeout::seconds(15 * 60);

/// Output that is kept of each stream.
pub(crate) const KEPT: Bytes = Bytes::mib(1);

/// A program to run. Clients send further members, by their version: what they mean to a service of many users has no meaning here.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "LibreChatExec")]
pub struct Exec {
    pub code: String,
    /// `py`, `js`, `ts` or `bash`.
    pub lang: String,
    /// Arguments of the program.
    #[serde(default)]
    pub args: Option<Vec<String>>,
    /// Files of sessions that it finds below `/mnt/data`.
    #[serde(default)]
    pub files: Option<Vec<InputFile>>,
    /// Time limit in milliseconds: 60,000 by default, at most 300,000.
    #[serde(default)]
    pub timeout: Option<u64>,
}

/// The end of a program.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LibreChatExecuted")]
pub struct ExecAnswer {
    /// Session of the files that it made.
    pub session_id: String,
    pub stdout: String,
    pub stderr: String,
    /// Files that there are after it.
    pub files: Vec<FileRef>,
    /// Names of files that came with the request, and that it removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deleted_files: Vec<String>,
    pub run: Ran,
    pub language: String,
}

/// The end of a program, for older clients.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LibreChatRan")]
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    /// Both.
    pub output: String,
    /// Exit status; negative for a signal, null at the time limit.
    pub code: Option<i32>,
    /// Name of the signal that ended it, such as `SIGKILL` at a limit.
    pub signal: Option<String>,
    /// Reason for the kill.
    pub message: Option<&'static str>,
}

/// Runs a program in a sandbox of its own.
pub(crate) async fn run(sessions: &Sessions, scope: &Scope, asked: Exec) -> Result<ExecAnswer, Error> {
    let language = Language::named(&asked.lang)?;
    // A run, which admission and the daily quota limit.
    let new = ProgramSandbox::described(LIFETIME, None);
    let files = asked.files.as_deref().unwrap_or_default();
    let program = ProgramSandbox::open(sessions, scope, files, new).await?;
    if language == Language::Typescript {
        check_types(&program).await?;
    }
    program.write_program(language, &asked.code).await?;
    let command = language.command(asked.args.as_deref().unwrap_or_default());
    let process = ProgramSandbox::process(command, Some(limit(asked.timeout)));
    let collected = program.sandbox.run(process, KEPT).await?;
    let left = program.collect_files(sessions).await?;
    Ok(answer(&program, asked.lang, collected, left))
}

/// Returns the time limit for a wish in milliseconds.
pub(crate) fn limit(wish: Option<u64>) -> Timeout {
    let seconds = wish.map(|millis| millis.clamp(1, MAX_TIMEOUT) as f64 / 1000.0);
    let limit = seconds.and_then(|seconds| Timeout::try_from(seconds).ok());
    limit.unwrap_or(TIMEOUT)
}

/// Refuses TypeScript by name where Node.js would refuse it by an option.
async fn check_types(program: &ProgramSandbox) -> Result<(), Error> {
    let process = ProgramSandbox::process(HAS_TYPES.map(str::to_owned).into(), Some(TIMEOUT));
    let asked = program.sandbox.run(process, KEPT).await?;
    match asked.end.exit_code {
        0 => Ok(()),
        _ => Err(Error::NoTypescript),
    }
}

/// Returns the reason for which a limit ended a program, in the words that clients know.
pub(crate) const fn killed(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::TimedOut => Some("Time limit exceeded"),
        Outcome::MemoryExceeded => Some("Out of memory"),
        Outcome::Exited | Outcome::Signalled | Outcome::Blocked | Outcome::Cancelled | Outcome::Unknown => {
            None
        }
    }
}

/// Names of signals in the order of their numbers, from 1 on (signal(7), x86 and ARM).
const SIGNALS: &[&str] = &[
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Returns the name of the signal that ended a program. Real-time signals have their numbers.
fn signal(end: &ProcessEnd) -> Option<String> {
    if killed(end.outcome).is_some() {
        return Some("SIGKILL".to_owned());
    }
    let number = end.exit_code.checked_neg().filter(|number| *number > 0)?;
    let index = usize::try_from(number - 1).ok()?;
    Some(match SIGNALS.get(index) {
        Some(name) => format!("SIG{name}"),
        None => format!("SIG{number}"),
    })
}

/// Returns standard output, and standard error with what the reader must know beside it.
pub(crate) fn texts(collected: &Collected, left: &RemainingFiles) -> (String, String) {
    let Collected { stdout, stderr, end } = collected;
    let mut error = stderr.text.clone();
    let mut note = |note: &str| {
        if !error.is_empty() && !error.ends_with('\n') {
            error.push('\n');
        }
        error.push_str(&format!("[ringfence] {note}\n"));
    };
    if stdout.truncated || stderr.truncated {
        note("the output was cut");
    }
    if let Some(why) = killed(end.outcome) {
        note(why);
    }
    if let Some(why) = &end.error {
        note(why);
    }
    if left.cut {
        note(&format!("only the first {MAX_FILES} files are kept"));
    }
    if left.without_room > 0 {
        note(&format!(
            "files for which there is no room: {}",
            left.without_room
        ));
    }
    if left.unreadable > 0 {
        note(&format!(
            "files or directories that cannot be read: {}",
            left.unreadable
        ));
    }
    if left.unnamed > 0 {
        note(&format!(
            "files or directories that are left out, with names that are not UTF-8, longer than 255 bytes, deeper than 10 levels, or \
             have control characters or backslashes: {}",
            left.unnamed
        ));
    }
    if left.uncounted {
        note("there are more files than were looked at");
    }
    (stdout.text.clone(), error)
}

fn answer(
    program: &ProgramSandbox,
    language: String,
    collected: Collected,
    left: RemainingFiles,
) -> ExecAnswer {
    let (stdout, stderr) = texts(&collected, &left);
    let end = collected.end;
    let message = killed(end.outcome);
    ExecAnswer {
        session_id: program.session.id.clone(),
        run: Ran {
            output: format!("{stdout}{stderr}"),
            stdout: stdout.clone(),
            stderr: stderr.clone(),
            code: (end.outcome != Outcome::TimedOut).then_some(end.exit_code),
            signal: signal(&end),
            message,
        },
        stdout,
        stderr,
        files: left.files,
        deleted_files: left.deleted,
        language,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_has_a_name() {
        let check = |exit_code: i32, outcome: Outcome, expected: Option<&str>| {
            let end = ProcessEnd {
                exit_code,
                outcome,
                cpu_seconds: None,
                peak_memory_bytes: None,
                error: None,
            };
            assert_eq!(signal(&end).as_deref(), expected, "{exit_code}");
        };
        check(0, Outcome::Exited, None);
        check(137, Outcome::Exited, None);
        check(125, Outcome::Unknown, None);
        check(-1, Outcome::TimedOut, Some("SIGKILL"));
        check(-9, Outcome::MemoryExceeded, Some("SIGKILL"));
        check(-1, Outcome::Signalled, Some("SIGHUP"));
        check(-9, Outcome::Cancelled, Some("SIGKILL"));
        check(-31, Outcome::Signalled, Some("SIGSYS"));
        check(-34, Outcome::Signalled, Some("SIG34"));
    }
}
