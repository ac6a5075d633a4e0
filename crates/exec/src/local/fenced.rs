//! Runs one program in a fence of its own, before any request can run.
//!
//! Probes an interpreter, which may be in a virtual environment that a guest has written. It sees the
//! system's programs and the files named in the question, and has no network, no file of the caller's and no
//! control descriptor.

use std::time::Instant;

use ringfence_policy::{Bytes, ExecutionResult, Language, Limits, Outcome, Request, Timeout};
use tokio::sync::mpsc;

use super::connection::Connection;
use super::error::Error;
use super::extra::Extra;
use super::launcher_state::Start;
use super::launcher_state::guests::GuestOptions;
use super::opener::Opener;
use super::result::assemble;
use super::run;
use super::settings::Settings;
use crate::interpreter::{ProbeError, ProbeOutput, Question};

/// Time limit: a shim may have much to do; a Python answers in a twentieth of a second.
const TIME_LIMIT: Timeout = Timeout::seconds(5);

/// Maximum length of the output: an answer takes about two kilobytes, a compiled worker a hundred.
const MAX_ANSWER: Bytes = Bytes::kib(512);

/// Runs a program and returns its output.
///
/// # Errors
/// If it cannot be fenced or started, times out, or prints too much.
pub(super) fn ask(question: &Question<'_>, settings: &Settings) -> Result<ProbeOutput, ProbeError> {
    // The caller may be a task of an async runtime, in which a second runtime cannot block.
    let asking = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ProbeError::Fence(error.to_string()))?;
        runtime.block_on(answer(question, settings))
    };
    std::thread::scope(|scope| {
        let asked = scope.spawn(asking).join();
        asked.unwrap_or_else(|_| {
            Err(ProbeError::Fence(
                "the thread that asks it has panicked".to_owned(),
            ))
        })
    })
}

async fn answer(question: &Question<'_>, settings: &Settings) -> Result<ProbeOutput, ProbeError> {
    let result = result(question, settings)
        .await
        .map_err(|error| ProbeError::Fence(error.explain()))?;
    if result.meta.outcome == Outcome::TimedOut {
        return Err(ProbeError::TimedOut(TIME_LIMIT));
    }
    if result.meta.truncated {
        return Err(ProbeError::TooLong(MAX_ANSWER.0));
    }
    Ok(ProbeOutput {
        stdout: result.stdout,
        stderr: result.stderr,
        succeeded: result.exit_code == 0,
    })
}

async fn result(question: &Question<'_>, settings: &Settings) -> Result<ExecutionResult, Error> {
    let request = request(question);
    let opener = Opener::default();
    let served = opener.open_unvouched(shown(question), settings).await?;
    let (mut guest, _) = match served
        .command_guest(&request, GuestOptions::plain(), settings)
        .await
    {
        Ok(found) => found,
        Err(error) => {
            served.close().await;
            return Err(error);
        }
    };
    let (input, read_by_it) = mpsc::channel(1);
    // The channel has room for one.
    let _ = input.try_send(question.input.to_vec());
    drop(input);
    let connection = Connection {
        stdin: Some(read_by_it),
        ..Connection::none()
    };
    let since = Instant::now();
    let finished = run::supervise(
        &mut guest,
        &request.limits,
        since,
        connection,
        std::future::pending(),
    )
    .await;
    let result = assemble(&request, &guest, finished, Start::Cold, since);
    let remains = guest.leave_to_lane();
    served.close().await;
    // A directory left on the host is removed by the sweep of the next start.
    let _ = remains.clear().await;
    Ok(result)
}

/// Returns the files shown to the program besides the system's directories.
fn shown(question: &Question<'_>) -> Extra {
    let link = |link: &crate::interpreter::Link| (link.path.clone(), link.target.clone());
    Extra {
        libraries: question.shown.to_vec(),
        links: question.links.iter().map(link).collect(),
        ..Extra::default()
    }
}

fn request(question: &Question<'_>) -> Request {
    let program = question.program.display().to_string();
    let arguments = question.arguments.iter().map(|&argument| argument.to_owned());
    Request {
        name: program.clone(),
        args: std::iter::once(program).chain(arguments).collect(),
        env: question.environment.clone(),
        limits: Limits {
            timeout: TIME_LIMIT,
            max_output: MAX_ANSWER,
            ..Limits::DEFAULT
        },
        ..Request::new(Language::Command, "")
    }
}
