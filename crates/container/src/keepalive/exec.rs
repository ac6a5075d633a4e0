//! Runs one call through the engine's exec API, in a container without our init.

use ringfence_exec::supervise::{Interruption, ProgramExit, from_shell};
use ringfence_policy::{Language, Request};

use crate::init::Finished;
use crate::run_error::RunError;
use crate::supervisor::Container;

/// Runs a request. An interruption removes the whole container: an engine cannot kill one process of it.
/// There is no standard input and no live output.
pub(super) async fn run(
    container: &Container,
    request: &Request,
    limit_reached: impl Future<Output = Interruption>,
) -> Result<Finished, RunError> {
    let command = command(request)?;
    let mut interruption = None;
    let interrupted = async { interruption = Some(limit_reached.await) };
    let keep = request.limits.max_output;
    let ran = container.run(&command, interrupted, keep).await?;
    if interruption.is_some() {
        container.ended_or_lost().await;
    }
    let exit = ProgramExit {
        status: ran.status.map(from_shell),
        // An engine tells that of a container only.
        out_of_memory: false,
        interruption,
    };
    Ok(Finished::of(exit, ran.stdout, ran.stderr))
}

fn command(request: &Request) -> Result<Vec<String>, RunError> {
    let program = match request.language {
        Language::Python => "python3",
        Language::Bash => "bash",
        Language::Javascript | Language::Command => {
            return Err(RunError::LocalOnly("a program in this language"));
        }
    };
    let variables = request
        .env
        .iter()
        .map(|(name, value)| format!("{}={value}", name.as_str()));
    let words = [program, "-c", &request.code].map(str::to_owned);
    let first = (!request.env.is_empty()).then(|| "env".to_owned());
    Ok(first.into_iter().chain(variables).chain(words).collect())
}
