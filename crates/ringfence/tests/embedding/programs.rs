//! Tests of whole programs: this binary under other names.

use std::path::Path;
use std::process::Command;

use ringfence::Request;

use crate::{Test, block_on, builder};

pub(crate) const TESTS: &[Test] = &[
    (
        "a_program_is_configured_by_nothing_around_it",
        a_program_is_configured_by_nothing_around_it,
    ),
    (
        "one_without_init_is_told_and_starts_nothing",
        one_without_init_is_told_and_starts_nothing,
    ),
];

/// Limit of starts. A broken guard must fail a test, and not fork without end.
const TOO_MANY: usize = 20;

/// Selects the program by the name of this executable.
pub(crate) fn by_name() -> Option<fn()> {
    let executable = std::env::current_exe().unwrap();
    Some(match executable.file_name()?.to_str()? {
        "right" => || {
            ringfence::init();
            run_code();
        },
        "forgetful" => run_code,
        _ => return None,
    })
}

fn run_code() {
    let starts = std::fs::read_to_string("starts").unwrap_or_default() + "x";
    assert!(starts.len() < TOO_MANY, "started {} times", starts.len());
    std::fs::write("starts", starts).unwrap();
    block_on(async {
        let runner = builder(&std::env::current_dir().unwrap()).build().unwrap();
        match runner.run(Request::bash("echo hello")).await {
            Ok(result) => print!("ran: {}", result.stdout),
            Err(error) => println!("{error}\n{}", error.hint()),
        }
        runner.close().await;
    });
}

/// A variable, and the only file of the working directory.
struct Surroundings {
    variable: &'static str,
    value: &'static str,
    file: &'static str,
    text: &'static str,
}

/// Runs the program `name`; returns its output and the number of its starts.
fn run(name: &str, around: &Surroundings) -> (String, usize) {
    let place = tempfile::tempdir().unwrap();
    let binary = place.path().join(name);
    copy(&std::env::current_exe().unwrap(), &binary);
    std::fs::write(place.path().join(around.file), around.text).unwrap();
    let output = Command::new(&binary)
        .current_dir(place.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env(around.variable, around.value)
        .output()
        .unwrap();
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    let starts = std::fs::read_to_string(place.path().join("starts")).unwrap();
    (String::from_utf8(output.stdout).unwrap(), starts.len())
}

/// Creates a hard link, or a copy if that is impossible.
fn copy(from: &Path, to: &Path) {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).unwrap();
    }
}

fn a_program_is_configured_by_nothing_around_it() {
    // The command line refuses either.
    let told = run(
        "right",
        &Surroundings {
            variable: "SANDBOX_TIMEOUT_SEC",
            value: "0",
            file: "ringfence.toml",
            text: "not = [toml",
        },
    );
    assert_eq!(told, ("ran: hello\n".to_owned(), 1));
}

fn one_without_init_is_told_and_starts_nothing() {
    let around = Surroundings {
        variable: "LANG",
        value: "C",
        file: "x",
        text: "",
    };
    let (told, starts) = run("forgetful", &around);
    assert!(
        told.contains("expected `ringfence::init()` to have been called"),
        "{told}"
    );
    assert!(
        told.contains("call `ringfence::init()` first in `main`"),
        "{told}"
    );
    assert_eq!(starts, 1);
}
