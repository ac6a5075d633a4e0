//! `ringfence bench`: the list of benchmarks, and the shape of its output. The figures themselves are not
//! tested here.

use serde_json::Value;

use crate::support::{Output, entries, finish};
use crate::world::World;

fn bench(world: &World, args: &[&str]) -> Output {
    finish(world.command(&[], ["bench"]).args(args), b"")
}

#[test]
fn the_list_names_every_figure_and_measures_none() {
    let world = World::here();
    let list = bench(&world, &["--list"]);
    let names: Vec<_> = list
        .ok()
        .lines()
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    let expected = [
        "start",
        "python",
        "run-cold",
        "run-engine",
        "tool-engine",
        "engine-request",
        "monty",
        "http-run",
        "kernel",
        "policy",
        "session-evaluation",
        "session-fork",
        "packages",
        "sandbox-create",
        "sandbox-image",
        "sandbox-exec",
        "sandbox-context",
        "python-package",
        "sandbox-file",
        "sandbox-fork",
        "sandbox-many",
        "throughput",
        "batch",
        "mcp-call",
        "bridge-call",
        "tool-loop",
        "fresh-bash",
        "fresh-node",
        "idle-worker",
        "engine-idle",
        "pyodide-run",
        "pyodide-worker",
        "container-call",
        "container-run",
        "container-back-to-back",
        "container-tool",
        "container-start",
        "container-idle",
        "timeout-overshoot",
        "flood",
    ];
    assert_eq!(names, expected);
    assert_eq!(bench(&world, &["--list", "python"]).ok().lines().count(), 1);
}

#[test]
fn a_figure_that_does_not_exist_is_wrong_usage() {
    let world = World::here();
    bench(&world, &["speed"]).refused(2, "there is no figure `speed`");
}

#[test]
fn figures_come_as_json_with_their_samples_and_an_honest_verdict() {
    let world = World::here();
    let output = bench(&world, &["--json", "start", "engine-idle"]);
    let document: Value = serde_json::from_str(output.ok()).unwrap();
    assert!(["debug", "release"].contains(&document["build"].as_str().unwrap()));
    assert!(document["processors"].as_u64().unwrap() > 0);
    let figures = document["figures"].as_array().unwrap();
    let names: Vec<_> = figures
        .iter()
        .map(|figure| figure["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["start", "engine-idle"]);
    for (figure, unit, target) in [(&figures[0], "ms", 3.0), (&figures[1], "MiB", 25.0)] {
        let value = figure["value"].as_f64().unwrap();
        assert!(value > 0.0, "{figure}");
        assert_eq!(figure["unit"], unit);
        assert_eq!(figure["target"]["at_most"], target);
        assert_eq!(figure["met"], value <= target, "{figure}");
    }
    let ours = &figures[0]["ours"];
    let (min, median, p99) = (
        ours["min"].as_f64(),
        ours["median"].as_f64(),
        ours["p99"].as_f64(),
    );
    assert!(min > Some(0.0) && min <= median && median <= p99, "{ours}");
    assert!(ours["count"].as_u64() > Some(1));
    // Interleaved, so equally many.
    assert_eq!(figures[0]["peer"]["count"], ours["count"]);
}

#[test]
fn kept_figures_are_compared_with_the_next() {
    let world = World::here();
    let line = |output: &Output| output.ok().lines().any(|line| line.contains("kept before: "));
    assert!(!line(&bench(&world, &["--history", "start"])));
    let again = bench(&world, &["--history", "--json", "start"]);
    let document: Value = serde_json::from_str(again.ok()).unwrap();
    assert!(
        document["figures"][0]["before"].as_f64() > Some(0.0),
        "{document}"
    );
    assert!(line(&bench(&world, &["--history", "start"])));
    // Nobody asked for the history.
    assert!(!line(&bench(&world, &["start"])));
    let kept = std::fs::read_to_string(world.dir.path("state/ringfence/bench.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 3);
}

#[test]
fn a_history_that_cannot_be_read_measures_nothing() {
    let world = World::here();
    bench(&world, &["--history", "start"]).ok();
    let kept = world.dir.path("state/ringfence/bench.jsonl");
    std::fs::remove_file(&kept).unwrap();
    std::fs::create_dir(&kept).unwrap();
    let output = bench(&world, &["--history", "start"]);
    output.refused(125, "bench.jsonl: Is a directory");
}

#[test]
fn without_montys_package_its_figures_say_so() {
    let world = World::here();
    let output = bench(&world, &["--json", "monty"]);
    let document: Value = serde_json::from_str(output.ok()).unwrap();
    let figure = &document["figures"][0];
    assert_eq!(figure["value"], Value::Null, "{document}");
    let note = figure["note"].as_str().unwrap();
    assert!(note.contains("no package `pydantic-monty`"), "{note}");
}

#[test]
fn the_table_has_a_line_for_each_figure_and_nothing_is_left_behind() {
    let world = World::here();
    // No process has this pid: a leftover of a killed measurement.
    std::fs::create_dir(world.dir.path("tmp/ringfence-bench.4294967295")).unwrap();
    let output = bench(&world, &["python", "engine-idle"]);
    let lines: Vec<_> = output.ok().lines().collect();
    assert!(lines[0].starts_with("FIGURE "), "{output:?}");
    assert!(
        lines[1].starts_with("python ") && lines[1].contains("python"),
        "{output:?}"
    );
    assert!(
        lines[2].starts_with("engine-idle ") && lines[2].contains("≤ 25"),
        "{output:?}"
    );
    assert_eq!(entries(&world.dir.path("tmp")), Vec::<String>::new());
    assert_eq!(entries(&world.dir.path("run")), Vec::<String>::new());
}
