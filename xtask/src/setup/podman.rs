//! Podman's service.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};

use super::answers;
use super::docker::PATIENCE;
use super::ledger::{self, Made};
use crate::process::program;
use crate::report;

/// Socket of root's service.
const SOCKET: &str = "unix:///run/podman/podman.sock";

/// Starts the service unless it responds.
pub(super) fn setup(root: &Path) -> Result<()> {
    let up = || answers(root, "podman", &["--remote", "--url", SOCKET, "version"]);
    if up() {
        report::line("podman: answers");
        return Ok(());
    }
    let log = root.join("target/podman.log");
    report::line(&format!("podman: starting its service, log in {}", log.display()));
    fs::create_dir_all("/run/podman")?;
    // Debian's crun fails if cgroups of both versions are mounted; runc works.
    let arguments = ["--runtime", "runc", "system", "service", "--time=0", SOCKET];
    // Monitors of its containers leave files in the working directory.
    let directory = root.join("target/podman");
    fs::create_dir_all(&directory)?;
    ledger::record(Made::Service("podman".to_owned()))?;
    program(&directory, "podman", &arguments).leave_running(File::create(&log)?)?;
    let deadline = Instant::now() + PATIENCE;
    while !up() {
        if Instant::now() > deadline {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().rev().take(5).collect::<Vec<_>>().join("\n  ");
            bail!(
                "the service did not answer within {} s; it said last\n  {last}",
                PATIENCE.as_secs()
            );
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    Ok(())
}
