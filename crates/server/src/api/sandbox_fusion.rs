//! `POST /run_code`: runs one program by SandboxFusion's protocol, which libraries for reinforcement learning speak.
//!
//! It is `POST /v1/run` in other words. A request that the protocol allows and this server cannot carry out, and a run whose end
//! nobody knows, are `SandboxError`: clients count neither as the program's failure.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ringfence_policy::{ExecutionResult, Outcome, Timeout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::content::Content;
use super::error::{ApiError, Reason};
use super::keys::Grant;
use super::rights::Right;
use super::route::{Needs, Route};
use super::state::Api;
use super::{body, run};

/// Maximum size of a request, whose files are a third larger in base64.
const MAX: usize = 32 * 1024 * 1024;

/// Default time limit of SandboxFusion's protocol.
const DEFAULT_TIMEOUT: Timeout = Timeout::seconds(10);

const MIB: u64 = 1024 * 1024;

pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        method: Method::POST,
        path: "/run_code",
        needs: Needs::Key(Right::Run),
        summary: "Run a program by SandboxFusion's protocol.",
        recorded: None,
        parameters: &[],
        request: Some(Content::json::<RunCodeRequest>().at_most(MAX)),
        answers: vec![Content::json::<RunCodeResponse>()],
        handler: |method| on(method, run_code),
    }]
}

/// A program by SandboxFusion's protocol.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunCodeRequest {
    /// Source code of the program.
    code: String,
    /// Language of the program: python, bash or nodejs. Others are answered with `SandboxError`.
    language: String,
    /// Time limit of a compiler in seconds, of no effect: no language here has one.
    #[expect(dead_code, reason = "checked and of no effect")]
    compile_timeout: Option<f64>,
    /// Time limit in seconds, 10 by default. Can shorten the server's, not extend it.
    run_timeout: Option<Timeout>,
    /// Memory limit, of no effect: the server's applies, and `message` tells a difference.
    #[serde(rename = "memory_limit_MB")]
    memory_limit: Option<i64>,
    /// Standard input of the program.
    stdin: Option<String>,
    /// Files to write before it runs: contents in base64 by path; text alone.
    #[serde(default)]
    files: BTreeMap<String, Option<String>>,
    /// Files to return, which this server does not: paths are answered with `SandboxError`.
    #[serde(default)]
    fetch_files: Vec<String>,
}

/// The end of a program by SandboxFusion's protocol.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct RunCodeResponse {
    status: RunStatus,
    /// Reason of a `SandboxError`; else warnings, such as of cut output.
    message: String,
    /// Set if the check of imports refused the program, which did not run.
    compile_result: Option<CommandRunResult>,
    /// The program's end; null if it did not run, or nobody knows.
    run_result: Option<CommandRunResult>,
    /// Null.
    executor_pod_name: Option<String>,
    /// Empty.
    files: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
enum RunStatus {
    /// The program exited with status 0.
    Success,
    /// The program failed, or was killed at a limit.
    Failed,
    /// The server did not run it, or lost it.
    SandboxError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
enum CommandRunStatus {
    Finished,
    /// Never sent: the status is `SandboxError`, without a result.
    #[expect(dead_code, reason = "part of the protocol")]
    Error,
    TimeLimitExceeded,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct CommandRunResult {
    status: CommandRunStatus,
    /// Seconds.
    execution_time: Option<f64>,
    /// Exit status; negative for a signal, null at the time limit.
    return_code: Option<i32>,
    stdout: Option<String>,
    stderr: Option<String>,
}

/// A request in the terms of the tool.
#[derive(Debug, PartialEq)]
enum ParsedRequest {
    Run {
        /// Arguments of the tool.
        arguments: Value,
        /// Memory limit in bytes.
        memory: Option<u64>,
    },
    /// A request that the protocol allows, and the reason why it is not carried out.
    Unserved(String),
}

async fn run_code(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (_, bytes) = body::read(request, &[body::JSON]).await?;
    let asked = body::off_thread(bytes, |bytes| body::parse::<RunCodeRequest>(bytes)?.read()).await?;
    let (arguments, memory) = match asked {
        ParsedRequest::Run { arguments, memory } => (arguments, memory),
        ParsedRequest::Unserved(reason) => {
            return Ok(Json(RunCodeResponse::sandbox_error(reason)).into_response());
        }
    };
    let used = api.admitted(&grant, run::TOOL, arguments).await?;
    let answer = api.invocations.start(used).answer().await?;
    // The text is the result's JSON.
    let result: ExecutionResult = body::parse_off_thread(answer.text.into()).await?;
    Ok(Json(RunCodeResponse::of(result, memory)).into_response())
}

impl RunCodeRequest {
    fn read(self) -> Result<ParsedRequest, ApiError> {
        let language = match self.language.as_str() {
            "python" | "bash" => self.language.as_str(),
            "nodejs" => "javascript",
            other => {
                let other = other.escape_debug();
                return Ok(ParsedRequest::Unserved(format!(
                    "there is no language `{other}` here; use python, bash or nodejs"
                )));
            }
        };
        if let Some(path) = self.fetch_files.first() {
            return Ok(ParsedRequest::Unserved(format!(
                "`fetch_files` is not served, and names `{}`; print what matters",
                path.escape_debug()
            )));
        }
        let mut files = BTreeMap::new();
        for (path, content) in &self.files {
            // As in the protocol, a file without content is none.
            let Some(content) = content else { continue };
            let bytes = BASE64_STANDARD.decode(content).map_err(|error| {
                ApiError::new(
                    Reason::InvalidArguments,
                    format!(
                        "`/files`: the content of `{}` is not base64: {error}",
                        path.escape_debug()
                    ),
                    "encode it with the alphabet of RFC 4648, section 4",
                )
            })?;
            let Ok(text) = String::from_utf8(bytes) else {
                return Ok(ParsedRequest::Unserved(format!(
                    "`files` takes text in UTF-8, and `{}` is none; have the program decode it",
                    path.escape_debug()
                )));
            };
            files.insert(path, text);
        }
        let memory = self.memory_limit.and_then(|limit| u64::try_from(limit).ok());
        Ok(ParsedRequest::Run {
            arguments: json!({
                "code": self.code,
                "language": language,
                "timeout": self.run_timeout.unwrap_or(DEFAULT_TIMEOUT).as_duration().as_secs_f64(),
                "stdin": self.stdin,
                "files": files,
            }),
            memory: memory
                .filter(|limit| *limit > 0)
                .map(|limit| limit.saturating_mul(MIB)),
        })
    }
}

impl RunCodeResponse {
    fn sandbox_error(message: String) -> Self {
        Self {
            status: RunStatus::SandboxError,
            message,
            compile_result: None,
            run_result: None,
            executor_pod_name: None,
            files: BTreeMap::new(),
        }
    }

    /// Translates the result of a program that asked for so many bytes of memory.
    fn of(result: ExecutionResult, memory: Option<u64>) -> Self {
        let outcome = result.meta.outcome;
        let message = message(&result, memory);
        let status = match (outcome, result.exit_code) {
            (Outcome::Exited, 0) => RunStatus::Success,
            (Outcome::Exited, _)
            | (Outcome::TimedOut | Outcome::MemoryExceeded | Outcome::Signalled | Outcome::Blocked, _) => {
                RunStatus::Failed
            }
            (Outcome::Cancelled | Outcome::Unknown, _) => {
                return Self::sandbox_error(format!(
                    "the program's end is unknown: {}",
                    result.stderr.trim_end()
                ));
            }
        };
        let has_time = outcome != Outcome::TimedOut;
        let command = CommandRunResult {
            status: match has_time {
                true => CommandRunStatus::Finished,
                false => CommandRunStatus::TimeLimitExceeded,
            },
            execution_time: Some(result.duration),
            return_code: has_time.then_some(result.exit_code),
            stdout: Some(result.stdout),
            stderr: Some(result.stderr),
        };
        // The check of imports is what a compiler is to the protocol: it refused the program, and every run of it.
        let (compile_result, run_result) = match outcome {
            Outcome::Blocked => (Some(command), None),
            _ => (None, Some(command)),
        };
        Self {
            status,
            message,
            compile_result,
            run_result,
            executor_pod_name: None,
            files: BTreeMap::new(),
        }
    }
}

/// Joins what a client must know beside the end: cut output, warnings, and another memory limit than it asked for.
fn message(result: &ExecutionResult, memory: Option<u64>) -> String {
    let meta = &result.meta;
    let cut = meta.truncated.then(|| "the output was cut".to_owned());
    let applied = meta.resource_limits.memory_bytes;
    let other_limit = memory.filter(|asked| Some(*asked) != applied).map(|asked| {
        let applied = applied.map_or("no limit for all processes together".to_owned(), |applied| {
            format!("{} MiB", applied / MIB)
        });
        format!(
            "`memory_limit_MB` of {} has no effect: the server's limit is {applied}",
            asked / MIB
        )
    });
    let all = cut
        .into_iter()
        .chain(meta.warnings.iter().cloned())
        .chain(other_limit);
    all.collect::<Vec<_>>().join("\n")
}
