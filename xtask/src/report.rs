//! The only place that prints.

use std::io::Write;
use std::time::Duration;

/// One line for the person at the terminal.
pub(crate) fn line(text: &str) {
    // Whoever closed the pipe (`cargo xtask metrics | head`) has seen enough.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// One line on standard error.
pub(crate) fn problem(text: &str) {
    let _ = writeln!(std::io::stderr(), "xtask: {text}");
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
