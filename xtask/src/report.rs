//! Prints; no other module does.

use std::io::Write;
use std::time::Duration;

/// Prints one line.
pub(crate) fn line(text: &str) {
    // A closed pipe (`cargo xtask metrics | head`) is not an error.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints one line on standard error.
pub(crate) fn problem(text: &str) {
    let _ = writeln!(std::io::stderr(), "xtask: {text}");
}

/// Prints the name of a gate step, for searches in a log.
pub(crate) fn step(name: &str) {
    line(&format!("\n=== {name}"));
}

/// Renders a row of a summary.
pub(crate) fn row(verdict: &str, name: &str, took: Duration) -> String {
    format!("  {verdict:<6} {name:<24} {:>7.1} s", took.as_secs_f64())
}
