//! Installs what the tests need on a bare Debian machine, as root; quick where it is there already.

mod browser;
mod docker;
mod image;
mod mcp;
mod oci;
mod podman;
mod pyodide;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process::{cargo, program};
use crate::report;

/// Debian packages, each with the program and its arguments that succeed where it is installed.
const PACKAGES: &[(&str, &str, &[&str])] = &[
    ("bash", "bash", &["--version"]),
    ("python3", PYTHON, &["--version"]),
    ("python3-venv", PYTHON, &["-c", "import ensurepip, venv"]),
    ("nodejs", "node", &["--version"]),
    ("npm", "npm", &["--version"]),
    ("bubblewrap", "bwrap", &["--version"]),
    ("util-linux", "setpriv", &["--version"]),
    ("docker.io", "dockerd", &["--version"]),
    ("docker-registry", "docker-registry", &["--version"]),
    ("iproute2", "ip", &["-V"]),
    ("docker-cli", "docker", &["--version"]),
    ("iptables", "iptables", &["--version"]),
    ("chromium", "chromium", &["--version"]),
    ("podman", "podman", &["--version"]),
    ("uidmap", "test", &["-x", "/usr/bin/newuidmap"]),
    ("catatonit", "catatonit", &["--version"]),
    ("runc", "runc", &["--version"]),
    ("crun", "crun", &["--version"]),
    ("runsc", "runsc", &["--version"]),
];

/// Cargo's own tools, at the versions that the gate was written against.
const TOOLS: &[(&str, &str, &str)] = &[
    ("nextest", "cargo-nextest", "0.9.143"),
    ("deny", "cargo-deny", "0.20.2"),
];

/// Debian's Python, and not one that a shim puts first: the virtual environment is made from it.
const PYTHON: &str = "/usr/bin/python3";

const VENV: &str = "target/test-venv";

/// Brings the machine to where every test can run.
pub(crate) fn setup(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("target"))?;
    packages(root)?;
    tools(root)?;
    venv(root).context("make the virtual environment of the tests")?;
    mcp::setup(root)?;
    browser::setup(root).context("install what drives the browser of the tests")?;
    docker::setup(root).context("make the Docker container of the tests")?;
    oci::setup(root).context("make crun and runsc known to Docker")?;
    podman::setup(root).context("start Podman's service")?;
    pyodide::setup(root).context("install Deno and Pyodide")?;
    image::setup(root).context("make the image of sandboxes")
}

fn answers(root: &Path, name: &str, arguments: &[&str]) -> bool {
    program(root, name, arguments).succeeds()
}

fn packages(root: &Path) -> Result<()> {
    let mut missing = missing(root);
    if missing.is_empty() {
        report::line("packages: all there");
        return Ok(());
    }
    let wanted = missing.join(" ");
    if !answers(root, "apt-get", &["--version"]) || !is_root(root) {
        bail!("missing: {wanted}; install them, or run `cargo xtask setup` as root on Debian");
    }
    report::line(&format!("packages: installing {wanted}"));
    apt(root, &["update", "--quiet"])?;
    // Releases cut Docker into packages differently; what this one does not know is part of another.
    missing.retain(|name| answers(root, "apt-cache", &["show", name]));
    let mut arguments = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    arguments.append(&mut missing);
    apt(root, &arguments)?;
    let still = self::missing(root);
    if !still.is_empty() {
        bail!("installed, and yet they do not answer: {}", still.join(" "));
    }
    Ok(())
}

fn missing(root: &Path) -> Vec<&'static str> {
    let packages = PACKAGES.iter();
    let missing = packages.filter(|(_, name, arguments)| !answers(root, name, arguments));
    missing.map(|(package, ..)| *package).collect()
}

fn apt(root: &Path, arguments: &[&str]) -> Result<()> {
    program(root, "apt-get", arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run()
}

fn is_root(root: &Path) -> bool {
    program(root, "id", &["-u"])
        .stdout()
        .is_ok_and(|id| id.trim() == "0")
}

fn tools(root: &Path) -> Result<()> {
    for (subcommand, package, version) in TOOLS {
        if cargo(root, &[subcommand, "--version"]).succeeds() {
            report::line(&format!("{package}: there"));
            continue;
        }
        report::line(&format!("{package}: installing {version}"));
        // Outside the workspace, so that its toolchain and target folder play no part.
        cargo(
            Path::new("/"),
            &["install", "--locked", "--version", version, package],
        )
        .run()?;
    }
    Ok(())
}

/// numpy, pandas and matplotlib at exact versions.
fn venv(root: &Path) -> Result<()> {
    environment(root, "virtual environment", VENV, "xtask/test-requirements.txt")
}

/// A virtual environment at `place` with what the list says. The list that was installed is kept beside it.
fn environment(root: &Path, what: &str, place: &str, list: &str) -> Result<()> {
    let list = root.join(list);
    let wanted = fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
    if is_there(root, place, &wanted) {
        report::line(&format!("{what}: there"));
        return Ok(());
    }
    report::line(&format!("{what}: installing"));
    program(root, PYTHON, &["-m", "venv", "--clear", place]).run()?;
    let pip = root.join(place).join("bin/pip");
    let list = list.to_string_lossy();
    let arguments = [
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
        &list,
    ];
    program(root, &pip.to_string_lossy(), &arguments).run()?;
    stamp(root, place, &wanted)
}

fn is_there(root: &Path, place: &str, wanted: &str) -> bool {
    fs::read_to_string(root.join(place).join("installed.txt")).is_ok_and(|installed| installed == wanted)
}

/// The list that was installed is kept beside what it brought.
fn stamp(root: &Path, place: &str, wanted: &str) -> Result<()> {
    Ok(fs::write(root.join(place).join("installed.txt"), wanted)?)
}
