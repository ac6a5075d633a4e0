//! Starts processes; no other module does.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// A program with its arguments, to be run.
#[derive(Debug)]
pub(crate) struct Program {
    command: Command,
    shown: String,
}

/// Prepares `program` with `arguments`, to run in `directory` with empty standard input.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask drives other tools; they are started here alone"
)]
pub(crate) fn program(directory: &Path, program: &str, arguments: &[&str]) -> Program {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null());
    Program {
        command,
        shown: format!("{program} {}", arguments.join(" ")),
    }
}

/// Prepares `cargo` with these arguments, in the environment that a shell would give it.
///
/// `cargo run` tells this program about its package in `CARGO_PKG_*` and `CARGO_MANIFEST_*`. Build scripts that watch
/// those variables (ring's does) would run again after each change between `cargo xtask` and a `cargo` of the shell,
/// and everything above them would be compiled once more.
pub(crate) fn cargo(directory: &Path, arguments: &[&str]) -> Program {
    let mut cargo = program(directory, "cargo", arguments);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_this_package(name)) {
        cargo.command.env_remove(name);
    }
    cargo
}

/// Returns `true` for variables in which `cargo run` describes the package that it runs.
fn is_of_this_package(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
}

/// Builds everything that is linked for development, tests included. One command for all: another selection
/// of packages would compile most dependencies again, with other features.
pub(crate) fn build(root: &Path) -> Result<()> {
    cargo(root, &["build", "--locked", "--workspace", "--all-targets"]).run()
}

/// Prepares the build of one program for development. A test is built with it: without one, cargo selects no
/// features of development dependencies, and [`build`] would compile the libraries again.
pub(crate) fn build_of(root: &Path, name: &str) -> Program {
    let selection = ["--workspace", "--bin", name, "--test", "read_only"];
    cargo(root, &[&["build", "--locked"], &selection[..]].concat())
}

/// Builds `ringfence` alone for development.
pub(crate) fn build_ringfence(root: &Path) -> Result<()> {
    build_of(root, "ringfence").run()
}

/// Prepares `ringfence` in its dev build.
pub(crate) fn ringfence(root: &Path, arguments: &[&str]) -> Result<Program> {
    build_ringfence(root)?;
    Ok(dev_program(root, "ringfence", arguments))
}

/// Prepares a program of the workspace in its dev build.
pub(crate) fn built(root: &Path, name: &str, arguments: &[&str]) -> Result<Program> {
    build(root)?;
    Ok(dev_program(root, name, arguments))
}

pub(crate) fn dev_program(root: &Path, name: &str, arguments: &[&str]) -> Program {
    let path = root.join("target/debug").join(name);
    program(root, &path.to_string_lossy(), arguments)
}

/// Becomes another program; returns only if that fails.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask drives other tools; they are started here alone"
)]
pub(crate) fn replaced_by(words: &[String]) -> Result<()> {
    let (name, arguments) = words.split_first().context("no program is named")?;
    Err(Command::new(name).args(arguments).exec()).with_context(|| format!("start {name}"))
}

impl Program {
    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs the program with the inherited output streams; an exit status other than 0 is an error.
    pub(crate) fn run(mut self) -> Result<()> {
        let status = self
            .command
            .status()
            .with_context(|| format!("cannot start `{}`", self.shown))?;
        if !status.success() {
            bail!("`{}` ended with {status}", self.shown);
        }
        Ok(())
    }

    /// Runs the program and returns its output and exit status.
    pub(crate) fn output(mut self) -> Result<Output> {
        self.command
            .output()
            .with_context(|| format!("cannot start `{}`", self.shown))
    }

    /// Runs the program and returns its standard output; an exit status other than 0 is an error with its
    /// standard error.
    pub(crate) fn stdout(self) -> Result<String> {
        let shown = self.shown.clone();
        let output = self.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`{shown}` ended with {}: {}", output.status, said.trim());
        }
        String::from_utf8(output.stdout)
            .with_context(|| format!("`{shown}` wrote something other than UTF-8"))
    }

    /// Returns `true` if the program starts and succeeds. Discards its output.
    pub(crate) fn succeeds(mut self) -> bool {
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        self.command.status().is_ok_and(|status| status.success())
    }

    /// Starts the program in its own process group with its output in `log`, and leaves it running.
    pub(crate) fn leave_running(mut self, log: File) -> Result<()> {
        let errors = log.try_clone()?;
        self.command.stdout(log).stderr(errors).process_group(0);
        self.command
            .spawn()
            .with_context(|| format!("cannot start `{}`", self.shown))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_not_told_of_this_package() {
        // Cargo has told this test.
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
        let cargo = cargo(Path::new("."), &["build"]);
        let removed: Vec<&OsStr> = cargo
            .command
            .get_envs()
            .filter_map(|(name, value)| value.is_none().then_some(name))
            .collect();
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(removed.contains(&OsStr::new(name)), "{name}: {removed:?}");
        }
    }
}
