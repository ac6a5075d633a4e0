//! Tests cgroups on the machine that the tests run on. Without permission to create them, each test reports
//! it and skips.
#![allow(
    unsafe_code,
    reason = "a child enters its groups between fork and exec, as a guest does"
)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a helper of a test is a test, too"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "the programs are started in a control group alone, without the jail"
)]

use ringfence_cgroup::{Group, GroupLimits, Hierarchy, Version};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const LIMITS: GroupLimits = GroupLimits {
    memory_bytes: 32 << 20,
    pids: 8,
    cpus: 0.5,
};

fn hierarchy() -> Option<Hierarchy> {
    let detection = Hierarchy::detect_verbose();
    if detection.hierarchy.is_none() {
        eprintln!("skipped: {}", detection.reasons.join("; "));
    }
    detection.hierarchy
}

/// Returns a name with the test's own owner directory, so that tests do not collide.
fn slot(test: &str) -> String {
    format!("ringfence-test-{test}-{}/slot", std::process::id())
}

fn folders(group: &Group) -> Vec<PathBuf> {
    let path =
        |file: &std::fs::File| std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    group
        .procs()
        .iter()
        .map(|file| path(file).parent().unwrap().to_owned())
        .collect()
}

/// Returns the value of a group's file, in whichever tree it is.
fn value(group: &Group, name: &str) -> Option<String> {
    let text = folders(group)
        .iter()
        .find_map(|folder| std::fs::read_to_string(folder.join(name)).ok())?;
    Some(text.trim().to_owned())
}

/// Starts a shell inside the group; its input stays open until it is dropped.
fn shell(group: &Group, script: &str) -> Child {
    let fds: Vec<_> = group.procs().iter().map(|file| file.as_raw_fd()).collect();
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let enter = move || {
        // SAFETY: one byte from a static string; the descriptors stay open in the parent until after the
        // fork.
        let entered = |fd: &i32| unsafe { libc::write(*fd, c"0".as_ptr().cast(), 1) == 1 };
        if fds.iter().all(entered) {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec the closure makes system calls and allocates nothing.
    unsafe { command.pre_exec(enter) };
    command.spawn().unwrap()
}

#[test]
fn limits_are_set_and_replaced() {
    let Some(hierarchy) = hierarchy() else { return };
    let mut group = hierarchy.group(&slot("limits"), LIMITS).unwrap();
    let (memory, cpu) = match hierarchy.version() {
        Version::V1 => ("memory.limit_in_bytes", "cpu.cfs_quota_us"),
        Version::V2 => ("memory.max", "cpu.max"),
    };
    let mut check = |limits: GroupLimits, quota: &str| {
        group.set_limits(limits).unwrap();
        assert_eq!(value(&group, memory), Some(limits.memory_bytes.to_string()));
        assert_eq!(value(&group, "pids.max"), Some(limits.pids.to_string()));
        if let Some(both) = value(&group, "memory.memsw.limit_in_bytes") {
            assert_eq!(both, limits.memory_bytes.to_string());
        }
        if hierarchy.limits_cpu() {
            assert_eq!(value(&group, cpu).unwrap().split(' ').next(), Some(quota));
        }
    };
    check(LIMITS, "50000");
    check(
        GroupLimits {
            memory_bytes: 64 << 20,
            pids: 9,
            cpus: 1.0,
        },
        "100000",
    );
    check(
        GroupLimits {
            memory_bytes: 16 << 20,
            pids: 7,
            cpus: 0.25,
        },
        "25000",
    );
}

/// If a parent group grants less processor time, as in a small container, the guest gets that and still runs.
#[test]
fn a_stricter_limit_above_holds() {
    let Some(hierarchy) = hierarchy() else { return };
    let name = slot("above");
    let mut first = hierarchy.group(&name, LIMITS).unwrap();
    let owner = |folder: &PathBuf| folder.parent().unwrap().join("cpu.cfs_quota_us");
    let Some(quota) = folders(&first).iter().map(owner).find(|file| file.exists()) else {
        eprintln!("skipped: no version 1 tree limits processor time");
        return;
    };
    first.set_limits(GroupLimits { cpus: 0.1, ..LIMITS }).unwrap();
    std::fs::write(quota, "20000").unwrap();
    let second = hierarchy.group(&format!("{name}-2"), LIMITS).unwrap();
    assert_eq!(
        value(&second, "cpu.cfs_quota_us").as_deref(),
        Some("-1"),
        "as much as the group above has"
    );
}

#[test]
fn closing_leaves_nothing() {
    let Some(hierarchy) = hierarchy() else { return };
    let name = slot("close");
    let group = hierarchy.group(&name, LIMITS).unwrap();
    let other = hierarchy.group(&format!("{name}-2"), LIMITS).unwrap();
    let slots = folders(&group);
    assert!(hierarchy.group(&name, LIMITS).is_err(), "a name is used once");
    assert!(
        slots.iter().all(|folder| folder.is_dir()),
        "and the failure does not remove the first"
    );
    group.close().unwrap();
    assert!(!slots.iter().any(|folder| folder.exists()));
    let owners: Vec<&Path> = slots.iter().filter_map(|folder| folder.parent()).collect();
    assert!(
        owners.iter().all(|owner| owner.is_dir()),
        "the other slot keeps the owner's folder"
    );
    drop(other);
    assert!(!owners.iter().any(|owner| owner.exists()));
}

#[test]
fn a_group_in_use_cannot_be_closed() {
    let Some(hierarchy) = hierarchy() else { return };
    let group = hierarchy.group(&slot("busy"), LIMITS).unwrap();
    let slots = folders(&group);
    let mut child = shell(&group, "read line");
    assert_eq!(group.members().unwrap(), [child.id()]);
    assert!(group.close().is_err());
    child.kill().unwrap();
    child.wait().unwrap();
    let owner = format!("test-busy-{}", std::process::id());
    assert_eq!(hierarchy.sweep(&|candidate| candidate == owner), [owner.as_str()]);
    assert!(!slots.iter().any(|folder| folder.exists()));
}

#[test]
fn all_members_are_killed() {
    let Some(hierarchy) = hierarchy() else { return };
    let group = hierarchy.group(&slot("kill"), LIMITS).unwrap();
    let mut child = shell(&group, "read line");
    assert_eq!(group.members().unwrap(), [child.id()]);
    group.kill_all().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    group.close().unwrap();
}

#[test]
fn too_much_memory_is_fatal_and_counted() {
    let Some(hierarchy) = hierarchy() else { return };
    let mut group = hierarchy.group(&slot("memory"), LIMITS).unwrap();
    assert_eq!(group.usage().oom_kills, 0);
    // One endless line, which tail has to store.
    let status = shell(&group, "exec tail /dev/zero").wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL));
    let usage = group.usage();
    assert!(usage.oom_kills >= 1, "{usage:?}");
    if let Some(peak) = usage.peak_memory_bytes {
        assert!((16 << 20..=LIMITS.memory_bytes).contains(&peak), "{usage:?}");
    }
    assert!(usage.cpu_seconds.is_none_or(|seconds| seconds > 0.0), "{usage:?}");
    assert!(
        !group.reset(LIMITS),
        "what a guest brought to its limit is no other's"
    );
    assert_eq!(group.usage().oom_kills, 0);
    group.close().unwrap();
}

/// A group is given to another guest only if nothing of the last one can be noticed in it.
#[test]
fn a_group_is_reset_only_if_it_is_as_good_as_new() {
    let Some(hierarchy) = hierarchy() else { return };
    let mut group = hierarchy.group(&slot("reset"), LIMITS).unwrap();
    // Version 2 cannot reset the peak.
    let can = hierarchy.version() == Version::V1;
    // The kernel returns the last pages, and the last task, some time after a process has ended.
    let await_reset = |group: &mut Group, limits| {
        while can && !group.reset(limits) {
            std::thread::yield_now();
        }
        assert!(can || !group.reset(limits), "version 2 restarts no peak");
    };
    let is_new = |group: &Group| {
        let usage = group.usage();
        assert_eq!((usage.oom_kills, usage.pids_max_hits), (0, 0));
        assert!(
            usage.cpu_seconds.is_none_or(|seconds| seconds == 0.0),
            "{usage:?}"
        );
        assert!(
            !can || usage.peak_memory_bytes.is_some_and(|peak| peak < 1 << 20),
            "{usage:?}"
        );
    };
    // The first reader of a file is charged with its pages.
    let script = "v=$(head -c 4500000 /dev/zero | tr '\\0' a); read line";
    let outside = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::null())
        .status();
    assert!(!outside.unwrap().success(), "its input has ended");
    let mut child = shell(&group, script);
    let small = |peak| peak < 4 << 20;
    // Until it has read the text from its children, which have ended.
    while group.usage().peak_memory_bytes.is_some_and(small) || group.members().unwrap() != [child.id()] {
        std::thread::yield_now();
    }
    assert!(!group.reset(LIMITS), "somebody is in it");
    child.kill().unwrap();
    while std::fs::read_to_string(format!("/proc/{}/stat", child.id()))
        .is_ok_and(|stat| !stat.contains(") Z "))
    {
        std::thread::yield_now();
    }
    assert!(!group.reset(LIMITS), "a zombie is in it");
    child.wait().unwrap();
    await_reset(&mut group, LIMITS);
    is_new(&group);

    let file = format!("/dev/shm/ringfence-test-reset-{}", std::process::id());
    let left = format!("head -c 8000000 /dev/zero > {file}");
    assert!(shell(&group, &left).wait().unwrap().success());
    assert!(!group.reset(LIMITS), "what it left is charged to it");
    std::fs::remove_file(&file).unwrap();
    await_reset(&mut group, LIMITS);
    is_new(&group);

    let other = GroupLimits { pids: 1, ..LIMITS };
    assert!(!group.reset(other), "its limits are others");
    group.set_limits(other).unwrap();
    await_reset(&mut group, other);
    shell(&group, "(exit 0)").wait().unwrap();
    assert!(!group.reset(other), "it was at its limit");
    group.close().unwrap();
}

#[test]
fn memory_files_count_as_memory() {
    let Some(hierarchy) = hierarchy() else { return };
    let group = hierarchy.group(&slot("shm"), LIMITS).unwrap();
    let file = format!("/dev/shm/ringfence-test-{}", std::process::id());
    let status = shell(&group, &format!("head -c 100000000 /dev/zero > {file}"))
        .wait()
        .unwrap();
    let size = std::fs::metadata(&file).map_or(0, |file| file.len());
    let _ = std::fs::remove_file(&file);
    assert!(
        !status.success() && size <= LIMITS.memory_bytes,
        "{status:?} after {size} bytes"
    );
    assert!(group.usage().oom_kills >= 1, "{:?}", group.usage());
}

#[test]
fn too_many_processes_are_refused_and_counted() {
    let Some(hierarchy) = hierarchy() else { return };
    let group = hierarchy
        .group(&slot("pids"), GroupLimits { pids: 1, ..LIMITS })
        .unwrap();
    let status = shell(&group, "(exit 0) && exit 3").wait().unwrap();
    assert_ne!(status.code(), Some(3), "the subshell did not start");
    assert!(group.usage().pids_max_hits >= 1, "{:?}", group.usage());
    group.close().unwrap();
}

#[test]
fn what_a_dead_engine_left_is_swept() {
    let Some(hierarchy) = hierarchy() else { return };
    let mark = std::process::id();
    let group = |owner: &str| {
        hierarchy
            .group(&format!("ringfence-test-{owner}-{mark}/slot"), LIMITS)
            .unwrap()
    };
    let (dead, alive) = (group("dead"), group("alive"));
    let (dead_folders, alive_folders) = (folders(&dead), folders(&alive));
    // As if the server had been killed: the group is never closed.
    std::mem::forget(dead);
    let gone = format!("test-dead-{mark}");
    assert_eq!(hierarchy.sweep(&|owner| owner == gone), [gone.as_str()]);
    assert!(
        !dead_folders
            .iter()
            .any(|folder| folder.exists() || folder.parent().unwrap().exists())
    );
    assert!(alive_folders.iter().all(|folder| folder.is_dir()));
    alive.close().unwrap();
}

/// Version 1 counts the buffers of TCP apart.
#[test]
fn the_buffers_of_sockets_have_a_limit_of_their_own() {
    let Some(hierarchy) = hierarchy() else { return };
    let group = hierarchy.group(&slot("sockets"), LIMITS).unwrap();
    let limit = || value(&group, "memory.kmem.tcp.limit_in_bytes");
    let before = limit();
    group.limit_socket_buffers(8 << 20).unwrap();
    match (hierarchy.version(), before) {
        (Version::V1, Some(before)) => {
            assert_ne!(before, "8388608");
            assert_eq!(limit().unwrap(), "8388608");
        }
        // Nothing to limit.
        (Version::V1 | Version::V2, _) => assert_eq!(limit(), None),
    }
    group.close().unwrap();
}
