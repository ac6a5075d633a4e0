//! The Docker daemon.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::answers;
use super::ledger::{self, Made};
use crate::process::program;
use crate::report;

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the daemon unless it responds.
pub(super) fn setup(root: &Path) -> Result<()> {
    if answers(root, "docker", &["info"]) {
        report::line("dockerd: answers");
        return Ok(());
    }
    forget_killed_daemon();
    let log = root.join("target/dockerd.log");
    report::line(&format!("dockerd: starting it, log in {}", log.display()));
    ledger::record(Made::Service("dockerd".to_owned()))?;
    program(root, "dockerd", &[]).leave_running(File::create(&log)?)?;
    let deadline = Instant::now() + PATIENCE;
    while !answers(root, "docker", &["info"]) {
        if Instant::now() > deadline {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().rev().take(5).collect::<Vec<_>>().join("\n  ");
            bail!(
                "dockerd did not answer within {} s; it said last\n  {last}",
                PATIENCE.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Removes the pid file of a killed daemon. The next one refuses to start while a process with that pid
/// exists in any form: as a zombie, or as another program. Neither has dockerd as its executable.
fn forget_killed_daemon() {
    let pid_file = Path::new("/var/run/docker.pid");
    let Ok(pid) = fs::read_to_string(pid_file) else {
        return;
    };
    let executable = fs::read_link(format!("/proc/{}/exe", pid.trim()));
    if !executable.is_ok_and(|path| path.ends_with("dockerd")) {
        // If it cannot be removed, the daemon reports it.
        let _ = fs::remove_file(pid_file);
    }
}
