//! Sandboxes in cells of this machine.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may end at once, and says what it did"
)]

mod contexts;
mod copies;
mod files;
mod life;
mod pauses;
mod ports;
mod processes;
mod support;

fn main() {
    ringfence_exec::local::init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    let tests = || {
        let groups = [
            processes::TESTS,
            contexts::TESTS,
            files::TESTS,
            life::TESTS,
            pauses::TESTS,
            ports::TESTS,
            copies::TESTS,
        ];
        groups.into_iter().flatten()
    };
    if has("--list") {
        let listed = tests().filter(|_| !has("--ignored"));
        return listed.for_each(|(name, _)| println!("{name}: test"));
    }
    let names: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    for (name, test) in tests() {
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
