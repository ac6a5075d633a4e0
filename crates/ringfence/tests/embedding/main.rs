//! Tests programs that embed the library; this binary is also their launcher.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may end at once, says what it did, and starts programs"
)]

mod programs;
mod runs;

use std::future::Future;
use std::path::Path;

/// A test with its name.
type Test = (&'static str, fn());

fn main() {
    if let Some(program) = programs::by_name() {
        return program();
    }
    ringfence::init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    let tests = programs::TESTS.iter().chain(runs::TESTS);
    if has("--list") {
        let listed = tests.filter(|_| !has("--ignored"));
        return listed.for_each(|(name, _)| println!("{name}: test"));
    }
    let names: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    for (name, test) in tests {
        let chosen = |part: &&String| match has("--exact") {
            true => part == name,
            false => name.contains(part.as_str()),
        };
        if names.is_empty() || names.iter().any(chosen) {
            eprintln!("{name}");
            test();
        }
    }
}

/// Runs a test that needs a runtime.
fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}

/// Returns a builder whose state lies below `place`.
fn builder(place: &Path) -> ringfence::Builder {
    ringfence::Runner::builder().state_directory(place.join("state"))
}
