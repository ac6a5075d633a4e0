//! `run_python_code`: runs Python and returns its output as text.

use ringfence_exec::local::is_for_operators;
use ringfence_exec::output;
use ringfence_policy::hints::hints;
use ringfence_policy::{AskedTimeout, ExecutionResult, RemoteLanguage, RemoteRequest, RemoteRun};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::toolbox::{Answer, Call, Clock, Effects, Tool, ToolError};

pub(super) struct RunPythonCode;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Source code of the Python program.
    code: String,
    /// Timeout in seconds above 0, or with a unit such as "500ms". Can shorten the limit, not extend it.
    #[expect(dead_code, reason = "the toolbox reads it")]
    timeout: Option<AskedTimeout>,
}

impl Tool for RunPythonCode {
    const NAME: &'static str = "run_python_code";
    const TITLE: &'static str = "Run Python";
    const DESCRIPTION: &'static str = "Runs a Python program in an isolated sandbox and returns what it printed, or the error. Use it \
        for short computations; run_code has sessions, files and other languages. By default there is no network. Each call starts afresh: print \
        what you want to see.";
    const EFFECTS: Effects = Effects::Writes;
    const ON_HOST: bool = false;
    const CLOCK: Clock = Clock::Runner;
    type Arguments = Arguments;
    type Output = ();

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let asked = RemoteRequest::new(RemoteLanguage::Python, arguments.code);
        let RemoteRun { request, runtime, .. } = call.accept(asked);
        // The call itself never fails: an error is part of the text.
        Ok(Answer::text(match call.execute(request, runtime, None).await {
            Ok(executed) => rendered(&executed.result),
            Err(error) => format!(
                "error: {}: {}\nhint: {}",
                error.kind.as_str(),
                error.message,
                error.hint
            ),
        }))
    }
}

/// Renders stdout, stderr, exit code, warnings and hint.
fn rendered(result: &ExecutionResult) -> String {
    let mut text = result.stdout.clone();
    let mut add = |part: &str| output::add(&mut text, part);
    if !result.stderr.is_empty() {
        add(&result.stderr);
    }
    if result.exit_code != 0 {
        add(&format!("[exit code {}]", result.exit_code));
    }
    let warnings = result.meta.warnings.iter();
    for warning in warnings.filter(|warning| !is_for_operators(warning)) {
        add(&format!("[warning: {warning}]"));
    }
    for hint in hints(result).into_iter().filter_map(|hint| hint.model) {
        add(&format!("[hint: {hint}]"));
    }
    text
}
