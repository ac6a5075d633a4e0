//! `run_code`: runs a program and returns the full result.

use std::collections::BTreeMap;

use ringfence_policy::hints::hints;
use ringfence_policy::{ExecutionResult, Language, RuntimeKind, SessionId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::timeout::Timeout;
use crate::kernel::{Answer, Call, Clock, Effects, ErrorKind, Tool, ToolError};

pub(super) struct RunCode;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// Source code of the program.
    code: String,
    /// Language of the program: python, bash or javascript.
    #[serde(default)]
    language: LanguageArg,
    /// Runtime that runs it; the configured one by default. `pyodide` imports only Python's standard library
    /// and the packages that the operator installed.
    runtime: Option<RuntimeKind>,
    /// Timeout in seconds, or with a unit such as "500ms". Can shorten the limit, not extend it.
    #[expect(dead_code, reason = "the kernel reads it")]
    timeout: Option<Timeout>,
    /// Name of a session: a Python interpreter that keeps variables and imports between calls. Created on
    /// first use.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"))]
    session: Option<String>,
    /// Standard input of the program.
    stdin: Option<String>,
    /// Files to write to the workspace before it runs: contents by path.
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// Languages that a caller can choose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum LanguageArg {
    #[default]
    Python,
    Bash,
    Javascript,
}

impl Tool for RunCode {
    const NAME: &'static str = "run_code";
    const TITLE: &'static str = "Run code";
    const DESCRIPTION: &'static str = "Runs a Python, bash or JavaScript program in an isolated sandbox without a network. Returns \
        stdout, stderr, the exit code, how it ended, and which layers of isolation held. With `session`, Python keeps \
        its variables and imports from call to call, and the value of the last expression comes back.";
    const EFFECTS: Effects = Effects::Writes;
    const CLOCK: Clock = Clock::Runner;
    type Arguments = Arguments;
    type Output = ExecutionResult;

    async fn call(call: &Call<'_>, arguments: Arguments) -> Result<Answer, ToolError> {
        let language = match arguments.language {
            LanguageArg::Python => Language::Python,
            LanguageArg::Bash => Language::Bash,
            LanguageArg::Javascript => Language::Javascript,
        };
        let runtime = arguments.runtime;
        let mut request = call.request(language);
        request.code = arguments.code;
        if let Some(name) = &arguments.session {
            let session = session(name)?;
            if language != Language::Python {
                return Err(ToolError::new(
                    ErrorKind::InvalidArguments,
                    "`/session`: a session is a Python interpreter",
                    "leave `session` out, or use the language python",
                ));
            }
            call.enter(session, &mut request);
        }
        let supplied = call.supply(&mut request, runtime, arguments.files).await?;
        let stdin = arguments.stdin.map(String::into_bytes);
        let mut result = call.execute(request, runtime, stdin).await?;
        drop(supplied);
        let hints = hints(&result).into_iter().filter_map(|hint| hint.model);
        result.meta.hints.extend(hints);
        Answer::value(&result)
    }
}

fn session(name: &str) -> Result<SessionId, ToolError> {
    name.parse().map_err(|error| {
        ToolError::new(
            ErrorKind::InvalidArguments,
            format!("`/session`: {error}"),
            "name the session with letters, digits, `_` and `-`",
        )
    })
}
