//! Resets the machine to its state before set-up, then runs the gate: this reveals prerequisites that no step
//! of set-up installs, before another machine does.
//!
//! Removes only entries of set-up's ledger, and directories that this project alone uses.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{cargo, program};
use crate::report;
use crate::setup::ledger::{self, Made};
use crate::setup::oci;

/// A daemon that set-up starts, with its state directories.
struct Service {
    name: &'static str,
    /// The package that owns the state: once it is removed, the state can go, too.
    package: &'static str,
    /// First words of the command line.
    command: &'static [&'static str],
    state: &'static [&'static str],
    /// A network interface that it leaves behind.
    bridge: Option<&'static str>,
}

const SERVICES: &[Service] = &[
    Service {
        name: "dockerd",
        package: "docker.io",
        command: &["dockerd"],
        state: &[
            "/var/lib/docker",
            "/var/lib/containerd",
            "/run/docker",
            "/run/docker.sock",
            "/run/containerd",
        ],
        bridge: Some("docker0"),
    },
    Service {
        name: "podman",
        package: "podman",
        command: &["podman", "--runtime", "runc", "system", "service"],
        state: &[
            "/var/lib/containers",
            "/run/containers",
            "/run/podman",
            "/run/libpod",
            "/run/crun",
        ],
        bridge: None,
    },
];

const PATIENCE: Duration = Duration::from_secs(30);

/// Lists the files to remove, or removes them and runs the gate.
pub(crate) fn bare(root: &Path, confirmed: bool) -> Result<()> {
    let made = ledger::entries()?;
    let directories = directories(root)?;
    for entry in &made {
        report::line(&format!("remove {entry}"));
    }
    for directory in &directories {
        report::line(&format!("remove {}", directory.display()));
    }
    if !confirmed {
        report::line("nothing was removed; `cargo xtask bare --yes` removes all of this and runs the gate");
        return Ok(());
    }
    images(root, &made);
    services(root, &made)?;
    runtimes(&made)?;
    tools(&made)?;
    packages(root, &made)?;
    for directory in &directories {
        remove(directory)?;
    }
    ledger::clear()?;
    cargo(root, &["xtask", "check"]).run()
}

/// Returns the directories to remove: build results, environments, and state of runs and tests in the user's
/// directories.
fn directories(root: &Path) -> Result<Vec<PathBuf>> {
    let all = [
        root.join("target"),
        ledger::state_home()?.join("ringfence"),
        ledger::cache_home()?.join("ringfence"),
    ];
    Ok(all.into_iter().filter(|path| path.exists()).collect())
}

/// Removes images from engines that stay; an engine that is removed takes its images along.
fn images(root: &Path, made: &[Made]) {
    for entry in made {
        if let Made::Image { engine, name } = entry {
            // An engine that does not respond is removed below, or was stopped by its owner.
            program(root, engine, &["image", "rm", "--force", name]).succeeds();
        }
    }
}

fn services(root: &Path, made: &[Made]) -> Result<()> {
    for service in SERVICES {
        if !made.contains(&Made::Service(service.name.to_owned())) {
            continue;
        }
        stop(root, service).with_context(|| format!("stop {}", service.name))?;
        if made.contains(&Made::DebianPackage(service.package.to_owned())) {
            unmount_below(root, service.state)?;
            for path in service.state {
                remove(Path::new(path))?;
            }
            if let Some(bridge) = service.bridge {
                program(root, "ip", &["link", "delete", bridge]).succeeds();
            }
        }
    }
    Ok(())
}

/// Sends SIGTERM and waits until every process of the service has exited.
fn stop(root: &Path, service: &Service) -> Result<()> {
    let running = processes(service)?;
    for pid in &running {
        program(root, "kill", &["-TERM", pid]).succeeds();
    }
    let deadline = Instant::now() + PATIENCE;
    while running
        .iter()
        .any(|pid| Path::new("/proc").join(pid).join("exe").exists())
    {
        if Instant::now() > deadline {
            bail!("it still runs {} s after SIGTERM", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn processes(service: &Service) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        let begins = service.command.len() <= words.len()
            && service
                .command
                .iter()
                .zip(&words)
                .all(|(expected, word)| expected.as_bytes() == *word);
        if begins {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

/// Unmounts leftovers: storage drivers leave mounts below their state when a container is killed.
fn unmount_below(root: &Path, places: &[&str]) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let points: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    for point in points.into_iter().rev() {
        if places.iter().any(|place| Path::new(point).starts_with(place)) {
            program(root, "umount", &["--lazy", point]).run()?;
        }
    }
    Ok(())
}

/// Removes the runtimes from Docker's configuration, and the file if nothing else is in it.
fn runtimes(made: &[Made]) -> Result<()> {
    let names = made.iter().filter_map(|entry| match entry {
        Made::DockerRuntime(name) => Some(name.as_str()),
        _ => None,
    });
    oci::unregister(&names.collect::<Vec<_>>()).context("change Docker's configuration")
}

fn tools(made: &[Made]) -> Result<()> {
    for entry in made {
        if let Made::CargoTool(name) = entry {
            // Cargo knows those that it has built, as set-up did until November 2026.
            if !cargo(Path::new("/"), &["uninstall", "--quiet", name]).succeeds() {
                remove(&ledger::cargo_home()?.join("bin").join(name))?;
            }
        }
    }
    Ok(())
}

fn packages(root: &Path, made: &[Made]) -> Result<()> {
    let mut arguments = vec!["purge", "--quiet", "--yes"];
    let names = made.iter().filter_map(|entry| match entry {
        Made::DebianPackage(name) => Some(name.as_str()),
        _ => None,
    });
    let fixed = arguments.len();
    arguments.extend(names);
    if arguments.len() == fixed {
        return Ok(());
    }
    program(root, "apt-get", &arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run()
}

fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
