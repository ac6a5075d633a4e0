//! The fence of a user without any privilege: weaker means, the same denials.

use super::fence::Fence;
use super::probe::{Probe, deny, deny_all, probe};
use super::{kernel, namespaces, privileges, processes, sockets};

/// Returns a fence that needs user namespaces; `None`, after a message, if this machine forbids them.
pub(super) fn fence() -> Option<Fence> {
    let fence = Fence::ordinary_user()?;
    let namespace = fence.outside("import os\nos.unshare(os.CLONE_NEWUSER)", &[]);
    let old = fence.outside(
        "import ctypes, sys\nsys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)",
        &[],
    );
    if namespace.status != 0 && old.status != 0 {
        return super::fence::skip("this machine forbids user namespaces to ordinary users");
    }
    Some(fence)
}

const FILES: &[Probe] = &[
    probe("home directories", "ENOENT", "os.stat('/home')"),
    probe("variable data", "ENOENT", "os.stat('/var/lib')"),
    probe("the kernel's devices", "ENOENT", "os.stat('/sys/kernel')"),
    probe("the list of the root", "EACCES", "os.listdir('/')"),
    probe("its own home", "ENOENT", "os.stat(ARGS[0])"),
];

#[test]
fn the_layers_are_the_same() {
    let Some(fence) = fence() else { return };
    let result = fence.result(&[], "import os; print(os.getuid())");
    assert_eq!(result["stdout"], "1000\n", "{result:#}");
    let isolation = &result["meta"]["isolation"];
    for layer in [
        "user_ns",
        "pid_ns",
        "mount_ns",
        "net_ns",
        "ipc_ns",
        "uts_ns",
        "no_new_privs",
        "capabilities_dropped",
    ] {
        assert_eq!(isolation[layer], true, "{layer}: {result:#}");
    }
    assert_eq!(isolation["seccomp"], "fence");
    // Limits of all processes together need a control group delegated by systemd: without one, a run that
    // requires every layer is refused.
    let required = fence.inside(&["--isolation", "required"], "pass", &[]);
    match isolation["cgroup"] == false {
        true => required.refused(125, "isolation is required, but no control group here can limit"),
        false => assert_eq!(required.ok(), ""),
    }
    let left = "CapInh 0\nCapPrm 0\nCapEff 0\nCapBnd 0\nCapAmb 0\nNoNewPrivs 1\nSeccomp 2\ncore (0, 0)\n";
    assert_eq!(fence.printed(&[], privileges::STATUS), left);
}

#[test]
fn kernel_interfaces_are_refused() {
    let Some(fence) = fence() else { return };
    deny_all(&fence, kernel::SURFACE);
}

/// Only the host's root can forbid programs in memory (`vm.memfd_noexec`). They gain nothing: `/tmp` allows
/// execution too, and everything runs inside the same fence.
#[test]
fn a_program_in_memory_stays_inside_the_fence() {
    let Some(fence) = fence() else { return };
    let code = "import os\n\
        fd = os.memfd_create('x', 0)\n\
        os.write(fd, open('/usr/bin/grep', 'rb').read())\n\
        os.execv(f'/proc/self/fd/{fd}', ['grep', '-E', '^(Seccomp|NoNewPrivs|CapBnd):', '/proc/self/status'])";
    assert_eq!(
        fence.printed(&[], code),
        "CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
    );
}

#[test]
fn namespaces_processes_and_sockets_are_refused() {
    let Some(fence) = fence() else { return };
    deny_all(&fence, namespaces::SURFACE);
    deny_all(&fence, processes::SURFACE);
    deny_all(&fence, sockets::SURFACE);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    deny(&fence, &[], &sockets::CONNECT, &[&port]);
}

#[test]
fn files_of_the_host_are_not_there() {
    let Some(fence) = fence() else { return };
    let home = fence.dir.path("home");
    for probe in FILES {
        deny(&fence, &[], probe, &[home.to_str().unwrap()]);
    }
    let write =
        "open('new', 'w').close()\ntry: open('/usr/new', 'w')\nexcept OSError as error: print(error.errno)";
    assert_eq!(fence.printed(&[], write), "30\n");
    assert_eq!(crate::support::entries(&fence.dir.path("work")), [""; 0]);
}

#[test]
fn a_process_of_the_same_user_cannot_be_signalled() {
    let Some(fence) = fence() else { return };
    let mut own = fence.command(std::path::Path::new("/usr/bin/cat"));
    let mut own = own.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let act = probe(
        "a signal to a process of the same user",
        "ESRCH",
        "os.kill(int(ARGS[0]), 0)",
    );
    deny(&fence, &[], &act, &[&own.id().to_string()]);
    drop(own.stdin.take());
    assert!(own.wait().unwrap().success());
}

#[test]
fn mounts_obey_their_mode() {
    let Some(fence) = fence() else { return };
    let place = fence.dir.path("home");
    let mount = |access: &str| format!("{}:/data:{access}", place.display());
    let write = probe(
        "a file in a read-only mount",
        "EROFS",
        "open(ARGS[INSIDE] + '/new', 'w').close()\nos.unlink(ARGS[INSIDE] + '/new')",
    );
    deny(
        &fence,
        &["--mount", &mount("ro")],
        &write,
        &[place.to_str().unwrap(), "/data"],
    );
    let written = fence.inside(
        &["--mount", &mount("rw")],
        "open('/data/new', 'w').write('x')",
        &[],
    );
    written.ok();
    let owner = std::os::unix::fs::MetadataExt::uid(&place.join("new").metadata().unwrap());
    assert_eq!(owner, super::fence::USER);
}

#[test]
fn processes_and_memory_are_limited() {
    let Some(fence) = fence() else { return };
    let children = probe(
        "forty children",
        "EAGAIN",
        "for _ in range(40):\n    waiting_child()",
    );
    deny(&fence, &["--pids", "16"], &children, &[]);
    let result = fence.result(&["--memory", "64MiB"], "data = bytearray(200 << 20)");
    assert_ne!(result["exit_code"], 0, "{result:#}");
}
