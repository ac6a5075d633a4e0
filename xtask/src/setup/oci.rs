//! Registers the OCI runtimes crun and runsc with the Docker daemon.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use super::docker::PATIENCE;
use super::ledger::{self, Made};
use crate::process::program;
use crate::report;

/// Path of the daemon's configuration.
const CONFIGURATION: &str = "/etc/docker/daemon.json";

/// Runtimes, each with its wrapper script.
const RUNTIMES: &[(&str, &str)] = &[
    // Debian's crun fails if cgroups of both versions are mounted.
    (
        "crun",
        "#!/bin/sh\n\
         exec unshare --mount --propagation private sh -c '\n\
         umount /sys/fs/cgroup/unified 2>/dev/null\n\
         exec crun \"$@\"' crun \"$@\"\n",
    ),
    // Debian's runsc mistakes every network namespace of a newer kernel for the host's.
    ("runsc", "#!/bin/sh\nexec runsc --network=none \"$@\"\n"),
];

/// Writes the wrapper scripts, and makes the daemon reload its configuration if it lacks them.
pub(super) fn setup(root: &Path) -> Result<()> {
    // In a worktree, `target` may be a link to another checkout's; the daemon must not depend on the link.
    let target = fs::read_link(root.join("target")).unwrap_or_else(|_| root.join("target"));
    let place = target.join("oci");
    fs::create_dir_all(&place)?;
    for (name, text) in RUNTIMES {
        write(&place.join(name), text)?;
    }
    if unknown(root)?.is_empty() {
        report::line("crun and runsc in docker: there");
        return Ok(());
    }
    report::line(&format!(
        "crun and runsc in docker: adding them to {CONFIGURATION}"
    ));
    register(&place, &unknown(root)?).with_context(|| format!("change {CONFIGURATION}"))?;
    let pid = fs::read_to_string("/var/run/docker.pid").context("find the Docker daemon")?;
    program(root, "kill", &["-HUP", pid.trim()]).run()?;
    let deadline = Instant::now() + PATIENCE;
    while !unknown(root)?.is_empty() {
        if Instant::now() > deadline {
            bail!("the Docker daemon does not take them from {CONFIGURATION}");
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    Ok(())
}

/// Replaces the file atomically: the daemon may be starting it.
fn write(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let fresh = path.with_extension("new");
    fs::write(&fresh, text)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o755))?;
    Ok(fs::rename(fresh, path)?)
}

/// Returns the runtimes that are not registered with the daemon, or whose script is missing.
fn unknown(root: &Path) -> Result<Vec<&'static str>> {
    let info = program(root, "docker", &["info", "--format", "{{json .Runtimes}}"]).stdout()?;
    let known: Map<String, Value> = serde_json::from_str(&info).context("read what docker says of itself")?;
    let names = RUNTIMES.iter().map(|(name, _)| *name);
    Ok(names.filter(|name| !is_there(known.get(*name))).collect())
}

fn is_there(known: Option<&Value>) -> bool {
    let path = known.map(|known| PathBuf::from(known["path"].as_str().unwrap_or_default()));
    path.is_some_and(|path| !path.is_absolute() || path.exists())
}

fn register(place: &Path, names: &[&str]) -> Result<()> {
    let mut configuration = configuration()?;
    let runtimes = configuration.entry("runtimes").or_insert_with(|| json!({}));
    for name in names {
        ledger::record(Made::DockerRuntime((*name).to_owned()))?;
        runtimes[*name] = json!({ "path": place.join(name) });
    }
    fs::create_dir_all("/etc/docker")?;
    store(&configuration)
}

/// Removes runtimes from the configuration, and the file if nothing else is in it.
pub(crate) fn unregister(names: &[&str]) -> Result<()> {
    let mut configuration = configuration()?;
    if let Some(runtimes) = configuration.get_mut("runtimes").and_then(Value::as_object_mut) {
        runtimes.retain(|name, _| !names.contains(&name.as_str()));
        if runtimes.is_empty() {
            configuration.remove("runtimes");
        }
    }
    match (configuration.is_empty(), Path::new(CONFIGURATION).exists()) {
        (_, false) => Ok(()),
        (true, true) => Ok(fs::remove_file(CONFIGURATION)?),
        (false, true) => store(&configuration),
    }
}

fn configuration() -> Result<Map<String, Value>> {
    match fs::read_to_string(CONFIGURATION) {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Map::new()),
        Err(error) => Err(error.into()),
    }
}

fn store(configuration: &Map<String, Value>) -> Result<()> {
    let text = serde_json::to_string_pretty(configuration)? + "\n";
    Ok(fs::write(CONFIGURATION, text)?)
}
