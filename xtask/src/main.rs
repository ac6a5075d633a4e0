//! Development tasks: `cargo xtask ci` is the whole gate.
#![forbid(unsafe_code)]

mod bare;
mod dist;
mod docs;
mod e2b;
mod endurance;
mod fuzz;
mod gate;
mod gauges;
mod metrics;
mod new_runtime;
mod process;
mod report;
mod setup;
mod size;
mod source;
mod tidy;
mod vm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use endurance::{CHURN, Endurance, LOAD};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  check     the gate of a working change: all but tests of endurance, figures and foreign clients
  ci        the whole gate: what CI runs, and nothing weaker
  long      what takes too long for CI; writes docs/reports/long.txt
  setup     install what the tests need (Debian, as root)
  bare      list what set-up made; with --yes, remove it and run the gate
  tidy      the rules of the house that no lint knows
  docs      write the generated references again
  dist      pack the program for pip, Debian, npm and by hand, into dist/; --binary PATH takes a built one
  new-runtime  add a runtime to a copy of the tree, in three files, and run the suite of scenarios on it
  fuzz [S]  run every fuzz target for S seconds (20), with coverage feedback
  churn [S] use and replace 500 sandboxes at one server for S seconds (3600); writes docs/reports/churn.txt
  load [S]  128 clients run programs at one server over TCP for S seconds (600); writes docs/reports/load.txt
  e2b DIR…  run E2B's own tests, from checkouts of its repositories, against `ringfence serve` (as root)
  gauges [--only NAME]  run schemathesis, generated clients and MCP's suite of conformance against `ringfence serve` (as root);
            writes docs/reports/gauges.txt
  vm        functional tests in a virtual machine, with Debian's kernel and control groups v2 (Debian, as root)
  metrics   lengths of files and functions
";

fn main() -> ExitCode {
    match dispatch() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::problem(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch() -> Result<()> {
    if std::env::var_os(fuzz::WRAPPED).is_some() {
        return fuzz::compile(std::env::args().skip(1));
    }
    let root = workspace_root()?;
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    if command == "dist" {
        return dist::pack(&root, &arguments.collect::<Vec<_>>());
    }
    if command == "e2b" {
        return e2b::run(&root, &arguments.collect::<Vec<_>>());
    }
    if command == "gauges" {
        return gauges::run(&root, &arguments.collect::<Vec<_>>());
    }
    let argument = arguments.next();
    match (command.as_str(), argument.as_deref()) {
        ("check", None) => gate::check(&root),
        ("ci", None) => gate::ci(&root),
        ("long", None) => gate::long(&root),
        ("setup", None) => setup::setup(&root),
        ("bare", None) => bare::bare(&root, false),
        ("bare", Some("--yes")) => bare::bare(&root, true),
        ("tidy", None) => tidy::tidy(&root),
        ("docs", None) => docs::write(&root),
        ("new-runtime", None) => new_runtime::run(&root),
        ("fuzz", None) => fuzz::run(&root, fuzz::SECONDS),
        ("fuzz", Some(seconds)) => fuzz::run(&root, seconds.parse().context("seconds, as a whole number")?),
        ("churn", seconds) => endure(&root, &CHURN, seconds),
        ("load", seconds) => endure(&root, &LOAD, seconds),
        ("vm", None) => vm::run(&root),
        ("metrics", None) => metrics::print(&root),
        _ => bail!("{USAGE}"),
    }
}

fn endure(root: &Path, run: &Endurance, seconds: Option<&str>) -> Result<()> {
    let seconds = seconds.map(str::parse).transpose();
    run.run(
        root,
        seconds
            .context("seconds, as a whole number")?
            .unwrap_or(run.seconds),
    )
}

/// Returns the workspace's root, whatever the working directory is. Asked of cargo at run time: a checkout
/// that was moved or shares its target directory with another must not be taken for the one it was built in.
fn workspace_root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").context("run me as `cargo xtask`")?;
    let root = Path::new(&manifest).parent();
    Ok(root.context("xtask lies in the workspace")?.to_owned())
}
