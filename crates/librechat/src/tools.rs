//! Programs that call their client's tools, in rounds.
//!
//! A call goes over the program's bridge, and the program waits for it, as for a host function. The request that has begun the program
//! is answered with the calls that wait; the next one brings their results, and the program goes on.

mod functions;
mod protocol;
mod running;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;

use ringfence_policy::{Scope, Timeout};
use ringfence_sandbox::output::Collected;
use serde_json::{Value, json};

use crate::error::Error;
use crate::exec::{killed, limit, texts};
use crate::language::Language;
use crate::program_sandbox::{ProgramSandbox, RemainingFiles};
use crate::session::{new_id, shown};
use crate::sessions::Sessions;
use functions::{ToolFunction, bash, python};
pub use protocol::{Programmatic, ProgrammaticAnswer, Status, Tool, ToolCall, ToolResult};
use running::{Round, Running};
use waiting::Waiting;

/// Lifetime of a program's sandbox from each request on: a client that does not come back ends it.
const LIFETIME: Timeout = Timeout::seconds(10 * 60);

/// Place of the description of tools, for the program's beginning.
const TOOLS: &str = "/tmp/.tools.json";

/// The programs with tools of a server.
#[derive(Debug)]
pub(crate) struct Tools {
    sessions: Arc<Sessions>,
    waiting: Waiting,
}

/// Forgets a token at the end of its request, unless its program waits again.
struct Taken<'a> {
    waiting: &'a Waiting,
    token: String,
    is_put: bool,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.is_put {
            self.waiting.forget(&self.token);
        }
    }
}

impl Tools {
    pub(crate) fn new(sessions: Arc<Sessions>) -> Self {
        Self {
            sessions,
            waiting: Waiting::default(),
        }
    }

    /// Ends the programs of an owner that wait.
    pub(crate) fn clear(&self, scope: &Scope) {
        self.waiting.clear(scope);
    }

    pub(crate) fn close(&self) {
        self.waiting.close();
    }

    /// Begins a program with tools, or continues one, until it calls tools or ends.
    pub(crate) async fn run(
        &self,
        scope: &Scope,
        most: Option<usize>,
        asked: Programmatic,
    ) -> Result<ProgrammaticAnswer, Error> {
        match asked
            .continuation_token
            .as_deref()
            .filter(|token| !token.is_empty())
        {
            Some(token) => {
                let results = asked.tool_results.unwrap_or_default();
                let running = self.waiting.take(scope, token)?;
                if let Some(unknown) = running.unknown(&results) {
                    let error = Error::NoCall(shown(unknown));
                    self.waiting.put(scope, token.to_owned(), running);
                    return Err(error);
                }
                self.go_on(scope, token.to_owned(), running, results).await
            }
            None => {
                let running = self.begin_program(scope, most, asked).await?;
                self.go_on(scope, new_id('c')?, Box::new(running), Vec::new())
                    .await
            }
        }
    }

    async fn begin_program(
        &self,
        scope: &Scope,
        most: Option<usize>,
        asked: Programmatic,
    ) -> Result<Running, Error> {
        let named = asked.language.or(asked.lang);
        let language = named.map_or(Ok(Language::Python), |name| Language::named(&name))?;
        let code = asked.code.filter(|code| !code.is_empty());
        let code = code
            .ok_or_else(|| Error::Invalid("expected `code` or `continuation_token`, got none".to_owned()))?;
        let tools = ToolFunction::all(asked.tools.unwrap_or_default(), language)?;
        let new = ProgramSandbox::described(LIFETIME, most);
        let files = asked.files.as_deref().unwrap_or_default();
        let program = ProgramSandbox::open(&self.sessions, scope, files, new).await?;
        program.write_program(language, &code).await?;
        let command = match language {
            Language::Bash => vec!["bash".to_owned(), "-c".to_owned(), bash(&tools)],
            _ => {
                let entries: Vec<Value> = tools.iter().map(ToolFunction::entry).collect();
                program
                    .write(TOOLS.to_owned(), &json!(entries).to_string())
                    .await?;
                vec!["python3".to_owned(), "-c".to_owned(), python()]
            }
        };
        let names: BTreeSet<String> = tools.into_iter().map(|tool| tool.tool.name).collect();
        Running::start(program, command, names, limit(asked.timeout)).await
    }

    async fn go_on(
        &self,
        scope: &Scope,
        token: String,
        mut running: Box<Running>,
        results: Vec<ToolResult>,
    ) -> Result<ProgrammaticAnswer, Error> {
        let mut taken = Taken {
            waiting: &self.waiting,
            token,
            is_put: false,
        };
        running.extend(&self.sessions.sandboxes, scope, LIFETIME);
        match running.round(results).await {
            Round::Calls(calls) => {
                let session = running.program.session.id.clone();
                taken.is_put = true;
                self.waiting.put(scope, taken.token.clone(), running);
                Ok(ProgrammaticAnswer {
                    continuation_token: Some(taken.token.clone()),
                    tool_calls: calls,
                    ..ProgrammaticAnswer::new(Status::ToolCallRequired, session)
                })
            }
            Round::Ended(collected) => {
                let left = running.program.collect_files(&self.sessions).await?;
                Ok(ended(&running.program, &collected, left))
            }
        }
    }
}

fn ended(program: &ProgramSandbox, collected: &Collected, left: RemainingFiles) -> ProgrammaticAnswer {
    let (stdout, stderr) = texts(collected, &left);
    let code = collected.end.exit_code;
    let error = match killed(collected.end.outcome) {
        Some(why) => Some(why.to_owned()),
        None => (code != 0).then(|| format!("Sandbox exited with code {code}")),
    };
    let status = match error {
        Some(_) => Status::Error,
        None => Status::Completed,
    };
    ProgrammaticAnswer {
        stdout: Some(stdout),
        stderr: Some(stderr),
        files: Some(left.files),
        deleted_files: left.deleted,
        error,
        ..ProgrammaticAnswer::new(status, program.session.id.clone())
    }
}
