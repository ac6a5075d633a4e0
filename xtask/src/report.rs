//! The only place that prints.

use std::time::Duration;

/// One line for the person at the terminal.
#[expect(clippy::print_stdout, reason = "this is what xtask is for")]
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// One line on standard error.
#[expect(clippy::print_stderr, reason = "this is what xtask is for")]
pub(crate) fn problem(text: &str) {
    eprintln!("xtask: {text}");
}

/// Announces a step of the gate, so that a log can be searched for it.
pub(crate) fn step(name: &str) {
    line(&format!("\n=== {name}"));
}

/// A row of the gate's summary.
pub(crate) fn summary(verdict: &str, name: &str, took: Duration) {
    line(&format!(
        "  {verdict:<6} {name:<24} {:>7.1} s",
        took.as_secs_f64()
    ));
}
