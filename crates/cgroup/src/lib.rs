//! Cgroups: limits on a guest's memory, processes and processor time.
//!
//! Supports both versions of the kernel's interface. In version 1 each controller has a tree of its own; in
//! version 2 there is one tree, where a group that contains processes cannot delegate controllers to its
//! children. Groups are created below the server's own group, in a directory per server, so that the next
//! server can find the leftovers of a killed one: `<own group>/ringfence-<owner>/<slot>`.
//!
//! A child enters a group by writing `0` to the file descriptors of [`Group::procs`]: that needs no path, no
//! pid and, in version 2, no permission beyond that of the server when it opened them.
//!
//! The memory limits of version 2 were tested on simulated directories only: the available machines have an
//! empty version 2 tree beside a full version 1.
#![forbid(unsafe_code)]

mod counters;
mod detect;
mod freezer;
mod group;

pub use detect::Detection;
pub use freezer::Freezer;
pub use group::{Group, MemoryGauge, TaskGauge, Usage};

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The version of the kernel's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One tree per controller.
    V1,
    /// One tree for all.
    V2,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupLimits {
    /// Memory of every kind, including tmpfs and page cache; no swap on top.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Processor time per wall time; 1.0 is one processor.
    pub cpus: f64,
}

/// The error of an operation on a group.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kernel file could not be read.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A kernel file rejected a value.
    #[error("writing `{value}` to {path}")]
    Write {
        /// The file.
        path: PathBuf,
        value: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A group could not be created.
    #[error("creating the control group {path}")]
    Create {
        /// Directory of the group.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A group could not be removed, most likely because it still has processes.
    #[error("removing the control group {path}")]
    Remove {
        /// Directory of the group.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A name that is not `ringfence-<owner>` or `ringfence-<owner>/<slot>` in letters, digits, `-`, `_` and
    /// `.`.
    #[error("`{name}` cannot name a control group")]
    Name {
        /// The given name.
        name: String,
    },
}

/// The parent of new groups: the server's own group, in each controller's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    version: Version,
    /// Without a freezer, which costs every group a directory more in version 1 and which few need.
    own: GroupPaths,
    /// Directory of the freezer's tree.
    freezer: Option<PathBuf>,
}

/// A group's directory in the tree of each controller. In version 2, and where version 1 mounts controllers
/// together, some are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupPaths {
    memory: PathBuf,
    pids: PathBuf,
    cpu: Option<PathBuf>,
    /// Directory of the processor time counter: `cpuacct` in version 1.
    accounting: Option<PathBuf>,
    freezer: Option<PathBuf>,
}

impl GroupPaths {
    fn join(&self, name: &str) -> Self {
        Self {
            memory: self.memory.join(name),
            pids: self.pids.join(name),
            cpu: self.cpu.as_ref().map(|path| path.join(name)),
            accounting: self.accounting.as_ref().map(|path| path.join(name)),
            freezer: self.freezer.as_ref().map(|path| path.join(name)),
        }
    }

    fn distinct(&self) -> Vec<PathBuf> {
        let mut all: Vec<_> = [&self.memory, &self.pids]
            .into_iter()
            .chain(&self.cpu)
            .chain(&self.accounting)
            .chain(&self.freezer)
            .collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().cloned().collect()
    }
}

/// Prefix of every directory created here, so that [`Hierarchy::sweep`] never removes another program's.
const PREFIX: &str = "ringfence-";
/// Prefix of probe directories; a pid follows.
const PROBE: &str = "ringfence-probe-";
/// The leaf that the server moves to in version 2; see `detect`.
const ENGINE: &str = "ringfence-engine";

/// Time for a group whose last process has just exited to become removable.
const TIMEOUT: Duration = Duration::from_millis(100);

impl Hierarchy {
    /// Finds the parent of new groups with limits on memory and processes.
    ///
    /// # Errors
    /// If `/proc` cannot be read. `None` if there is no such parent; [`Self::detect_verbose`] gives the
    /// reasons.
    pub fn detect() -> Result<Option<Self>, Error> {
        detect::detect().map(|detection| detection.hierarchy)
    }

    /// Like [`Self::detect`], with the reasons for missing features.
    pub fn detect_verbose() -> Detection {
        detect::detect().unwrap_or_else(|error| Detection {
            hierarchy: None,
            reasons: vec![detect::explain(&error)],
        })
    }

    /// Returns the interface version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns `true` if processor time can be limited; otherwise [`GroupLimits::cpus`] has no effect.
    pub fn limits_cpu(&self) -> bool {
        self.own.cpu.is_some()
    }

    /// Creates the group `ringfence-<owner>` or `ringfence-<owner>/<slot>`, and the owner's directory on
    /// demand.
    ///
    /// # Errors
    /// If the name has another form, the group exists, or the kernel rejects a limit; then nothing is left
    /// behind.
    pub fn group(&self, name: &str, limits: GroupLimits) -> Result<Group, Error> {
        if !is_name(name) {
            return Err(Error::Name {
                name: name.to_owned(),
            });
        }
        let mut group = Group::create(self.version, &self.own, name)?;
        group.set_limits(limits)?;
        Ok(group)
    }

    /// Like [`Self::group`], with a [`Freezer`] if the kernel has one. Such a group is for one guest, and not to be
    /// used again: the next guest must never begin frozen.
    ///
    /// # Errors
    /// As [`Self::group`].
    pub fn freezable_group(&self, name: &str, limits: GroupLimits) -> Result<Group, Error> {
        let with_freezer = Self {
            own: self.paths_with_freezer(),
            ..self.clone()
        };
        with_freezer.group(name, limits)
    }

    fn paths_with_freezer(&self) -> GroupPaths {
        GroupPaths {
            freezer: self.freezer.clone(),
            ..self.own.clone()
        }
    }

    /// Removes the groups of killed servers: the trees of all owners for which `is_dead` returns `true`.
    /// Returns the owners whose groups were removed completely.
    pub fn sweep(&self, is_dead: &dyn Fn(&str) -> bool) -> Vec<String> {
        if let Some(folder) = &self.freezer {
            for name in subfolders(folder) {
                if owner_of(&name).is_some_and(is_dead) {
                    kill_frozen(&folder.join(&name));
                }
            }
        }
        let deadline = Instant::now() + TIMEOUT;
        let mut removed = Vec::new();
        let mut kept = Vec::new();
        for folder in self.paths_with_freezer().distinct() {
            for name in subfolders(&folder) {
                let path = folder.join(&name);
                if name.starts_with(PROBE) {
                    // Always empty. If its creator is just about to remove it, one of the two comes first.
                    let _ = std::fs::remove_dir(&path);
                } else if let Some(owner) = owner_of(&name).filter(|owner| is_dead(owner)) {
                    let gone = remove_tree(&path, deadline).is_ok();
                    if gone { &mut removed } else { &mut kept }.push(owner.to_owned());
                }
            }
        }
        removed.sort_unstable();
        removed.dedup();
        removed.retain(|owner| !kept.contains(owner));
        removed
    }
}

/// Returns the owner of a directory that one of our servers made; `None` for those of others.
fn owner_of(name: &str) -> Option<&str> {
    let owner = name.strip_prefix(PREFIX)?;
    (name != ENGINE && !name.starts_with(PROBE)).then_some(owner)
}

fn is_name(name: &str) -> bool {
    let plain = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && part.len() <= 128 && part.chars().all(known) && part.trim_matches('.') == part
    };
    let (owner, slot) = name
        .split_once('/')
        .map_or((name, None), |(owner, slot)| (owner, Some(slot)));
    owner.len() > PREFIX.len()
        && owner.starts_with(PREFIX)
        && !owner.starts_with(PROBE)
        && owner != ENGINE
        && plain(owner)
        && slot.is_none_or(plain)
}

fn subfolders(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Kills the frozen processes of a tree of version 1. Those of a killed server's paused sandbox have lost their parents, and
/// keep the groups of every hierarchy busy until then.
fn kill_frozen(folder: &Path) {
    if !folder.join("freezer.state").exists() {
        return;
    }
    let _ = Freezer::new(Version::V1, folder).kill_and_thaw();
    for name in subfolders(folder) {
        kill_frozen(&folder.join(name));
    }
}

fn remove_tree(folder: &Path, deadline: Instant) -> Result<(), Error> {
    // Version 2 kills its processes; version 1 has no such file.
    let _ = std::fs::OpenOptions::new()
        .write(true)
        .open(folder.join("cgroup.kill"))
        .and_then(|mut file| {
            use io::Write;
            file.write_all(b"1")
        });
    for name in subfolders(folder) {
        remove_tree(&folder.join(name), deadline)?;
    }
    remove(folder, deadline)
}

/// Removes an empty group. It stays busy for a moment after its last process has exited.
fn remove(folder: &Path, deadline: Instant) -> Result<(), Error> {
    loop {
        match std::fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_micros(500));
            }
            Err(source) => {
                return Err(Error::Remove {
                    path: folder.to_owned(),
                    source,
                });
            }
        }
    }
}

fn read(path: PathBuf) -> Result<String, Error> {
    std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })
}

fn write(path: PathBuf, value: &str) -> Result<(), Error> {
    std::fs::write(&path, value).map_err(|source| Error::Write {
        path,
        value: value.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_own_group() {
        for name in ["ringfence-12", "ringfence-12/slot-3", "ringfence-a.b_c/0"] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            "ringfence-",
            "other/slot",
            "ringfence-1/a/b",
            "ringfence-1/",
            "ringfence-1/..",
            "ringfence-1/.",
            "../ringfence-1",
            "ringfence-probe-7",
            "ringfence-engine",
            "ringfence-1/a b",
            "ringfence-../x",
            "/ringfence-1",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }

    fn fake(folder: &Path) -> Hierarchy {
        let all = || folder.to_owned();
        let own = GroupPaths {
            memory: all(),
            pids: all(),
            cpu: Some(all()),
            accounting: Some(all()),
            freezer: None,
        };
        Hierarchy {
            version: Version::V2,
            own,
            freezer: None,
        }
    }

    #[test]
    fn sweeping_spares_the_living_and_strangers() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "ringfence-dead/a",
            "ringfence-dead/b",
            "ringfence-alive/a",
            "other",
            "ringfence-engine",
            "ringfence-probe-1",
        ] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        assert_eq!(fake(folder.path()).sweep(&|owner| owner == "dead"), ["dead"]);
        let mut left = subfolders(folder.path());
        left.sort_unstable();
        assert_eq!(left, ["other", "ringfence-alive", "ringfence-engine"]);
        assert!(folder.path().join("ringfence-alive/a").exists());
    }

    #[test]
    fn an_owner_of_whom_something_stays_is_not_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (memory, pids) = (folder.path().join("memory"), folder.path().join("pids"));
        for tree in [&memory, &pids] {
            std::fs::create_dir_all(tree.join("ringfence-gone")).unwrap();
            std::fs::create_dir_all(tree.join("ringfence-stuck")).unwrap();
        }
        std::fs::write(pids.join("ringfence-stuck/file"), "keeps the folder from going").unwrap();
        let own = GroupPaths {
            memory: memory.clone(),
            pids,
            cpu: None,
            accounting: None,
            freezer: None,
        };
        let hierarchy = Hierarchy {
            version: Version::V1,
            own,
            freezer: None,
        };
        assert_eq!(hierarchy.sweep(&|_| true), ["gone"]);
        assert_eq!(
            subfolders(&memory),
            [""; 0],
            "the other tree is cleared all the same"
        );
    }
}
