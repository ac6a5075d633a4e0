//! A single cgroup: limits, usage, removal.

use super::counters::{Counters, read_text};
use super::{Error, Freezer, GroupLimits, GroupPaths, TIMEOUT, Version, detect, read, remove, write};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A group. Dropping it removes it like [`Group::close`], but ignores errors.
#[derive(Debug)]
pub struct Group {
    version: Version,
    pub(super) places: GroupPaths,
    /// Empty once the group has been removed.
    folders: Vec<PathBuf>,
    /// Directories of the owner, removed with the last slot.
    owners: Vec<PathBuf>,
    procs: Vec<File>,
    counters: Counters,
    /// Counters at the last reset.
    baseline: Usage,
    /// `None` if some may not be in force.
    limits: Option<GroupLimits>,
}

/// Usage of a group since its creation or reset.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Peak memory, if the kernel counts it.
    pub peak_memory_bytes: Option<u64>,
    /// Processor time, if the kernel counts it.
    pub cpu_seconds: Option<f64>,
    /// Out-of-memory kills.
    pub oom_kills: u64,
    /// Number of forks that failed at the limit on processes.
    pub pids_max_hits: u64,
}

impl Usage {
    /// Returns the usage since `before`. The peak is not a difference.
    fn since(self, before: &Self) -> Self {
        let seconds = |now: f64| now - before.cpu_seconds.unwrap_or(0.0);
        Self {
            peak_memory_bytes: self.peak_memory_bytes,
            cpu_seconds: self.cpu_seconds.map(seconds),
            oom_kills: self.oom_kills.saturating_sub(before.oom_kills),
            pids_max_hits: self.pids_max_hits.saturating_sub(before.pids_max_hits),
        }
    }
}

/// The kernel's own default, in microseconds.
const CPU_PERIOD: f64 = 100_000.0;
/// Smallest quota that the kernel accepts, in microseconds.
const LEAST_QUOTA: f64 = 1_000.0;

/// Memory that a reset group may still be charged with: kernel memory that goes away by itself, or when it is
/// short. With more, the next guest would find part of its limit used up.
const LEFT_OVER: u64 = 1 << 20;

/// The file with a group's current memory usage.
#[derive(Debug, Clone)]
pub struct MemoryGauge(PathBuf);

impl MemoryGauge {
    /// Returns the bytes in use; `None` once the group is gone.
    pub fn read(&self) -> Option<u64> {
        number(&self.0)
    }
}

/// The file with the number of a group's processes and threads, including zombies.
#[derive(Debug)]
pub struct TaskGauge(Arc<File>);

impl TaskGauge {
    /// Returns the number.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn read(&self) -> io::Result<u64> {
        let mut buffer = [0; 32];
        let text = read_text(&self.0, &mut buffer)?;
        text.trim().parse().map_err(io::Error::other)
    }
}

impl Group {
    /// Creates the directories, without limits.
    pub(super) fn create(version: Version, own: &GroupPaths, name: &str) -> Result<Self, Error> {
        let owner = name.split_once('/').map(|(owner, _)| own.join(owner));
        let places = own.join(name);
        let mut group = Self {
            version,
            counters: Counters::unopened(version),
            places,
            folders: Vec::new(),
            owners: owner.as_ref().map(GroupPaths::distinct).unwrap_or_default(),
            procs: Vec::new(),
            baseline: Usage::default(),
            limits: None,
        };
        for folder in group.places.distinct() {
            group.create_folder(&folder)?;
            // From here on, dropping the group removes the directory.
            group.folders.push(folder.clone());
            // One thread that moves itself through `tasks` spares the kernel a lock, and the wait of
            // milliseconds that comes with it (`cgroup_procs_write_start` in kernel/cgroup/cgroup.c). Version
            // 2 has no such file.
            let entrance = match version {
                Version::V1 => "tasks",
                Version::V2 => "cgroup.procs",
            };
            let path = folder.join(entrance);
            let procs = File::options()
                .write(true)
                .open(&path)
                .map_err(|source| Error::Create { path, source })?;
            group.procs.push(procs);
        }
        group.counters = Counters::open(version, &group.places);
        Ok(group)
    }

    /// Creates one directory and, on demand, its owner's. The latter is removed with its last slot, possibly
    /// between the two steps, so they are retried.
    fn create_folder(&self, folder: &Path) -> Result<(), Error> {
        let owner = self.owners.iter().find(|owner| folder.starts_with(owner));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Create { path, source }
        };
        let mut attempts = 0;
        loop {
            match std::fs::create_dir(folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && owner.is_some() && attempts < 10 => {
                }
                result => return result.map_err(failed(folder)),
            }
            attempts += 1;
            if let Some(owner) = owner {
                match std::fs::create_dir(owner) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(failed(owner)(error));
                    }
                    Ok(()) if self.version == Version::V2 => {
                        detect::enable(owner, self.places.cpu.is_some())?
                    }
                    _ => {}
                }
            }
        }
    }

    /// Replaces the limits, even of a group in use.
    ///
    /// # Errors
    /// If the kernel rejects one, for example less memory than is in use.
    pub fn set_limits(&mut self, limits: GroupLimits) -> Result<(), Error> {
        self.limits = None;
        self.write_limits(limits)?;
        self.limits = Some(limits);
        Ok(())
    }

    /// Limits the memory of TCP's buffers, approximately. Version 1 counts it apart from all other memory; in version 2 the limit
    /// on memory holds for it, too. Nothing happens on a kernel without that count.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn limit_socket_buffers(&self, bytes: u64) -> Result<(), Error> {
        let path = self.places.memory.join("memory.kmem.tcp.limit_in_bytes");
        match self.version {
            Version::V1 if path.exists() => write(path, &bytes.to_string()),
            Version::V1 | Version::V2 => Ok(()),
        }
    }

    fn write_limits(&self, limits: GroupLimits) -> Result<(), Error> {
        write(self.places.pids.join("pids.max"), &limits.pids.to_string())?;
        match self.version {
            Version::V1 => self.set_memory_v1(limits.memory_bytes)?,
            Version::V2 => self.set_memory_v2(limits.memory_bytes)?,
        }
        let Some(cpu) = &self.places.cpu else {
            return Ok(());
        };
        let quota = (limits.cpus * CPU_PERIOD).max(LEAST_QUOTA).round();
        let set = match self.version {
            Version::V1 => write(cpu.join("cpu.cfs_quota_us"), &quota.to_string()),
            Version::V2 => write(cpu.join("cpu.max"), &format!("{quota} {CPU_PERIOD}")),
        };
        match set {
            // A parent group has less. Its limit applies, which is the stricter one.
            Err(Error::Write { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }

    /// Sets the memory limit. Version 1 has one limit for memory and one for memory with swap, and the second
    /// is never below the first.
    fn set_memory_v1(&self, bytes: u64) -> Result<(), Error> {
        let value = bytes.to_string();
        let limit = self.places.memory.join("memory.limit_in_bytes");
        let with_swap = self.places.memory.join("memory.memsw.limit_in_bytes");
        if !with_swap.exists() {
            return write(limit, &value);
        }
        match write(limit.clone(), &value) {
            Ok(()) => write(with_swap, &value),
            Err(_) => write(with_swap, &value).and_then(|()| write(limit, &value)),
        }
    }

    fn set_memory_v2(&self, bytes: u64) -> Result<(), Error> {
        let folder = &self.places.memory;
        write(folder.join("memory.max"), &bytes.to_string())?;
        // A guest must die as a whole: with one of its processes killed the rest would only hang. Kernels
        // without swap lack the other file.
        for (name, value) in [("memory.swap.max", "0"), ("memory.oom.group", "1")] {
            let path = folder.join(name);
            if path.exists() {
                write(path, value)?;
            }
        }
        Ok(())
    }

    /// Returns the entry files of each controller's tree, open for writing: a single-threaded process enters
    /// by writing `0` to all.
    pub fn procs(&self) -> &[File] {
        &self.procs
    }

    /// Returns the processes in the group, as pids of the current namespace.
    ///
    /// # Errors
    /// If the kernel's list cannot be read.
    pub fn members(&self) -> Result<Vec<u32>, Error> {
        let list = read(self.places.pids.join("cgroup.procs"))?;
        Ok(list
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect())
    }

    /// Returns the usage. Values that the kernel does not provide are absent, or 0.
    pub fn usage(&self) -> Usage {
        self.counters.read().since(&self.baseline)
    }

    /// Returns the usage since the last call, or since the creation. The peak is that of the interval if it
    /// can be reset (version 1), else the overall one.
    pub fn take_usage(&mut self) -> Usage {
        let usage = self.restart_counting();
        // Without a reset, the overall peak remains.
        let _ = self.counters.reset_peak();
        usage
    }

    /// Returns the usage until now, from which later usage is counted.
    fn restart_counting(&mut self) -> Usage {
        let now = self.counters.read();
        let before = std::mem::replace(&mut self.baseline, now);
        now.since(&before)
    }

    /// Returns a gauge of the memory in use, which stays valid after the group has been handed on.
    pub fn memory_gauge(&self) -> MemoryGauge {
        let name = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        MemoryGauge(self.places.memory.join(name))
    }

    /// Returns a gauge of the group's tasks, if the kernel counts them.
    pub fn task_gauge(&self) -> Option<TaskGauge> {
        self.counters.tasks().map(|file| TaskGauge(Arc::clone(file)))
    }

    /// Returns the group's freezer, if the group was made with one and the kernel has it.
    pub fn freezer(&self) -> Option<Freezer> {
        let folder = self.places.freezer.as_ref()?;
        let kernel_has_it = self.version == Version::V1 || folder.join("cgroup.freeze").exists();
        kernel_has_it.then(|| Freezer::new(self.version, folder))
    }

    /// Returns `true` if processor time is counted for all processes of the group together.
    pub fn counts_processor_time(&self) -> bool {
        self.places.accounting.is_some()
    }

    /// Restarts the counters for the next guest. Returns `true` if the group can be reused: it has no
    /// process, not even a zombie, the same limits, hardly any charge, a reset peak (version 2 cannot reset
    /// it), and was never at its limits. If not, create another.
    pub fn reset(&mut self, limits: GroupLimits) -> bool {
        let usage = self.restart_counting();
        let is_empty = |tasks: TaskGauge| matches!(tasks.read(), Ok(0));
        (usage.oom_kills, usage.pids_max_hits) == (0, 0)
            && self.limits == Some(limits)
            && self.places.freezer.is_none()
            && self.task_gauge().is_some_and(is_empty)
            && self.counters.memory().is_some_and(|bytes| bytes < LEFT_OVER)
            && self.counters.reset_peak().is_ok()
    }

    /// Kills all members. Where the kernel cannot (version 1, and version 2 before Linux 5.14), each is killed by itself, and
    /// what they start meanwhile is not.
    ///
    /// # Errors
    /// If the kernel's list cannot be read.
    pub fn kill_all(&self) -> Result<(), Error> {
        let file = self.places.pids.join("cgroup.kill");
        if self.version == Version::V2 && file.exists() && write(file, "1").is_ok() {
            return Ok(());
        }
        let open = |member: u32| {
            let pid = Pid::from_raw(i32::try_from(member).ok()?)?;
            Some((member, pidfd_open(pid, PidfdFlags::empty()).ok()?))
        };
        let opened: Vec<_> = self.members()?.into_iter().filter_map(open).collect();
        // One that has left the list may have been another process by the time it was opened.
        let members = self.members()?;
        for (_, process) in opened.iter().filter(|(member, _)| members.contains(member)) {
            // It may have ended.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        Ok(())
    }

    /// Removes the group, waiting up to a tenth of a second for exiting processes.
    ///
    /// # Errors
    /// If it still has processes.
    pub fn close(mut self) -> Result<(), Error> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + TIMEOUT;
        let mut result = Ok(());
        for folder in std::mem::take(&mut self.folders) {
            result = result.and(remove(&folder, deadline));
        }
        for owner in std::mem::take(&mut self.owners) {
            // Fails while the owner has other slots.
            let _ = std::fs::remove_dir(owner);
        }
        result
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: GroupLimits = GroupLimits {
        memory_bytes: 64 << 20,
        pids: 16,
        cpus: 0.5,
    };

    /// Creates a version 2 group over a plain directory, which contains the files that the kernel would
    /// create.
    fn unified(folder: &Path, files: &[(&str, &str)]) -> Group {
        for (name, content) in files {
            std::fs::write(folder.join(name), content).unwrap();
        }
        let all = || folder.to_owned();
        let places = GroupPaths {
            memory: all(),
            pids: all(),
            cpu: Some(all()),
            accounting: Some(all()),
            freezer: None,
        };
        let (folders, owners, procs) = (Vec::new(), Vec::new(), Vec::new());
        Group {
            version: Version::V2,
            counters: Counters::open(Version::V2, &places),
            places,
            folders,
            owners,
            procs,
            baseline: Usage::default(),
            limits: Some(LIMITS),
        }
    }

    #[test]
    fn version2_takes_its_limits() {
        let folder = tempfile::tempdir().unwrap();
        let mut group = unified(
            folder.path(),
            &[("memory.swap.max", "max"), ("memory.oom.group", "0")],
        );
        group.set_limits(LIMITS).unwrap();
        let files = [
            "memory.max",
            "memory.swap.max",
            "memory.oom.group",
            "pids.max",
            "cpu.max",
        ];
        let found = files.map(|name| read(folder.path().join(name)).unwrap());
        assert_eq!(found, ["67108864", "0", "1", "16", "50000 100000"]);
        group
            .set_limits(GroupLimits {
                cpus: 0.0001,
                ..LIMITS
            })
            .unwrap();
        assert_eq!(
            read(folder.path().join("cpu.max")).unwrap(),
            "1000 100000",
            "the least that the kernel takes"
        );
    }

    #[test]
    fn version2_tells_its_use_since_the_reset() {
        let folder = tempfile::tempdir().unwrap();
        let events = "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 1\n";
        let mut group = unified(
            folder.path(),
            &[
                ("memory.peak", "4096\n"),
                ("memory.events", events),
                ("pids.events", "max 3\n"),
                ("cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
            ],
        );
        let expected = Usage {
            peak_memory_bytes: Some(4096),
            cpu_seconds: Some(2.5),
            oom_kills: 1,
            pids_max_hits: 3,
        };
        assert_eq!(group.usage(), expected);
        assert!(!group.reset(LIMITS), "the peak cannot be reset");
        std::fs::write(folder.path().join("cpu.stat"), "usage_usec 3000000\n").unwrap();
        let expected = Usage {
            peak_memory_bytes: Some(4096),
            cpu_seconds: Some(0.5),
            oom_kills: 0,
            pids_max_hits: 0,
        };
        assert_eq!(group.usage(), expected);
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(unified(folder.path(), &[]).usage(), Usage::default());
    }

    /// The controllers do not matter here, so the empty version 2 tree beside a full version 1 suffices.
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "a child to be killed, in a control group alone"
    )]
    fn version2_ends_its_members_at_once() {
        let mounts = read("/proc/self/mounts".into()).unwrap();
        let tree = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|line| line[2] == "cgroup2");
        let own =
            tree.map(|line| PathBuf::from(line[1]).join(format!("ringfence-test-v2-{}", std::process::id())));
        let Some(own) = own.filter(|own| std::fs::create_dir(own).is_ok()) else {
            eprintln!("skipped: no group can be made at the top of a version 2 tree");
            return;
        };
        let places = GroupPaths {
            memory: own.clone(),
            pids: own.clone(),
            cpu: None,
            accounting: Some(own.clone()),
            freezer: None,
        };
        let group = Group::create(Version::V2, &places, "slot").unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        write(own.join("slot/cgroup.procs"), &child.id().to_string()).unwrap();
        assert_eq!(group.members().unwrap(), [child.id()]);
        assert!(group.usage().cpu_seconds.is_some());
        group.kill_all().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
            Some(libc::SIGKILL)
        );
        group.close().unwrap();
        std::fs::remove_dir(&own).unwrap();
    }
}
