//! Reads what the control group of a container counts, if it is one of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use super::runtime::Id;
use super::streams::Use;

/// Mount point of control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Returns the counters of a container, of which `pid` is a process; `None` if its groups are not visible here.
///
/// An engine takes up to a second for the same figures, and some tell no peak of memory.
pub(super) fn read(id: &Id, pid: u32) -> Option<Use> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    read_below(Path::new(GROUPS), &groups, id)
}

fn read_below(mount: &Path, groups: &str, id: &Id) -> Option<Use> {
    let group = |controller: &str| Some(mount.join(controller).join(group(groups, controller, id)?));
    let (cpu_seconds, memory, peak) = match (group("cpuacct"), group("memory")) {
        (Some(cpu), Some(memory)) => (
            number(&cpu.join("cpuacct.usage"))? as f64 / 1e9,
            memory.join("memory.usage_in_bytes"),
            memory.join("memory.max_usage_in_bytes"),
        ),
        _ => {
            let own = group("")?;
            let stat = fs::read_to_string(own.join("cpu.stat")).ok()?;
            let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
            let seconds = micros.trim().parse::<u64>().ok()? as f64 / 1e6;
            (seconds, own.join("memory.current"), own.join("memory.peak"))
        }
    };
    Some(Use {
        memory_bytes: number(&memory),
        memory_peak_bytes: number(&peak),
        cpu_seconds: Some(cpu_seconds),
        pids: None,
    })
}

/// Returns the path of the container's own group in a hierarchy, as `/proc/PID/cgroup` names it. Some OCI runtimes put the
/// processes into a group below.
fn group(groups: &str, controller: &str, id: &Id) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = controllers.split(',').any(|found| found == controller);
        is_it.then(|| path.trim_start_matches('/'))
    })?;
    let parts: Vec<&str> = path.split('/').collect();
    let own = parts.iter().position(|part| part.contains(id.as_str()))?;
    let own = &parts[..=own];
    // A path out of the group of this process's namespace leads nowhere below the mount.
    (!own.contains(&"..")).then(|| own.iter().collect())
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_read() {
        let mount = tempfile::tempdir().unwrap();
        let id = Id::new("0123abcd").unwrap();
        let write = |path: &str, text: &str| {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let check = |groups: &str, expected: Option<(f64, u64)>| {
            let found = read_below(mount.path(), groups, &id);
            let found = found.map(|used| (used.cpu_seconds.unwrap(), used.memory_peak_bytes.unwrap()));
            assert_eq!(found, expected, "{groups}");
        };
        write("cpuacct/docker/0123abcd/cpuacct.usage", "2500000000\n");
        write("memory/docker/0123abcd/memory.max_usage_in_bytes", "4096\n");
        let first = "4:memory:/docker/0123abcd\n2:cpu,cpuacct:/docker/0123abcd\n0::/docker/0123abcd\n";
        check(first, Some((2.5, 4096)));
        write(
            "s.slice/libpod-0123abcd.scope/cpu.stat",
            "usage_usec 1500000\nuser_usec 1\n",
        );
        write("s.slice/libpod-0123abcd.scope/memory.peak", "8192\n");
        check("0::/s.slice/libpod-0123abcd.scope/container\n", Some((1.5, 8192)));
        for other in ["0::/../0123abcd\n", "0::/s.slice/another\n", ""] {
            check(other, None);
        }
    }
}
