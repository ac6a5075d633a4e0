//! Checks that nothing is left: no process, no control group, no mount, no temporary file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::support::{Dir, entries, eventually_none, finish};

/// Asserts that nothing is left of the commands with these process ids, run in `dir` as the user `uid`.
#[track_caller]
pub(crate) fn none(dir: &Dir, pids: &[u32], uid: u32) {
    let prefixes: Vec<_> = pids.iter().map(|pid| format!("ringfence-{pid}-")).collect();
    let ours = |text: &str| prefixes.iter().any(|prefix| text.contains(prefix));
    eventually_none("processes", || {
        processes()
            .into_iter()
            .filter(|process| process.belongs_to(dir, &ours, uid))
            .collect()
    });
    let born = fs::metadata(dir.path("")).unwrap().created().unwrap();
    // An old process with the same id may have left its group.
    let is_of_today =
        |group: &PathBuf| fs::metadata(group).is_ok_and(|found| found.modified().unwrap() >= born);
    eventually_none("control groups", || {
        control_groups()
            .into_iter()
            .filter(|group| ours(&group.to_string_lossy()) && is_of_today(group))
            .collect()
    });
    let root = dir.path("").display().to_string();
    eventually_none("mounts", || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = mounts
            .lines()
            .filter(|line| line.contains(root.trim_end_matches('/')));
        ours.map(str::to_owned).collect()
    });
    files(dir);
    assert_eq!(entries(&dir.path("tmp")), [""; 0], "temporary files are left");
}

/// Asserts that nothing is left in a container but the process that keeps it alive.
#[track_caller]
pub(crate) fn none_in_container(dir: &Dir, container: &str) {
    let shown = |script: &str| {
        let script = ["exec", container, "bash", "-c", script];
        finish(dir.program("docker").args(script), b"").ok().to_owned()
    };
    eventually_none("processes", || {
        let processes = shown("ps -eo ppid=,stat=,args=");
        let other = |line: &&str| !line.contains("sleep 600") && !line.contains("ps -eo");
        processes.lines().filter(other).map(str::to_owned).collect()
    });
    // The world itself is mounted there.
    let own = format!("{}\n", name(&dir.path("").canonicalize().unwrap()));
    let listed = shown("ls -A /tmp /dev/shm").replace(&own, "");
    assert_eq!(listed, "/dev/shm:\n\n/tmp:\n", "temporary files are left");
    files(dir);
}

/// Checks the files of the state directory: artifacts, the audit log, filters for Podman, the cache of
/// interpreter properties, the compiled worker, questions and answers, console credentials, output of skills.
#[track_caller]
fn files(dir: &Dir) {
    let state = dir.path("state/ringfence");
    let names = if state.exists() {
        entries(&state)
    } else {
        Vec::new()
    };
    let known = |name: &&String| {
        let compiled = name.starts_with("worker-") && name.ends_with(".bin");
        compiled
            || [
                "init",
                "artifacts",
                "containers",
                "output",
                "packages",
                "workspaces",
                "audit",
                "interpreters.json",
                "unpinned.txt",
                "accepted.json",
                "api-keys",
                "opened.json",
                "skills.json",
                "engine.lock",
                "approvals.db",
                "approvals.db-wal",
                "approvals.db-shm",
                "servers",
                "skills",
                "usage.json",
            ]
            .contains(&name.as_str())
    };
    let unknown: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty(), "the state directory holds {unknown:?}");
    if names.iter().any(|name| name == "workspaces") {
        let left = entries(&state.join("workspaces"));
        assert_eq!(left, [""; 0], "private workspaces are left");
    }
    for socket in ["engine.sock", "gateway.sock"] {
        let path = dir.path("run/ringfence").join(socket);
        assert!(!path.exists(), "{socket} is left");
    }
}

/// A process of this machine.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Empty if the process has exited.
    pub(crate) executable: PathBuf,
    groups: String,
    pub(crate) command: String,
    uid: u32,
    pub(crate) state: char,
    pub(crate) parent: u32,
}

impl Process {
    fn belongs_to(&self, dir: &Dir, ours: &dyn Fn(&str) -> bool, uid: u32) -> bool {
        let of_world = self.executable.starts_with(dir.path("")) || ours(&self.groups);
        of_world || (uid >= 1_000_000 && self.uid == uid)
    }

    fn read(pid: u32) -> Option<Self> {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let status = fs::read_to_string(proc.join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        Some(Self {
            pid,
            executable: fs::read_link(proc.join("exe")).unwrap_or_default(),
            groups: fs::read_to_string(proc.join("cgroup")).unwrap_or_default(),
            command: fs::read_to_string(proc.join("cmdline"))
                .unwrap_or_default()
                .replace('\0', " "),
            uid: fs::metadata(&proc).ok()?.uid(),
            state: field("State:").chars().next()?,
            parent: field("PPid:").parse().ok()?,
        })
    }
}

/// Every process of this machine.
pub(crate) fn processes() -> Vec<Process> {
    let names = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// Returns every control group of this machine that bears our name.
pub(crate) fn control_groups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if name(&entry.path()).starts_with("ringfence-") {
                found.push(entry.path());
            }
            pending.push(entry.path());
        }
    }
    found
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
