//! Tests forks of a live session, each in a cell of its own; this binary is also the launcher.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test may end at once, says what it did, and starts programs"
)]

mod exits;
mod forged;
mod launcher;
mod life;
mod walls;

/// A test with its name.
type Test = (&'static str, fn());

/// Tests that are repeated as an unprivileged user.
const BY_ANYBODY: &[&[Test]] = &[walls::TESTS, life::TESTS, forged::TESTS, exits::TESTS];

fn main() {
    ringfence_exec::local::init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    let tests = BY_ANYBODY.iter().copied().flatten().chain(life::AS_ROOT);
    if has("--list") {
        let listed = tests.filter(|_| !has("--ignored"));
        return listed.for_each(|(name, _)| println!("{name}: test"));
    }
    let names: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let wanted = tests.filter(|(name, _)| {
        names.is_empty()
            || names.iter().any(|part| {
                if has("--exact") {
                    *part == name
                } else {
                    name.contains(*part)
                }
            })
    });
    for (name, test) in wanted {
        eprintln!("{name}");
        test();
    }
}
