//! Third-party programs, run against `ringfence serve` in a network namespace without a way out.
//!
//! Each gauge is a script in `xtask/gauges`, which succeeds if its programs find nothing. Its output goes
//! into the report.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process::{build_ringfence, program};
use crate::{report, setup};

const PLACE: &str = "target/gauges";
const SCRIPTS: &str = "xtask/gauges";
const REPORT: &str = "docs/reports/gauges.txt";

struct Gauge {
    name: &'static str,
    what: &'static str,
}

const GAUGES: &[Gauge] = &[
    Gauge {
        name: "schemathesis",
        what: "schemathesis fuzzes the routes of /openapi.json",
    },
    Gauge {
        name: "python",
        what: "a client by openapi-python-client, checked by mypy, runs a program",
    },
    Gauge {
        name: "typescript",
        what: "a client by openapi-typescript and openapi-fetch, checked by tsc, runs a program",
    },
    Gauge {
        name: "mcp",
        what: "MCP's suite of conformance, against /mcp",
    },
];

/// Runs all gauges and writes the report; or the one that `--only NAME` names, and prints what it finds.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let only = match words[..] {
        [] => None,
        ["--only", name] => Some(name),
        _ => bail!("expected nothing or `--only NAME`, found `{}`", words.join(" ")),
    };
    let chosen: Vec<&Gauge> = GAUGES
        .iter()
        .filter(|gauge| only.is_none_or(|name| name == gauge.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = GAUGES.iter().map(|gauge| gauge.name).collect();
        bail!("there is no such gauge; name one of {}", names.join(", "));
    }
    let bench = Bench::prepare(root)?;
    let mut text = format!(
        "`cargo xtask gauges` on commit {}\n",
        program(root, "git", &["rev-parse", "--short", "HEAD"])
            .stdout()?
            .trim()
    );
    let mut failed = Vec::new();
    for gauge in chosen {
        let (passed, section) = bench.measure(gauge)?;
        report::line(&section);
        text += &section;
        if !passed {
            failed.push(gauge.name);
        }
    }
    if only.is_none() {
        fs::write(root.join(REPORT), text).with_context(|| format!("write {REPORT}"))?;
        report::line(&format!("{REPORT}: written"));
    }
    if !failed.is_empty() {
        bail!("gauges that found something: {}", failed.join(", "));
    }
    Ok(())
}

/// The installed programs, and the server.
struct Bench {
    scripts: PathBuf,
    place: PathBuf,
    server: PathBuf,
}

impl Bench {
    fn prepare(root: &Path) -> Result<Self> {
        fs::create_dir_all(root.join(PLACE))?;
        let venv = format!("{PLACE}/venv");
        setup::environment(root, "gauges in Python", &venv, "xtask/gauges/requirements.txt")?;
        setup::node_packages(root, "gauges in Node", &format!("{PLACE}/node"), SCRIPTS)?;
        build_ringfence(root)?;
        Ok(Self {
            scripts: root.join(SCRIPTS),
            place: root.join(PLACE),
            server: root.join("target/debug/ringfence"),
        })
    }

    /// Runs a gauge in a directory of its own. Returns `true` if it found nothing, and its part of the report.
    fn measure(&self, gauge: &Gauge) -> Result<(bool, String)> {
        let directory = self.place.join(gauge.name);
        let _ = fs::remove_dir_all(&directory);
        let work = directory.join("work");
        fs::create_dir_all(&work)?;
        let paths = [
            &self.scripts.join("serve.sh"),
            &self.server,
            &directory,
            &self.scripts.join(format!("{}.sh", gauge.name)),
            &self.scripts,
            &self.place.join("venv"),
            &self.place.join("node"),
        ];
        let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
        let mut arguments = vec!["--net"];
        arguments.extend(paths.iter().map(AsRef::as_ref));
        let begun = Instant::now();
        let output = program(&work, "unshare", &arguments).output()?;
        let passed = output.status.success();
        let verdict = if passed { "passed" } else { "FAILED" };
        let told = [output.stdout, if passed { Vec::new() } else { output.stderr }].concat();
        let told = String::from_utf8_lossy(&told);
        let seconds = begun.elapsed().as_secs();
        let Gauge { name, what } = gauge;
        Ok((
            passed,
            format!(
                "\n{name}: {what}: {verdict} in {seconds} s\n\n{}\n",
                told.trim_end()
            ),
        ))
    }
}
