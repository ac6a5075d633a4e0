//! `run_code`: runs a program and returns the full result.

use ringfence_policy::hints::hints;
use ringfence_policy::{ExecutionResult, RemoteLanguage, RemoteRequest, RemoteRun};

use crate::toolbox::{Answer, Call, Clock, Effects, ErrorKind, Tool, ToolError};

pub(super) struct RunCode;

impl Tool for RunCode {
    const NAME: &'static str = "run_code";
    const TITLE: &'static str = "Run code";
    const DESCRIPTION: &'static str = "Runs a Python, bash or JavaScript program in an isolated sandbox without a network. Returns \
        stdout, stderr, the exit code, how it ended, and which layers of isolation held. With `session`, Python keeps \
        its variables and imports from call to call, and the value of the last expression comes back.";
    const EFFECTS: Effects = Effects::Writes;
    const CLOCK: Clock = Clock::Runner;
    type Arguments = RemoteRequest;
    type Output = ExecutionResult;

    async fn call(call: &Call<'_>, arguments: RemoteRequest) -> Result<Answer, ToolError> {
        if arguments.session.is_some() && arguments.language != RemoteLanguage::Python {
            return Err(ToolError::new(
                ErrorKind::InvalidArguments,
                "`/session`: a session is a Python interpreter",
                "leave `session` out, or use the language python",
            ));
        }
        let RemoteRun {
            mut request,
            runtime,
            stdin,
            files,
        } = call.accept(arguments);
        let supplied = call.supply(&mut request, runtime, files).await?;
        let mut result = call.execute(request, runtime, stdin).await?;
        drop(supplied);
        let hints = hints(&result).into_iter().filter_map(|hint| hint.model);
        result.meta.hints.extend(hints);
        for rich in &mut result.meta.results {
            rich.keep_text();
        }
        Answer::value(&result)
    }
}
