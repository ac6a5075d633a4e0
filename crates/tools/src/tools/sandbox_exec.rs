//! `sandbox_exec`: runs Python or bash in a persistent container.

use ringfence_policy::{AskedTimeout, ExecutionResult, RemoteLanguage, RemoteRequest};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::render::{self, ModelOutput};
use crate::toolbox::{Answer, Call, Clock, Effects, Parts, Tool, ToolError};

pub(super) struct SandboxExec;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Language of the program: python or bash.
    language: LanguageArg,
    /// Source code of the program.
    code: String,
    /// Timeout in seconds above 0, or with a unit such as "500ms". Can shorten the limit, not extend it.
    #[expect(dead_code, reason = "the toolbox reads it")]
    timeout: Option<AskedTimeout>,
}

/// Languages that the sandbox image has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum LanguageArg {
    Python,
    Bash,
}

impl Tool for SandboxExec {
    const NAME: &'static str = "sandbox_exec";
    const TITLE: &'static str = "Run code in a container";
    const DESCRIPTION: &'static str = "Runs a Python or bash program in a container, and returns what it printed, its errors and its exit code. \
        Use it only for programs of the container's image; otherwise `run_code` is faster. Files of the workspace are at /workspace. What it writes to /output can be read with file_read by the same path. \
        Variables do not last from call to call, and files elsewhere, as in /tmp, may be gone at any call. Long output \
        is cut: write it to /output and read parts of it.";
    const REMOTE_DESCRIPTION: &'static str = "Runs a Python or bash program in a container, and returns what it printed, its errors and its exit code. \
        Use it only for programs of the container's image; otherwise `run_code` is faster. Variables do not last from call to call, and files may be gone at any call. Long output is cut: print what matters.";
    const EFFECTS: Effects = Effects::Writes;
    const ON_HOST: bool = false;
    const CLOCK: Clock = Clock::Runner;
    type Arguments = Arguments;
    type Output = ExecutionResult;

    fn is_offered(parts: &Parts) -> bool {
        parts.sandbox.is_some()
    }

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let language = match arguments.language {
            LanguageArg::Python => RemoteLanguage::Python,
            LanguageArg::Bash => RemoteLanguage::Bash,
        };
        let asked = RemoteRequest::new(language, arguments.code);
        let mut result = call.in_sandbox(asked).await?;
        let text = ModelOutput::from(&result).text();
        // Clients may show a model both the text and the structured result.
        for stream in [&mut result.stdout, &mut result.stderr] {
            stream.truncate(render::beginning(stream, render::MOST).len());
        }
        Answer::both(text, &result)
    }
}
