//! The packages for Python and JavaScript, by their own tests: real servers, and the programs of their guides.

use std::path::absolute;

use crate::support::{Dir, finish};
use crate::world::{repository, skip};

#[test]
fn the_python_package_passes_its_tests() {
    pytest("target/sdk-venv", &[]);
}

#[test]
fn the_python_adapters_pass_the_tests_of_their_libraries() {
    pytest(
        "target/adapters-venv",
        &[
            "-o",
            "asyncio_mode=auto",
            "-o",
            "asyncio_default_fixture_loop_scope=function",
            // What these libraries warn of is theirs.
            "-W",
            "default",
            "tests/adapters",
        ],
    );
}

#[track_caller]
fn pytest(venv: &str, options: &[&str]) {
    let python = repository(venv).join("bin/python");
    if !python.exists() {
        return skip(&format!("no {venv} (`cargo xtask setup` makes it)")).unwrap_or_default();
    }
    let dir = Dir::new();
    let mut tests = dir.program(absolute(python).unwrap());
    let package = repository("sdk/python").canonicalize().unwrap();
    let base = dir.path("pytest");
    tests
        .args(["-m", "pytest", "--durations=5", "--basetemp"])
        .arg(base)
        .args(options)
        .current_dir(&package)
        .env("PYTHONPATH", package.join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("RINGFENCE_BIN", env!("CARGO_BIN_EXE_ringfence"));
    if let Some(guest) = crate::world::venv() {
        tests.env("RINGFENCE_TEST_VENV", guest);
    }
    let output = finish(&mut tests, b"");
    assert_eq!(output.status, 0, "{}{}", output.stdout, output.stderr);
}

#[test]
fn the_javascript_package_passes_its_tests() {
    let dir = Dir::new();
    let mut tests = dir.program("node");
    tests
        .arg("--test")
        .current_dir(repository("sdk/typescript"))
        .env("RINGFENCE_BIN", env!("CARGO_BIN_EXE_ringfence"));
    let output = finish(&mut tests, b"");
    assert_eq!(output.status, 0, "{}{}", output.stdout, output.stderr);
}
