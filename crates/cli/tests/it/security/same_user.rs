//! Threat: without namespaces a guest has the caller's own user id, and Landlock does not govern everything.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use super::container::neighbour;
use super::fence::{Fence, USER};
use super::probe::{Probe, probe, program, verdict};

/// Acts that Landlock does not govern: on a path without an open file, from a guest with the caller's own
/// user id.
const BY_PATH: &[&str] = &[
    "os.chmod(ARGS[0], 0o666)",
    "call(number(452, 452), -100, ARGS[0].encode(), 0o666, 0)",
    "os.fchmod(os.open(ARGS[0], os.O_RDONLY), 0o666)",
    "os.utime(ARGS[0], (1, 1))",
    "os.utime(ARGS[0], ns=(1, 1), follow_symlinks=False)",
    "os.truncate(ARGS[0], 0)",
    "os.setxattr(ARGS[0], 'user.ringfence', b'x')",
];

#[test]
fn the_callers_files_keep_their_rights_and_times() {
    let Some(fence) = Fence::container(USER) else {
        return;
    };
    let file = fence.dir.path("work/file");
    let mut changed = Vec::new();
    for act in BY_PATH {
        let _ = fs::remove_file(&file);
        fs::write(&file, "data").unwrap();
        chown(&file, Some(USER), Some(USER)).unwrap();
        let look = || {
            let found = fs::metadata(&file).unwrap();
            (found.mode(), found.mtime(), found.len(), found.ctime_nsec())
        };
        let before = look();
        fence.inside(&[], &program(act), &[file.to_str().unwrap()]).ok();
        if look() != before {
            changed.push(format!("inside, by {act}"));
        }
        let outside = verdict(&fence.outside(&program(act), &[file.to_str().unwrap()]));
        if outside == "errno ENOSYS" {
            eprintln!("skipped: outside: the container itself refuses {act}");
            continue;
        }
        assert_eq!(outside, "ok", "{act}");
        assert_ne!(look(), before, "{act}");
    }
    assert!(changed.is_empty(), "{changed:#?}");
}

/// A read-only file must not change, whoever owns it.
#[test]
fn a_read_only_mount_keeps_its_rights() {
    let Some(fence) = Fence::container(USER) else {
        return;
    };
    let place = fence.dir.path("work");
    let file = fence.dir.write("work/file", "data");
    chown(&file, Some(USER), Some(USER)).unwrap();
    let mount = format!("{0}:{0}:ro", place.display());
    let before = file.metadata().unwrap().mode();
    let mut changed = Vec::new();
    for act in BY_PATH
        .iter()
        .filter(|act| act.contains("mod") || act.contains("452"))
    {
        fence
            .inside(&["--mount", &mount], &program(act), &[file.to_str().unwrap()])
            .ok();
        if file.metadata().unwrap().mode() != before {
            changed.push(act);
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
    }
    assert!(changed.is_empty(), "{changed:#?}");
    let read = fence.inside(
        &["--mount", &mount],
        &program("os.open(ARGS[0], os.O_RDONLY)"),
        &[file.to_str().unwrap()],
    );
    assert_eq!(verdict(&read), "ok");
}

/// Changes to the scheduling of the caller's other processes.
const SCHEDULING: &[Probe] = &[
    probe(
        "the processors",
        "EPERM",
        "os.sched_setaffinity(int(ARGS[0]), {0})",
    ),
    probe(
        "the priority",
        "EPERM",
        "os.setpriority(os.PRIO_PROCESS, int(ARGS[0]), 1)",
    ),
    probe(
        "the priority of all",
        "EPERM",
        "os.setpriority(os.PRIO_USER, 0, 1)",
    ),
    probe(
        "the scheduler",
        "EPERM",
        "os.sched_setscheduler(int(ARGS[0]), os.SCHED_IDLE, os.sched_param(0))",
    ),
    probe(
        "the priority of input and output",
        "EPERM",
        "call(number(251, 30), 1, int(ARGS[0]), 3 << 13)",
    ),
];

#[test]
fn the_callers_processes_keep_their_priority() {
    let Some(fence) = Fence::container(USER) else {
        return;
    };
    let mut failures = Vec::new();
    for act in SCHEDULING {
        // A process without earlier changes.
        let (mut child, pid) = neighbour(&fence);
        let inside = verdict(&fence.inside(&[], &program(act.act), &[&pid]));
        if inside != format!("errno {}", act.denied) {
            failures.push(format!("{}: inside: {inside}", act.name));
        }
        let outside = verdict(&fence.outside(&program(act.act), &[&pid]));
        assert_eq!(outside, "ok", "{}", act.name);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
