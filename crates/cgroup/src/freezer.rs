//! The freezer of a group: its processes use no processor until they are thawed.
//!
//! No process can leave it or wake itself, unlike one that got SIGSTOP, which another process of its user continues.

use super::{Error, Version, read, write};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};

/// A handle of a group's freezer. It stays valid after the group is gone, and fails then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freezer {
    version: Version,
    folder: PathBuf,
}

impl Freezer {
    pub(super) fn new(version: Version, folder: &Path) -> Self {
        Self {
            version,
            folder: folder.to_owned(),
        }
    }

    /// Begins to freeze the group: a process stops when it is about to return to its program, or already waits there.
    ///
    /// # Errors
    /// If the kernel has no freezer here, or the group is gone.
    pub fn freeze(&self) -> Result<(), Error> {
        match self.version {
            Version::V1 => write(self.state(), "FROZEN"),
            Version::V2 => write(self.state(), "1"),
        }
    }

    /// Returns `true` once every process of the group is frozen.
    ///
    /// # Errors
    /// If the kernel's file cannot be read.
    pub fn is_frozen(&self) -> Result<bool, Error> {
        match self.version {
            Version::V1 => Ok(read(self.state())?.trim() == "FROZEN"),
            Version::V2 => {
                let events = read(self.folder.join("cgroup.events"))?;
                Ok(events.lines().any(|line| line == "frozen 1"))
            }
        }
    }

    /// Thaws the group.
    ///
    /// # Errors
    /// If the kernel has no freezer here, or the group is gone.
    pub fn thaw(&self) -> Result<(), Error> {
        match self.version {
            Version::V1 => write(self.state(), "THAWED"),
            Version::V2 => write(self.state(), "0"),
        }
    }

    /// Thaws the group; its processes are killed first if all of them are frozen. A process that has SIGKILL
    /// pending when it is thawed executes no instruction of its program: the kernel looks for signals on its
    /// way back there. While the group is frozen, no process forks or is reaped, so the list of processes is
    /// exact. Otherwise a process id could belong to an unrelated process by now.
    ///
    /// # Errors
    /// If the group cannot be thawed; its processes have SIGKILL pending then.
    pub fn kill_and_thaw(&self) -> Result<(), Error> {
        let listed = match self.is_frozen() {
            Ok(true) => read(self.folder.join("cgroup.procs")).unwrap_or_default(),
            Ok(false) | Err(_) => String::new(),
        };
        // A pid of 0 belongs to another pid namespace, and would mean our own process group.
        let pids = listed.split_whitespace().filter_map(|pid| pid.parse().ok());
        for pid in pids.filter(|pid: &i32| *pid > 0).filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        self.thaw()
    }

    fn state(&self) -> PathBuf {
        self.folder.join(match self.version {
            Version::V1 => "freezer.state",
            Version::V2 => "cgroup.freeze",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, GroupLimits, Hierarchy};

    #[test]
    fn version2_freezes_through_its_one_tree() {
        let folder = tempfile::tempdir().unwrap();
        let freezer = Freezer::new(Version::V2, folder.path());
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        freezer.freeze().unwrap();
        assert_eq!(read(file("cgroup.freeze")).unwrap(), "1");
        assert!(
            !freezer.is_frozen().unwrap(),
            "the kernel has not frozen all of it yet"
        );
        std::fs::write(file("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        assert!(freezer.is_frozen().unwrap());
        // Processes of other namespaces are listed as 0, which `kill` would take for our own group.
        std::fs::write(file("cgroup.procs"), "0\n").unwrap();
        freezer.kill_and_thaw().unwrap();
        assert_eq!(read(file("cgroup.freeze")).unwrap(), "0");
    }

    /// A frozen child in a group of its own.
    struct Frozen {
        hierarchy: Hierarchy,
        group: Group,
        freezer: Freezer,
        child: std::process::Child,
        dir: tempfile::TempDir,
        /// Length of what it had written when it froze.
        before: u64,
    }

    /// Freezes a child that appends to a file as fast as it can.
    fn frozen_writer(name: &str) -> Option<Frozen> {
        let hierarchy = Hierarchy::detect().unwrap();
        let limits = GroupLimits {
            memory_bytes: 64 << 20,
            pids: 8,
            cpus: 1.0,
        };
        let group = hierarchy
            .as_ref()
            .and_then(|hierarchy| hierarchy.freezable_group(&format!("{name}/slot"), limits).ok());
        let (Some(hierarchy), Some(group)) = (hierarchy, group) else {
            eprintln!("skipped: no group can be made here");
            return None;
        };
        let Some(freezer) = group.freezer() else {
            eprintln!("skipped: no freezer here");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a child that a test freezes and kills")]
        let mut child = std::process::Command::new("bash")
            .args(["-c", "read; while :; do echo x >> file; done"])
            .stdin(std::process::Stdio::piped())
            .current_dir(&dir)
            .spawn()
            .unwrap();
        for folder in group.places.distinct() {
            write(folder.join("cgroup.procs"), &child.id().to_string()).unwrap();
        }
        drop(child.stdin.take());
        until(|| written(dir.path()) > 0);
        freezer.freeze().unwrap();
        until(|| freezer.is_frozen().unwrap());
        let before = written(dir.path());
        Some(Frozen {
            hierarchy,
            group,
            freezer,
            child,
            dir,
            before,
        })
    }

    /// Returns the length of the child's output, which begins once the child's input has ended.
    fn written(dir: &Path) -> u64 {
        std::fs::metadata(dir.join("file")).map_or(0, |found| found.len())
    }

    fn until(mut reached: impl FnMut() -> bool) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !reached() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
    }

    fn assert_killed(status: std::process::ExitStatus) {
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(libc::SIGKILL));
    }

    #[test]
    fn killing_a_frozen_group_runs_none_of_its_code() {
        let Some(mut frozen) = frozen_writer(&format!("ringfence-frozen{}", std::process::id())) else {
            return;
        };
        frozen.freezer.kill_and_thaw().unwrap();
        assert_killed(frozen.child.wait().unwrap());
        assert_eq!(written(frozen.dir.path()), frozen.before);
        frozen.group.close().unwrap();
    }

    #[test]
    fn a_thawed_process_goes_on() {
        let Some(mut frozen) = frozen_writer(&format!("ringfence-thawed{}", std::process::id())) else {
            return;
        };
        frozen.freezer.thaw().unwrap();
        until(|| written(frozen.dir.path()) > frozen.before);
        frozen.child.kill().unwrap();
        frozen.child.wait().unwrap();
        frozen.group.close().unwrap();
    }

    #[test]
    fn a_sweep_ends_frozen_processes_of_a_dead_server() {
        let owner = format!("swept{}", std::process::id());
        let Some(frozen) = frozen_writer(&format!("ringfence-{owner}")) else {
            return;
        };
        let Frozen {
            hierarchy,
            group,
            mut child,
            dir,
            before,
            ..
        } = frozen;
        // As a server that was killed leaves it.
        std::mem::forget(group);
        let waiting = std::thread::spawn(move || child.wait().unwrap());
        until(|| hierarchy.sweep(&|other| other == owner) == [owner.clone()]);
        assert_killed(waiting.join().unwrap());
        assert_eq!(written(dir.path()), before);
    }

    #[test]
    fn a_group_that_is_gone_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for version in [Version::V1, Version::V2] {
            let freezer = Freezer::new(version, &folder.path().join("gone"));
            assert!(freezer.freeze().is_err() && freezer.thaw().is_err() && freezer.is_frozen().is_err());
        }
    }
}
