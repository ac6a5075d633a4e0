//! The execution of a cell.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ringfence_policy::{Outcome, Timeout};
use ringfence_sandbox::context::{Code, Execution};
use ringfence_sandbox::output::{Chunk, Stream};
use ringfence_sandbox::{ContextChoice, Error as SandboxError, TextDecoder};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::kernel::Shared;
use crate::message::{Channel, Header};
use crate::outputs::{Cleaner, display_of};
use crate::peer::{Act, Request};
use crate::questions::{self, failure};

/// Time limit of a cell: a person interrupts it before, or its sandbox expires.
const CELL: Timeout = Timeout::seconds(24 * 60 * 60);

/// Pieces of output that wait for the clients before the code has to.
const UNREAD: usize = 16;

/// The content of `execute_request`.
#[derive(Debug, Deserialize)]
struct Execute {
    code: String,
    #[serde(default)]
    silent: bool,
    #[serde(default = "yes")]
    store_history: bool,
    #[serde(default)]
    user_expressions: Option<BTreeMap<String, String>>,
    #[serde(default = "yes")]
    stop_on_error: bool,
}

const fn yes() -> bool {
    true
}

/// A cell under way.
struct Cell<'a> {
    shared: &'a Shared,
    parent: &'a Header,
    count: u32,
    silent: bool,
    stdout: CellOutput,
    stderr: CellOutput,
}

/// A stream of output.
struct CellOutput {
    name: &'static str,
    decoder: TextDecoder,
    cleaner: Cleaner,
}

/// Runs a cell. Returns `true` if it failed, and stops those behind it.
pub(crate) async fn execute(kernel: &Shared, request: &Request) -> bool {
    let message = &request.message;
    let asked: Execute = match message.content() {
        Ok(asked) => asked,
        Err(error) => {
            let value = format!("the content of `execute_request` is invalid: {error}");
            kernel
                .reply(request, "execute_reply", failure("ValueError", &value, None))
                .await;
            return false;
        }
    };
    let counts = asked.store_history && !asked.silent;
    let last = match counts {
        true => kernel.count.fetch_add(1, Ordering::AcqRel),
        false => kernel.count.load(Ordering::Acquire),
    };
    let mut cell = Cell::new(kernel, &message.header, last.saturating_add(1), asked.silent);
    let failed = cell.run(&asked, request).await.err();
    let mut content = match &failed {
        None => {
            let asked = asked.user_expressions.unwrap_or_default();
            json!({"status": "ok", "user_expressions": evaluate(kernel, &asked).await})
        }
        Some(error) => {
            cell.publish(
                "error",
                json!({
                    "ename": error["ename"], "evalue": error["evalue"], "traceback": error["traceback"],
                }),
            )
            .await;
            let mut content = error.clone();
            content["user_expressions"] = json!({});
            content
        }
    };
    content["execution_count"] = cell.count.into();
    content["payload"] = json!([]);
    kernel.reply(request, "execute_reply", content).await;
    failed.is_some() && asked.stop_on_error
}

async fn evaluate(kernel: &Shared, expressions: &BTreeMap<String, String>) -> Map<String, Value> {
    if expressions.is_empty() {
        return Map::new();
    }
    let answer = kernel.ask("evaluate", &json!([expressions])).await;
    questions::values(&answer, expressions.keys(), kernel.kind.forms)
}

impl<'a> Cell<'a> {
    fn new(shared: &'a Shared, parent: &'a Header, count: u32, silent: bool) -> Self {
        let printed = |name| CellOutput {
            name,
            decoder: TextDecoder::default(),
            cleaner: Cleaner::new(shared.kind.forms),
        };
        Self {
            shared,
            parent,
            count,
            silent,
            stdout: printed("stdout"),
            stderr: printed("stderr"),
        }
    }

    /// Publishes a message, unless the cell is silent.
    async fn publish(&self, kind: &str, content: Value) {
        if !self.silent {
            self.shared.broadcast(kind, self.parent, content).await;
        }
    }

    /// Runs the code to its end. The error is the content of the reply.
    async fn run(&mut self, asked: &Execute, request: &Request) -> Result<(), Value> {
        let input = json!({"code": asked.code, "execution_count": self.count});
        self.publish("execute_input", input).await;
        let described = json!({
            "kernel": self.shared.id,
            "code": asked.code,
            "user_expressions": asked.user_expressions,
        });
        let begun = request.gate.begin(Act::Run, &described);
        let _under_way = begun.map_err(|refusal| failure(refusal.kind, &refusal.message, None))?;
        let unavailable =
            |error: SandboxError| failure("SandboxError", &format!("{error} (hint: {})", error.hint()), None);
        let context = self.shared.interpreter().await.map_err(unavailable)?;
        let (sender, chunks) = mpsc::channel(UNREAD);
        let code = Code {
            code: asked.code.clone(),
            user: None,
            timeout: CELL,
            variables: Vec::new(),
        };
        let choice = ContextChoice::Id(context.clone());
        let executing = self.shared.sandbox.spawn_execution(choice, code, sender);
        self.relay(chunks, request).await;
        let executed = executing.await;
        let executed = executed.map_err(|_| failure("SandboxError", "the sandbox has ended", None))?;
        if let Err(SandboxError::NoContext(_)) = &executed {
            // It was ended from outside the kernel. The next cell starts another one.
            self.shared.forget(&context);
        }
        let execution = executed.map_err(unavailable)?;
        let rests = [&mut self.stdout, &mut self.stderr].map(|stream| {
            let rest = stream.decoder.finish();
            (stream.name, stream.cleaner.push(&rest))
        });
        for (name, rest) in rests {
            self.print(name, rest).await;
        }
        self.conclude(&execution, &context).await
    }

    /// Streams output to the client. The end of the client's key interrupts the code.
    async fn relay(&mut self, mut chunks: mpsc::Receiver<Chunk>, request: &Request) {
        let mut key_end = request.gate.key_end();
        loop {
            let chunk = tokio::select! {
                chunk = chunks.recv() => chunk,
                () = &mut key_end => return,
            };
            let Some(chunk) = chunk else { return };
            let stream = match chunk.stream {
                Stream::Stdout => &mut self.stdout,
                Stream::Stderr => &mut self.stderr,
            };
            let text = stream.decoder.push(&chunk.bytes);
            let text = stream.cleaner.push(&text);
            let name = stream.name;
            self.print(name, text).await;
        }
    }

    async fn print(&self, name: &str, text: String) {
        if !text.is_empty() {
            self.publish("stream", json!({"name": name, "text": text})).await;
        }
    }

    /// Publishes the results of an execution. The error is the content of the reply.
    async fn conclude(&mut self, execution: &Execution, context: &str) -> Result<(), Value> {
        let (shared, forms) = (self.shared, self.shared.kind.forms);
        shared.number(context, execution.execution_count, self.count);
        if execution.context_ended {
            shared.forget(context);
        }
        for result in &execution.results {
            if let Some((data, metadata)) = forms.bundle(result) {
                let display = display_of(result).filter(|_| !result.main);
                self.show(result.main, display, data, metadata).await;
            }
        }
        let has_main = execution.results.iter().any(|result| result.main);
        if let Some(value) = execution.value.as_ref().filter(|_| !has_main) {
            let data = Map::from_iter([("text/plain".to_owned(), forms.whole(value).into())]);
            self.show(true, None, data, Map::new()).await;
        }
        for warning in &execution.warnings {
            self.print("stderr", format!("[ringfence] {}\n", forms.whole(warning)))
                .await;
        }
        self.failure(execution).map_or(Ok(()), Err)
    }

    async fn show(
        &self,
        is_main: bool,
        display: Option<(&str, bool)>,
        data: Map<String, Value>,
        metadata: Map<String, Value>,
    ) {
        if self.silent {
            return;
        }
        let mut content = json!({"data": data, "metadata": metadata});
        let kind = match is_main {
            true => {
                content["execution_count"] = self.count.into();
                "execute_result"
            }
            false => {
                content["transient"] = display.map_or(json!({}), |(id, _)| json!({"display_id": id}));
                match display {
                    Some((_, true)) => "update_display_data",
                    Some((_, false)) | None => "display_data",
                }
            }
        };
        let shared = self.shared;
        shared
            .publish(shared.message(Channel::Iopub, kind, self.parent, content))
            .await;
    }

    /// Returns the content of the reply if the code failed. The guest's own report counts only if the server,
    /// too, reports a failure.
    fn failure(&self, execution: &Execution) -> Option<Value> {
        let name = match execution.outcome {
            Outcome::Exited if execution.context_ended => "Stopped",
            Outcome::Exited if execution.exit_code == 0 => return None,
            Outcome::Exited => {
                let exception = questions::exception(execution, self.shared.kind.forms);
                let Some(exception) = exception else {
                    return Some(failure("ExitStatus", &execution.exit_code.to_string(), None));
                };
                let value = self.shared.numbered(&exception.value);
                let traceback = self.shared.numbered(&exception.traceback);
                return Some(failure(&exception.name, &value, Some(&traceback)));
            }
            Outcome::TimedOut => "TimedOut",
            Outcome::MemoryExceeded => "MemoryExceeded",
            Outcome::Signalled | Outcome::Blocked | Outcome::Cancelled | Outcome::Unknown => "Stopped",
        };
        let value = match execution.context_ended {
            true => "the interpreter is lost, and with it all variables; the next cell starts a new one",
            false => "the code was interrupted",
        };
        Some(failure(name, value, None))
    }
}
