//! Threat: more privileges than the guest was given.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::fence::{Fence, PYTHON};
use super::probe::{Probe, deny_all, probe};
use crate::support::finish;

/// Changes of the user.
const IDENTITY: &[Probe] = &[
    probe("setuid", "EPERM", "in_child(lambda: call(number(105, 146), 0))"),
    probe("setgid", "EPERM", "in_child(lambda: call(number(106, 144), 0))"),
    probe(
        "setgroups",
        "EPERM",
        "in_child(lambda: call(number(116, 159), 0, 0))",
    ),
];

pub(super) const PRIVILEGED: &[Probe] = &[
    probe(
        "capset",
        "EPERM",
        "header = struct.pack('=Ii', 0x20080522, 0)\n\
         in_child(lambda: call(number(126, 91), header, struct.pack('=IIIIII', 1, 1, 0, 0, 0, 0)))",
    ),
    probe(
        "raising the limit of core dumps",
        "EPERM",
        "in_child(lambda: call(number(160, 164), 4, struct.pack('=QQ', 1 << 20, 1 << 20)))",
    ),
    probe(
        "raising the limit of a file's length",
        "EPERM",
        "in_child(lambda: call(number(160, 164), 1, struct.pack('=QQ', (1 << 64) - 1, (1 << 64) - 1)))",
    ),
    probe(
        "a higher priority",
        "EACCES",
        "in_child(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))",
    ),
    probe(
        "real-time scheduling",
        "EPERM",
        "in_child(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))",
    ),
];

#[test]
fn rights_are_not_taken_back() {
    if let Some(fence) = Fence::root() {
        deny_all(&fence, IDENTITY);
        deny_all(&fence, PRIVILEGED);
    }
}

/// Prints the kernel's view of the guest, the same in every situation.
pub(super) const STATUS: &str = "
import resource
status = dict(line.split() for line in open('/proc/self/status') if len(line.split()) == 2)
for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp'):
    print(name, status[name + ':'].lstrip('0') or 0)
print('core', resource.getrlimit(resource.RLIMIT_CORE))
";

#[test]
fn the_kernel_says_that_no_right_is_left() {
    let Some(fence) = Fence::root() else { return };
    let left = "CapInh 0\nCapPrm 0\nCapEff 0\nCapBnd 0\nCapAmb 0\nNoNewPrivs 1\nSeccomp 2\ncore (0, 0)\n";
    assert_ne!(fence.outside(STATUS, &[]).ok(), left);
    assert_eq!(fence.printed(&[], STATUS), left);
    let bash = fence.ringfence(&[
        "-l",
        "bash",
        "-c",
        "grep -E '^(CapBnd|CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '0\\t\\n'; ulimit -Hc; id -u",
    ]);
    let mut bash = bash;
    assert_eq!(
        finish(&mut bash, b"").ok(),
        "CapEff:CapBnd:NoNewPrivs:1Seccomp:20\n1000\n"
    );
}

#[test]
fn setuid_programs_gain_nothing() {
    let (Some(fence), Some(user)) = (Fence::root(), Fence::ordinary_user()) else {
        return;
    };
    let place = user.dir.path("work/programs");
    fs::create_dir(&place).unwrap();
    fs::copy("/usr/bin/id", place.join("id")).unwrap();
    fs::set_permissions(place.join("id"), fs::Permissions::from_mode(0o4755)).unwrap();
    let run = format!("{}/id", place.display());
    let code = "import subprocess, sys\nprint(subprocess.run([sys.argv[1], '-u'], capture_output=True, text=True).stdout)";
    assert_eq!(user.outside(code, &[&run]).ok().trim(), "0");
    let mount = format!("{}:/programs", place.display());
    for fence in [&fence, &user] {
        let inside = fence.inside(&["--mount", &mount], code, &["/programs/id"]);
        assert_eq!(inside.ok().trim(), "1000");
    }
}

#[test]
fn the_systems_own_setuid_programs_gain_nothing() {
    let Some(fence) = Fence::root() else { return };
    let code = "import os, subprocess\n\
                for name in ('su', 'mount', 'passwd', 'umount', 'newgrp', 'chsh'):\n    \
                    path = '/usr/bin/' + name\n    \
                    if os.path.exists(path) and os.stat(path).st_mode & 0o4000:\n        \
                        print(name, bool(os.statvfs(path).f_flag & os.ST_NOSUID))";
    let outside = fence.outside(code, &[]);
    if outside.ok().is_empty() {
        super::fence::skip::<()>("this machine has no setuid programs");
        return;
    }
    let guarded = outside.ok().replace("False", "True");
    assert_ne!(outside.stdout, guarded);
    assert_eq!(fence.printed(&[], code), guarded);
    let mut outside = fence.command(Path::new(PYTHON));
    let su = "import os\nos.execv('/usr/bin/su', ['su', '-c', 'id -u', 'root'])";
    assert_eq!(finish(outside.args(["-I", "-c", su]), b"").ok(), "0\n");
    let inside = fence.inside(&[], su, &[]);
    assert!(inside.status != 0 && inside.stdout.is_empty(), "{inside:?}");
}
