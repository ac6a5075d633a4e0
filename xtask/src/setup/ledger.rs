//! The ledger of everything that set-up installed on this machine, so that it can be removed by name.
//!
//! The ledger lies outside `target`, like the things it lists: packages, services, tools, images.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// Something outside the checkout that set-up created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    DebianPackage(String),
    CargoTool(String),
    /// An entry in Docker's `daemon.json`.
    DockerRuntime(String),
    /// A daemon that was started: `dockerd` or `podman`.
    Service(String),
    /// An image, in the engine of that name.
    Image {
        engine: String,
        name: String,
    },
}

impl std::fmt::Display for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DebianPackage(name) => write!(f, "package {name}"),
            Self::CargoTool(name) => write!(f, "tool {name}"),
            Self::DockerRuntime(name) => write!(f, "runtime {name}"),
            Self::Service(name) => write!(f, "service {name}"),
            Self::Image { engine, name } => write!(f, "image {engine} {name}"),
        }
    }
}

impl FromStr for Made {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words[..] {
            ["package", name] => Self::DebianPackage(name.to_owned()),
            ["tool", name] => Self::CargoTool(name.to_owned()),
            ["runtime", name] => Self::DockerRuntime(name.to_owned()),
            ["service", name] => Self::Service(name.to_owned()),
            ["image", engine, name] => Self::Image {
                engine: engine.to_owned(),
                name: name.to_owned(),
            },
            _ => bail!("expected `KIND NAME`, found `{line}`"),
        })
    }
}

/// Appends an entry, unless it exists.
pub(crate) fn record(made: Made) -> Result<()> {
    if entries()?.contains(&made) {
        return Ok(());
    }
    let path = path()?;
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        writeln!(file, "{made}")
    };
    write().with_context(|| format!("record `{made}` in {}", path.display()))
}

/// Returns every entry, in order of creation.
pub(crate) fn entries() -> Result<Vec<Made>> {
    let path = path()?;
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
    };
    let parsed: Result<Vec<Made>> = text.lines().map(str::parse).collect();
    parsed.with_context(|| format!("read {}", path.display()))
}

/// Deletes the ledger, once everything in it has been removed.
pub(crate) fn clear() -> Result<()> {
    match fs::remove_file(path()?) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn path() -> Result<PathBuf> {
    Ok(state_home()?.join("ringfence-xtask/ledger"))
}

/// Returns `$XDG_STATE_HOME`, or its default.
pub(crate) fn state_home() -> Result<PathBuf> {
    home_or("XDG_STATE_HOME", ".local/state")
}

/// Returns `$XDG_CACHE_HOME`, or its default.
pub(crate) fn cache_home() -> Result<PathBuf> {
    home_or("XDG_CACHE_HOME", ".cache")
}

/// Returns `$CARGO_HOME`, or its default.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    home_or("CARGO_HOME", ".cargo")
}

fn home_or(variable: &str, default: &str) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
        return Ok(named.into());
    }
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    Ok(PathBuf::from(home).join(default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_being_written() {
        for made in [
            Made::DebianPackage("crun".to_owned()),
            Made::CargoTool("cargo-deny".to_owned()),
            Made::DockerRuntime("runsc".to_owned()),
            Made::Service("dockerd".to_owned()),
            Made::Image {
                engine: "podman".to_owned(),
                name: "ringfence-test:latest".to_owned(),
            },
        ] {
            assert_eq!(made.to_string().parse::<Made>().unwrap(), made);
        }
        for line in ["", "package", "package a b", "other x"] {
            assert!(line.parse::<Made>().is_err(), "{line}");
        }
    }
}
