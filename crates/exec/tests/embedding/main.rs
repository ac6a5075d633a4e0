//! Tests programs that embed the library and omit its hook: this test binary under other names.
//!
//! Each program appends a line to `starts` when it begins. A launcher gets no argument but `__jail`, so the
//! name of the executable selects the program.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may end at once, says what it did, and starts programs"
)]

mod program;

use std::path::Path;
use std::process::{Command, Output};

/// A test with its name.
type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    (
        "a_program_with_the_hook_runs_code",
        a_program_with_the_hook_runs_code,
    ),
    (
        "one_without_it_is_refused_and_starts_nothing",
        one_without_it_is_refused_and_starts_nothing,
    ),
    (
        "one_that_calls_it_on_some_paths_ends",
        one_that_calls_it_on_some_paths_ends,
    ),
    (
        "one_that_calls_it_late_is_refused",
        one_that_calls_it_late_is_refused,
    ),
    (
        "one_that_started_a_thread_before_is_told",
        one_that_started_a_thread_before_is_told,
    ),
    (
        "one_whose_child_waits_for_ever_is_rid_of_it",
        one_whose_child_waits_for_ever_is_rid_of_it,
    ),
];

fn main() {
    if let Some(program) = program::by_name() {
        return program();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    if has("--list") {
        let listed = TESTS.iter().filter(|_| !has("--ignored"));
        return listed.for_each(|(name, _)| println!("{name}: test"));
    }
    let names: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    for (name, test) in TESTS {
        let chosen = |part: &&String| {
            if has("--exact") {
                part == name
            } else {
                name.contains(part.as_str())
            }
        };
        if names.is_empty() || names.iter().any(chosen) {
            eprintln!("{name}");
            test();
        }
    }
}

/// A program that has ended.
struct Ran {
    output: Output,
    /// Number of its starts.
    starts: usize,
}

/// Runs the program `name`.
fn run(name: &str) -> Ran {
    let place = tempfile::tempdir().unwrap();
    let binary = place.path().join(name);
    copy(&std::env::current_exe().unwrap(), &binary);
    let output = Command::new(&binary)
        .current_dir(place.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .output()
        .unwrap();
    let starts = std::fs::read_to_string(place.path().join("starts")).unwrap();
    Ran {
        output,
        starts: starts.lines().count(),
    }
}

/// Creates a hard link, or a copy if that is impossible.
fn copy(from: &Path, to: &Path) {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).unwrap();
    }
}

#[track_caller]
fn check(ran: Ran, expected: &str, most_starts: usize) {
    let Ran { output, starts } = ran;
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        told.contains(expected),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(starts <= most_starts, "began {starts} times: {told}");
}

fn a_program_with_the_hook_runs_code() {
    // Launchers do not count: they never reach the line that records a start.
    check(run("always"), "ran: hello", 1);
}

fn one_without_it_is_refused_and_starts_nothing() {
    check(run("never"), "call `ringfence::init()` first in `main`", 1);
}

fn one_that_calls_it_on_some_paths_ends() {
    // The second process is rejected, too, and exits.
    check(run("sometimes"), "whatever the arguments are", 2);
}

fn one_that_calls_it_late_is_refused() {
    check(run("late"), "call `ringfence::init()` first in `main`", 1);
}

fn one_that_started_a_thread_before_is_told() {
    check(run("threaded"), "be the program's only thread", 1);
}

fn one_whose_child_waits_for_ever_is_rid_of_it() {
    let Ran { output, starts } = run("waiting");
    let child: u32 = String::from_utf8_lossy(&output.stderr)
        .lines()
        .find_map(|line| line.strip_prefix("waiting as ")?.parse().ok())
        .unwrap();
    assert!(!Path::new(&format!("/proc/{child}")).exists());
    check(Ran { output, starts }, "whatever the arguments are", 2);
}
