//! `run_code`: runs a program and returns the full result.

use ringfence_policy::hints::hints;
use ringfence_policy::{ExecutionResult, RemoteLanguage, RemoteRequest, RemoteRun};

use crate::pictures::Pictures;
use crate::render::ModelOutput;
use crate::toolbox::{Answer, Call, Clock, Effects, ErrorKind, Tool, ToolError};

pub(super) struct RunCode;

impl Tool for RunCode {
    const NAME: &'static str = "run_code";
    const TITLE: &'static str = "Run code";
    const DESCRIPTION: &'static str = "Runs a Python, bash or JavaScript program in an isolated sandbox, by default without a network, and returns what \
        it printed, its errors and its exit code. Use it to compute, to try code, and for shell lines (bash). With `session`, Python keeps \
        its variables from call to call and returns the value of the last expression; figures are shown. Files: it starts in \
        /workspace, which the file tools share; /output is the conversation's: later calls find what is there, file_read reads it, and new pictures are shown. Long \
        output is cut: write it to /output and read parts of it.";
    const REMOTE_DESCRIPTION: &'static str = "Runs a Python, bash or JavaScript program in an isolated sandbox, by default without a network, and returns \
        what it printed, its errors and its exit code. Use it to compute, to try code, and for shell lines (bash). With `session`, Python keeps \
        its variables and files from call to call and returns the value of the last expression; figures are shown. Otherwise it starts in a \
        /workspace that has your `files` alone, and its files and pictures end with it. Long output is cut: print what matters.";
    const EFFECTS: Effects = Effects::Writes;
    const ON_HOST: bool = false;
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
        call.check_runtime(runtime)?;
        let supplied = call.supply(&mut request, runtime, files).await?;
        let mut executed = call.execute(request, runtime, stdin).await?;
        drop(supplied);
        let pictures = Pictures::of(call, &executed).await;
        let result = &mut executed.result;
        let hints = hints(result).into_iter().filter_map(|hint| hint.model);
        result.meta.hints.extend(hints);
        let text = ModelOutput::of_run(result, &pictures.left_out).text();
        for rich in &mut result.meta.results {
            rich.keep_text();
        }
        Ok(Answer::value(result)?.seen_as(text, pictures.shown))
    }
}
