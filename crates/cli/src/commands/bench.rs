//! `ringfence bench`: measures this machine, each figure against its peer within the same minute.

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context as _;
use ringfence_bench::{BenchContext, Figure, History, Machine, ROWS, Row, header};
use ringfence_exec::local::Warmth;
use ringfence_policy::timestamp::rfc3339;
use serde_json::json;

use crate::context::Context;
use crate::ui::Tone;
use ringfence::Failure;
use ringfence::{container, local, pyodide, settings, trust};
use ringfence_args::BenchArgs;

pub(crate) fn run(args: &BenchArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let rows = selected(&args.names)?;
    if args.list {
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let lines = rows
            .iter()
            .map(|row| format!("{:width$}  {}\n", row.name, row.about));
        context.ui.out(lines.collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let history = args.history.then(|| history(context)).transpose()?;
    if cfg!(debug_assertions) {
        context
            .ui
            .warn("this is a debug build: its figures say nothing about a release");
    }
    let before = load();
    let figures = measure(&rows, args, history.as_ref(), context)?;
    let document = document(&figures, before);
    if let Some(history) = history {
        history.keep(&document).map_err(|error| {
            Failure::refused(
                format!("cannot keep the figures: {error}"),
                "make room in the state directory, or leave --history out",
            )
        })?;
    }
    if args.json {
        context.ui.json(&document)?;
    }
    if before.is_some_and(|load| load > processors() as f64 / 2.0) {
        context
            .ui
            .warn("the machine was busy with other work before; measure again when it is idle");
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures row after row and prints each at once, since all of them take a minute.
fn measure(
    rows: &[&Row],
    args: &BenchArgs,
    history: Option<&History>,
    context: &Context,
) -> anyhow::Result<Vec<Figure>> {
    let machine = machine(context).context("preparing the measurements")?;
    let mut place = BenchContext::new(machine, args.full).context("preparing the measurements")?;
    let paint = |text: &str, met| context.ui.toned(text, if met { Tone::Good } else { Tone::Bad });
    let mut figures = Vec::new();
    if !args.json {
        context.ui.out(header())?;
    }
    for row in rows {
        let measured = row.measure(&mut place).into_iter().map(|figure| {
            let before = history.and_then(|history| history.last(&figure));
            figure.after(before)
        });
        let measured: Vec<Figure> = measured.collect();
        if !args.json {
            let lines = measured.iter().map(|figure| figure.line(paint));
            context.ui.out(lines.collect::<String>())?;
        }
        figures.extend(measured);
    }
    Ok(figures)
}

/// Opens the figures that were kept.
fn history(context: &Context) -> anyhow::Result<History> {
    let path = context.paths.make_state()?.join("bench.jsonl");
    Ok(History::open(path.clone(), build()).map_err(|error| {
        Failure::refused(
            format!("cannot read the kept figures: {}: {error}", path.display()),
            "move the file away, or leave --history out",
        )
    })?)
}

/// Returns the settings of runs on this machine.
fn machine(context: &Context) -> anyhow::Result<Machine> {
    let named = settings::settings(context)?;
    let ledger = trust::ledger(context);
    for program in named.python.iter().chain(&named.javascript) {
        if program.is_absolute() {
            trust::check_program(program, &ledger)?;
        }
    }
    let mut local = local::settings(&named, Warmth::Cold, context)?;
    local.path = trust::search_path(context)?;
    Ok(Machine {
        local,
        containers: container::settings(context)?,
        pyodide: pyodide::settings(0, context)?,
        rules: context.parts()?.host.rules(),
        ledger,
        check_program: |program, ledger| Ok(trust::check_program(program, ledger)?),
    })
}

fn selected(names: &[String]) -> Result<Vec<&'static Row>, Failure> {
    let known = |name: &String| {
        ROWS.iter().find(|row| row.name == name).ok_or_else(|| {
            Failure::usage(
                format!("there is no figure `{name}`"),
                "`ringfence bench --list` names them all",
            )
        })
    };
    if names.is_empty() {
        return Ok(ROWS.iter().collect());
    }
    names.iter().map(known).collect()
}

fn document(figures: &[Figure], load: Option<f64>) -> serde_json::Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "time": rfc3339(SystemTime::now()),
        "build": build(),
        "processors": processors(),
        "load_before": load,
        "figures": figures,
    })
}

const fn build() -> &'static str {
    if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Returns the load average of the last minute.
fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
