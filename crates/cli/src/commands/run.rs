//! `ringfence run`.

use std::fs::File;
use std::io::{Read, Write};
use std::process::ExitCode;

use ringfence_policy::{ExecutionResult, Outcome};
use ringfence_runtime::execute::{self, Order, Rules, execute};
use ringfence_runtime::local::{Chunk, Connection, Local, Stream, Warmth};
use tokio::sync::{mpsc, watch};

use crate::args::RunArgs;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::high::{self, Report, RunPlan, StdinSource};
use crate::local;
use crate::ui::Ui;

/// Chunks of output or input under way at once.
const IN_FLIGHT: usize = 16;

pub(crate) fn run(args: &RunArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let plan = high::plan(args, context)?;
    if plan.fence == high::Fence::Unfenced {
        context
            .ui
            .warn("running unfenced: the program can do everything that you can do");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(run_here(&plan, context))?;
    finish(&result, plan.report, plan.output_dir.is_some(), context.ui)
}

/// Runs the plan in this process.
async fn run_here(plan: &RunPlan, context: &Context) -> anyhow::Result<ExecutionResult> {
    let rules = local::rules(&plan.settings, context);
    let backend = Local::new(local::settings(&plan.settings, Warmth::Cold, context)?);
    let result = run_connected(plan, &backend, &rules).await;
    let closed = backend.close().await;
    let result = result.map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
    closed.map_err(|error| Failure::refused(error.to_string(), error.hint()))?;
    Ok(result)
}

async fn run_connected(
    plan: &RunPlan,
    backend: &Local,
    rules: &Rules,
) -> Result<ExecutionResult, execute::Error> {
    let order = Order {
        request: plan.request.clone(),
        runtime: plan.runtime,
        fence: plan.fence.into(),
        output_directory: plan.output_dir.clone(),
    };
    let (cancel, cancelled) = watch::channel(false);
    let (output, printer) = match plan.report {
        Report::Json => (None, None),
        Report::Stream => {
            let (sender, receiver) = mpsc::channel(IN_FLIGHT);
            (
                Some(sender),
                Some(std::thread::spawn(move || print_chunks(receiver))),
            )
        }
    };
    let connection = Connection {
        stdin: stdin_of(&plan.stdin),
        output,
        cancelled: Some(cancelled),
    };
    let running = execute(backend, rules, &order, connection);
    tokio::pin!(running);
    let result = tokio::select! {
        result = &mut running => result,
        () = interrupted() => {
            cancel.send_replace(true);
            running.await
        }
    };
    if let Some(printer) = printer {
        // It ends with the last chunk; whatever it could not print, nobody was there to read.
        let _ = printer.join();
    }
    result
}

/// Ends when the person, or the system, wants us to stop.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut hang_up)) =
        (signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
}

/// What the program reads, fed by a thread of its own: reading a terminal or a pipe may take for ever.
fn stdin_of(source: &StdinSource) -> Option<mpsc::Receiver<Vec<u8>>> {
    let mut reader: Box<dyn Read + Send> = match source {
        StdinSource::Empty => return None,
        StdinSource::Inherit => Box::new(std::io::stdin()),
        // Checked when the plan was made; one that has vanished since reads as empty.
        StdinSource::File(path) => Box::new(File::open(path).ok()?),
    };
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            if sender.blocking_send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    Some(receiver)
}

fn print_chunks(mut chunks: mpsc::Receiver<Chunk>) {
    while let Some(chunk) = chunks.blocking_recv() {
        let printed = match chunk.stream {
            Stream::Stdout => print_to(&mut std::io::stdout(), &chunk.bytes),
            Stream::Stderr => print_to(&mut std::io::stderr(), &chunk.bytes),
        };
        if printed.is_err() {
            return;
        }
    }
}

fn print_to(stream: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

fn finish(result: &ExecutionResult, report: Report, delivered: bool, ui: Ui) -> anyhow::Result<ExitCode> {
    match report {
        Report::Json => {
            let mut text = serde_json::to_string_pretty(result)?;
            text.push('\n');
            ui.out(text)?;
        }
        Report::Stream => tell(result, delivered, ui)?,
    }
    Ok(ExitCode::from(exit::status_of(result)))
}

/// What the streams could not say.
fn tell(result: &ExecutionResult, delivered: bool, ui: Ui) -> anyhow::Result<()> {
    let limits = &result.meta.resource_limits;
    match result.meta.outcome {
        Outcome::TimedOut => ui.error(&format!("execution timed out after {}s", limits.timeout)),
        Outcome::MemoryExceeded => {
            ui.error(&format!(
                "killed: the memory limit of {} bytes was exceeded",
                limits.memory_bytes
            ));
        }
        Outcome::Cancelled => ui.error("execution cancelled"),
        Outcome::Unknown => ui.error("the executor broke; nothing is known of the program's end"),
        Outcome::Blocked => ui.err(&result.stderr)?,
        Outcome::Exited | Outcome::Signalled => {}
    }
    for warning in &result.meta.warnings {
        ui.warn(warning);
    }
    if !delivered && !result.meta.output_files.is_empty() {
        let names: Vec<&str> = result
            .meta
            .output_files
            .iter()
            .map(|file| file.path.as_str())
            .collect();
        ui.hint(&format!(
            "the program left {} in /output; pass `--output DIR` to keep it",
            names.join(", ")
        ));
    }
    Ok(())
}
