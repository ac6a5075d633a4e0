//! Detects where this process can create groups, by reading `/proc` and trying.

use super::{ENGINE, Error, GroupPaths, Hierarchy, PROBE, Version, read, write};
use ringfence_jail::unescape;
use std::io;
use std::path::{Path, PathBuf};

/// The detected hierarchy, and the reasons for missing features.
#[derive(Debug)]
pub struct Detection {
    /// The hierarchy, if usable.
    pub hierarchy: Option<Hierarchy>,
    /// One sentence for each missing feature, with or without a substitute.
    pub reasons: Vec<String>,
}

pub(super) fn detect() -> Result<Detection, Error> {
    let memberships = read(PathBuf::from("/proc/self/cgroup"))?;
    let mounts = read(PathBuf::from("/proc/self/mountinfo"))?;
    Ok(examine(&memberships, &mounts))
}

/// Formats an error and its cause on one line.
pub(super) fn explain(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Tries version 2 first: if it has the controllers, version 1 cannot have them.
fn examine(memberships: &str, mounts: &str) -> Detection {
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    let memberships: Vec<Membership> = memberships.lines().filter_map(Membership::parse).collect();
    let mut reasons = Vec::new();
    let mut hierarchy = None;
    for attempt in [version2, version1] {
        match attempt(&memberships, &mounts, &mut reasons) {
            Ok(found) => {
                hierarchy = Some(found);
                break;
            }
            Err(reason) => reasons.push(reason),
        }
    }
    Detection { hierarchy, reasons }
}

/// A line of `/proc/self/cgroup`: the controllers of a tree, and this process's group in it.
struct Membership<'a> {
    /// Empty for version 2.
    controllers: &'a str,
    group: &'a str,
}

impl<'a> Membership<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(3, ':').skip(1);
        Some(Self {
            controllers: parts.next()?,
            group: parts.next()?,
        })
    }
}

/// A line of `/proc/self/mountinfo`, reduced to the fields about groups.
struct Mount {
    /// The group at the mount point.
    root: String,
    point: PathBuf,
    version: Version,
    /// Mount options, including the controllers of version 1.
    options: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut text = || String::from_utf8(unescape(place.next()?.as_bytes())).ok();
        let (root, point) = (text()?, text()?);
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup" => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        Some(Self {
            root,
            point: point.into(),
            version,
            options: kind.nth(1)?.to_owned(),
        })
    }

    /// Returns the directory of a group, if it is visible through this mount.
    fn folder(&self, group: &str) -> Option<PathBuf> {
        let inner = Path::new(group).strip_prefix(&self.root).ok()?;
        // A group outside the current cgroup namespace is written with `..`.
        let plain = inner
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        let folder = self.point.join(inner);
        (plain && folder.is_dir()).then_some(folder)
    }
}

fn version1(
    memberships: &[Membership<'_>],
    mounts: &[Mount],
    reasons: &mut Vec<String>,
) -> Result<Hierarchy, String> {
    let place = |controller: &str| {
        let lists = |list: &str| list.split(',').any(|item| item == controller);
        let group = memberships
            .iter()
            .find(|membership| lists(membership.controllers))
            .map(|found| found.group);
        let group = group.ok_or_else(|| format!("cgroup v1: the controller {controller} is not there"))?;
        let fitting = mounts
            .iter()
            .filter(|mount| mount.version == Version::V1 && lists(&mount.options));
        let folder = fitting.filter_map(|mount| mount.folder(group)).next();
        let folder = folder
            .ok_or_else(|| format!("cgroup v1: our group of the controller {controller} is not mounted"))?;
        probe(&folder)
            .map_err(|error| format!("cgroup v1: no group can be made in {}: {error}", folder.display()))?;
        Ok(folder)
    };
    let (memory, pids) = (place("memory")?, place("pids")?);
    let mut optional = |controller: &str, without: &str| {
        place(controller)
            .map_err(|reason: String| reasons.push(format!("{reason} ({without})")))
            .ok()
    };
    let cpu = optional("cpu", "processor time is not limited");
    let accounting = optional("cpuacct", "processor time is not counted");
    let freezer = optional("freezer", "sandboxes cannot be paused");
    Ok(Hierarchy {
        version: Version::V1,
        own: GroupPaths {
            memory,
            pids,
            cpu,
            accounting,
            freezer: None,
        },
        freezer,
    })
}

fn version2(
    memberships: &[Membership<'_>],
    mounts: &[Mount],
    reasons: &mut Vec<String>,
) -> Result<Hierarchy, String> {
    let group = memberships
        .iter()
        .find(|membership| membership.controllers.is_empty())
        .map(|found| found.group);
    let group = group.ok_or("cgroup v2: this kernel has none")?;
    let unified = mounts.iter().filter(|mount| mount.version == Version::V2);
    let folder = unified.filter_map(|mount| mount.folder(group)).next();
    let mut folder = folder.ok_or("cgroup v2: our group is not mounted")?;
    if folder.file_name().is_some_and(|name| name == ENGINE) {
        folder.pop();
    }
    let offered =
        read(folder.join("cgroup.controllers")).map_err(|error| format!("cgroup v2: {}", explain(&error)))?;
    let has = |controller: &str| offered.split_whitespace().any(|item| item == controller);
    if let Some(missing) = ["memory", "pids"].into_iter().find(|controller| !has(controller)) {
        return Err(format!(
            "cgroup v2: the controller {missing} is not delegated to {}",
            folder.display()
        ));
    }
    let cpu = has("cpu").then(|| folder.clone());
    if cpu.is_none() {
        reasons.push(
            "cgroup v2: the controller cpu is not delegated (processor time is not limited)".to_owned(),
        );
    }
    delegate(&folder, cpu.is_some()).map_err(|error| match busy(&error) {
        true => format!(
            "cgroup v2: {} holds other processes, so it cannot hand on its controllers",
            folder.display()
        ),
        false => format!("cgroup v2: {}", explain(&error)),
    })?;
    probe(&folder)
        .map_err(|error| format!("cgroup v2: no group can be made in {}: {error}", folder.display()))?;
    let all = || folder.clone();
    // cpu.stat counts time with or without the controller.
    Ok(Hierarchy {
        version: Version::V2,
        own: GroupPaths {
            memory: all(),
            pids: all(),
            cpu,
            accounting: Some(all()),
            freezer: None,
        },
        freezer: Some(all()),
    })
}

/// Creates and removes a group, to prove that it is possible.
fn probe(folder: &Path) -> io::Result<()> {
    let probe = folder.join(format!("{PROBE}{}", std::process::id()));
    match std::fs::create_dir(&probe) {
        // Another thread of this process is probing, too.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            // A sweep may have been quicker; only the creation counts.
            let _ = std::fs::remove_dir(&probe);
            Ok(())
        }
    }
}

/// Enables the controllers for the children of a version 2 group.
pub(super) fn enable(folder: &Path, cpu: bool) -> Result<(), Error> {
    write(
        folder.join("cgroup.subtree_control"),
        if cpu {
            "+memory +pids +cpu"
        } else {
            "+memory +pids"
        },
    )
}

/// Like [`enable`], for this process's own group. The kernel rejects that for a group that contains
/// processes: if all of them are this process and its descendants, as in a scope that systemd made for it,
/// they first move to a leaf. A run without a server has a launcher by now, which may be starting processes
/// of its own.
fn delegate(folder: &Path, cpu: bool) -> Result<(), Error> {
    const ATTEMPTS: usize = 20;
    let leaf = folder.join(ENGINE);
    let mut result = enable(folder, cpu);
    for _ in 0..ATTEMPTS {
        if !result.as_ref().is_err_and(busy) || !move_ours(folder, &leaf)? {
            return result;
        }
        result = enable(folder, cpu);
    }
    result
}

/// Moves the processes of a group to a leaf of it; `false` if one is neither this process nor a descendant.
fn move_ours(folder: &Path, leaf: &Path) -> Result<bool, Error> {
    let own = std::process::id();
    let inside = read(folder.join("cgroup.procs"))?;
    // Processes hidden by another pid namespace are shown as 0.
    let pids: Vec<u32> = inside
        .split_whitespace()
        .map(|pid| pid.parse().unwrap_or(0))
        .collect();
    if !pids.iter().all(|pid| descends(*pid, own)) {
        return Ok(false);
    }
    match std::fs::create_dir(leaf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let path = leaf.to_path_buf();
            return Err(Error::Create { path, source: error });
        }
        _ => {}
    }
    for pid in pids {
        match write(leaf.join("cgroup.procs"), &pid.to_string()) {
            // It has exited meanwhile.
            Err(Error::Write { source, .. })
                if source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
            result => result?,
        }
    }
    Ok(true)
}

/// Returns `true` if a process is `ancestor` or a descendant of it.
fn descends(pid: u32, ancestor: u32) -> bool {
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before it may contain anything.
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    let line = std::iter::successors((pid != 0).then_some(pid), |pid| parent(*pid));
    line.take_while(|pid| *pid != 0).any(|pid| pid == ancestor)
}

fn busy(error: &Error) -> bool {
    matches!(error, Error::Write { source, .. } if source.kind() == io::ErrorKind::ResourceBusy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a simulated tree, and the detection result of a process in `group`, with the tree mounted from
    /// `root`.
    fn unified(root: &str, group: &str, controllers: &str) -> (tempfile::TempDir, Detection) {
        let folder = tempfile::tempdir().unwrap();
        let own = folder
            .path()
            .join(Path::new(group).strip_prefix(root).unwrap_or(Path::new("")));
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("cgroup.controllers"), controllers).unwrap();
        let mounts = format!(
            "22 1 0:5 / /proc rw - proc proc rw\n30 22 0:26 {root} {} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
            folder.path().display()
        );
        let detection = examine(&format!("0::{group}\n"), &mounts);
        (folder, detection)
    }

    #[test]
    fn version2_is_found_where_it_is_delegated() {
        let (folder, detection) = unified("/", "/user.slice/app.scope", "cpuset cpu io memory pids\n");
        let own = folder.path().join("user.slice/app.scope");
        let found = detection.hierarchy.unwrap();
        assert_eq!(
            (found.version(), found.limits_cpu(), &found.own.memory),
            (Version::V2, true, &own)
        );
        assert_eq!(detection.reasons, [""; 0]);
        assert_eq!(
            read(own.join("cgroup.subtree_control")).unwrap(),
            "+memory +pids +cpu"
        );
        assert_eq!(crate::subfolders(&own), [""; 0], "the probe is gone");
    }

    #[test]
    fn without_the_cpu_controller_the_rest_still_counts() {
        let (folder, detection) = unified("/", "/a", "memory pids\n");
        assert!(!detection.hierarchy.unwrap().limits_cpu());
        assert!(
            detection.reasons[0].contains("processor time is not limited"),
            "{:?}",
            detection.reasons
        );
        assert_eq!(
            read(folder.path().join("a/cgroup.subtree_control")).unwrap(),
            "+memory +pids"
        );
    }

    #[test]
    fn a_mount_of_a_part_of_the_tree_is_understood() {
        let (folder, detection) = unified("/docker/abc", "/docker/abc", "memory pids cpu");
        assert_eq!(detection.hierarchy.unwrap().own.pids, folder.path());
    }

    #[test]
    fn the_engines_leaf_stands_for_its_parent() {
        let (folder, _) = unified("/", "/scope", "memory pids cpu");
        std::fs::create_dir(folder.path().join("scope/ringfence-engine")).unwrap();
        let mounts = format!("30 22 0:26 / {} rw - cgroup2 cgroup2 rw", folder.path().display());
        let detection = examine("0::/scope/ringfence-engine", &mounts);
        assert_eq!(
            detection.hierarchy.unwrap().own.memory,
            folder.path().join("scope")
        );
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child to be recognised")]
    fn our_processes_are_recognised() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let (above, below) = (std::os::unix::process::parent_id(), child.id());
        let check =
            |pid, ancestor, expected| assert_eq!(descends(pid, ancestor), expected, "{pid} {ancestor}");
        check(own, own, true);
        check(below, own, true);
        check(below, above, true);
        check(above, own, false);
        check(1, own, false);
        check(0, own, false);
        child.kill().unwrap();
        child.wait().unwrap();
        check(below, own, false);
    }

    #[test]
    fn what_is_missing_is_said() {
        let check = |memberships: &str, mounts: &str, expected: &str| {
            let detection = examine(memberships, mounts);
            assert_eq!(detection.hierarchy, None);
            assert!(
                detection.reasons.iter().any(|reason| reason.contains(expected)),
                "{:?}",
                detection.reasons
            );
        };
        check("", "", "cgroup v2: this kernel has none");
        check("", "", "cgroup v1: the controller memory is not there");
        check("0::/", "", "cgroup v2: our group is not mounted");
        check(
            "4:memory:/a\n",
            "",
            "cgroup v1: our group of the controller memory is not mounted",
        );
        check(
            "0::/../other",
            "30 22 0:26 / /tmp rw - cgroup2 cgroup2 rw",
            "cgroup v2: our group is not mounted",
        );
        let (_folder, detection) = unified("/", "/", "hugetlb");
        assert!(
            detection.reasons[0].contains("the controller memory is not delegated"),
            "{:?}",
            detection.reasons
        );
    }

    #[test]
    fn version1_takes_controllers_from_their_own_mounts() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["memory/m", "pids/p", "cpu,cpuacct"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        let mount = |name: &str, options: &str| {
            format!(
                "3 2 0:3 / {} rw - cgroup cgroup rw,{options}\n",
                at(name).display()
            )
        };
        let mounts =
            mount("memory", "memory") + &mount("pids", "pids") + &mount("cpu,cpuacct", "cpu,cpuacct");
        let own = examine("4:memory:/m\n8:pids:/p\n1:cpu,cpuacct:/\n0::/\n", &mounts)
            .hierarchy
            .unwrap()
            .own;
        assert_eq!((&own.memory, &own.pids), (&at("memory/m"), &at("pids/p")));
        assert_eq!(
            (own.cpu.clone(), own.distinct().len()),
            (own.accounting.clone(), 3)
        );
        let without = examine("4:memory:/m\n8:pids:/p\n", &mounts);
        assert!(!without.hierarchy.unwrap().limits_cpu());
        assert_eq!(
            without.reasons.len(),
            4,
            "no v2, no cpu, no cpuacct, no freezer: {:?}",
            without.reasons
        );
    }
}
