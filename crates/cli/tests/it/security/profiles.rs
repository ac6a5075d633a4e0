//! Threat: a program in a container that uses system calls beyond its filter's purpose.
//!
//! The program makes raw system calls, under each filter and with none but with capabilities. Most have
//! invalid arguments: the kernel would reject these later than the filter.

use std::fs;
use std::path::{Path, PathBuf};

use super::probe::{Probe, probe};
use crate::support::{Dir, Output, finish};
use crate::world::skip;

const IMAGE: &str = "ringfence-test:latest";
const ENGINES: [&[&str]; 2] = [&["docker"], &["podman", "--runtime", "runc"]];

/// Without these the kernel denies some of the acts by itself, with the same error.
const CAPABILITIES: [&str; 6] = [
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_MODULE",
    "SYS_CHROOT",
    "DAC_READ_SEARCH",
    "NET_RAW",
];

/// Acts denied by every filter.
const ALWAYS: &[Probe] = &[
    probe("ptrace", "EPERM", "sys_call('ptrace', 0x4206, -1, 0, 0)"),
    probe(
        "read memory of others",
        "EPERM",
        "sys_call('process_vm_readv', 1, 0, 0, 0, 0, 1)",
    ),
    probe("mount", "EPERM", "sys_call('mount', 0, 0, 0, 0, 0)"),
    probe("unmount", "EPERM", "sys_call('umount2', 0, 0)"),
    probe("move_mount", "EPERM", "sys_call('move_mount', -1, 0, -1, 0, 0)"),
    probe("open_tree", "EPERM", "sys_call('open_tree', -1, 0, 0)"),
    probe("fsopen", "EPERM", "sys_call('fsopen', 0, 0)"),
    probe("chroot", "EPERM", "sys_call('chroot', 0)"),
    probe("pivot_root", "EPERM", "sys_call('pivot_root', 0, 0)"),
    probe("setuid", "EPERM", "sys_call('setuid', -1)"),
    probe("setresgid", "EPERM", "sys_call('setresgid', -1, -1, -1)"),
    probe("setgroups", "EPERM", "sys_call('setgroups', -1, 0)"),
    probe("keyctl", "EPERM", "sys_call('keyctl', -1)"),
    probe("add_key", "EPERM", "sys_call('add_key', 0, 0, 0, 0, 0)"),
    probe("bpf", "EPERM", "sys_call('bpf', -1, 0, 0)"),
    probe(
        "perf_event_open",
        "EPERM",
        "sys_call('perf_event_open', 0, 0, 0, 0, 0)",
    ),
    probe("io_uring_setup", "EPERM", "sys_call('io_uring_setup', 0, 0)"),
    probe(
        "io_uring_enter",
        "EPERM",
        "sys_call('io_uring_enter', -1, 0, 0, 0, 0, 0)",
    ),
    probe("userfaultfd", "EPERM", "sys_call('userfaultfd', -1)"),
    probe(
        "open_by_handle_at",
        "EPERM",
        "sys_call('open_by_handle_at', -1, 0, 0)",
    ),
    probe("init_module", "EPERM", "sys_call('init_module', 0, 0, 0)"),
    probe("kexec_load", "EPERM", "sys_call('kexec_load', 0, 0, 0, 0xff)"),
    probe("swapon", "EPERM", "sys_call('swapon', 0, 0)"),
    probe("reboot", "EPERM", "sys_call('reboot', 0, 0, 0, 0)"),
    probe("no random layout", "EPERM", "sys_call('personality', 0x40000)"),
    probe(
        "type into a terminal",
        "EPERM",
        "sys_call('ioctl', -1, 0x5412, 0)",
    ),
    probe(
        "the same with more bits",
        "EPERM",
        "sys_call('ioctl', -1, 1 << 32 | 0x5412, 0)",
    ),
    probe(
        "paste into a console",
        "EPERM",
        "sys_call('ioctl', -1, 0x541c, 0)",
    ),
    probe("unshare", "EPERM", "sys_call('unshare', -1)"),
    probe("setns", "EPERM", "sys_call('setns', -1, 0)"),
    probe(
        "a mount namespace",
        "EPERM",
        "sys_call('clone', 0x10000 | 0x20000, 0, 0, 0, 0)",
    ),
    probe(
        "a cgroup namespace",
        "EPERM",
        "sys_call('clone', 0x10000 | 0x2000000, 0, 0, 0, 0)",
    ),
    probe(
        "a host name of its own",
        "EPERM",
        "sys_call('clone', 0x10000 | 0x4000000, 0, 0, 0, 0)",
    ),
    probe(
        "an ipc namespace",
        "EPERM",
        "sys_call('clone', 0x10000 | 0x8000000, 0, 0, 0, 0)",
    ),
    probe(
        "a user namespace",
        "EPERM",
        "sys_call('clone', 0x10000 | 0x10000000, 0, 0, 0, 0)",
    ),
    probe(
        "a pid namespace",
        "EPERM",
        "sys_call('clone', 0x10000 | 0x20000000, 0, 0, 0, 0)",
    ),
    probe(
        "a network namespace",
        "EPERM",
        "sys_call('clone', 0x10000 | 0x40000000, 0, 0, 0, 0)",
    ),
    probe("clone3", "ENOSYS", "sys_call('clone3', 0, 0)"),
    probe("openat2", "ENOSYS", "sys_call('openat2', -1, 0, 0, 0)"),
    probe(
        "netlink",
        "EPERM",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    ),
    probe(
        "packets",
        "EPERM",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    ),
    probe("vsock", "EPERM", "sys_call('socket', 40, -1, 0)"),
    probe("the kernel's ciphers", "EPERM", "sys_call('socket', 38, -1, 0)"),
];

/// Acts allowed by `standard-tcp`.
const TCP: &[Probe] = &[
    probe("TCP", "EACCES", "socket.socket().close()"),
    probe(
        "TCP over IPv6",
        "EACCES",
        "socket.socket(socket.AF_INET6).close()",
    ),
];

/// Acts allowed only by `standard-net`.
const UDP: &[Probe] = &[probe(
    "UDP",
    "EACCES",
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()",
)];

const RAW: &str = "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)";
const RAW_WITHOUT_UDP: &[Probe] = &[probe("raw sockets", "EACCES", RAW)];
const RAW_BESIDE_UDP: &[Probe] = &[probe("raw sockets", "EPERM", RAW)];

/// Acts denied only by `strict`.
const PROCESSES_AND_FILES: &[Probe] = &[
    probe("a process", "EPERM", "in_child(lambda: None)"),
    probe(
        "a process that shares memory",
        "EPERM",
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
    ),
    probe(
        "a file",
        "EPERM",
        "os.close(os.open('/tmp/a', os.O_CREAT | os.O_WRONLY))",
    ),
    probe(
        "a nameless file",
        "EPERM",
        "os.close(os.open('/tmp', os.O_TMPFILE | os.O_RDWR))",
    ),
    probe(
        "a file cut short",
        "EPERM",
        "os.close(os.open('/tmp/a', os.O_TRUNC | os.O_WRONLY))",
    ),
    probe(
        "a file to read and write",
        "EPERM",
        "os.close(os.open('/dev/null', os.O_RDWR))",
    ),
    probe("a directory", "EPERM", "os.mkdir('/tmp/b')"),
    probe("another name", "EPERM", "os.rename('/tmp/b', '/tmp/c')"),
    probe("a directory's end", "EPERM", "os.rmdir('/tmp/c')"),
    probe("a symbolic link", "EPERM", "os.symlink('a', '/tmp/d')"),
    probe("a link", "EPERM", "os.link('/tmp/a', '/tmp/e')"),
    probe("a FIFO", "EPERM", "os.mkfifo('/tmp/f')"),
    probe("a mode", "EPERM", "os.chmod('/tmp/a', 0o600)"),
    probe("a time", "EPERM", "os.utime('/tmp/a')"),
    probe("a length", "EPERM", "os.truncate('/tmp/a', 0)"),
    probe("a file's end", "EPERM", "os.unlink('/tmp/a')"),
    probe("a file in memory", "EPERM", "os.close(os.memfd_create('x'))"),
    probe(
        "a socket with a name",
        "EPERM",
        "socket.socket(socket.AF_UNIX).bind('/tmp/g')",
    ),
    probe("shared memory", "EPERM", "sys_call('shmget', 0, 4096, 0o1600)"),
    probe(
        "adopting what children leave",
        "EPERM",
        "sys_call('prctl', 36, 1, 0, 0, 0)",
    ),
];

/// Acts allowed by every filter: program start, reading, threads, Unix sockets.
const COMPUTING: &[Probe] = &[
    probe("files", "", "open('/etc/passwd').read()"),
    probe("a list of files", "", "os.listdir('/usr/bin')"),
    probe(
        "files that are there, to be written",
        "",
        "os.close(os.open('/dev/null', os.O_WRONLY))",
    ),
    probe(
        "threads",
        "",
        "import threading\nthread = threading.Thread(target=os.getpid)\nthread.start()\nthread.join()",
    ),
    probe("memory", "", "mmap.mmap(-1, 1 << 20).write(b'x')"),
    probe("pipes", "", "[os.close(end) for end in os.pipe()]"),
    probe(
        "pairs of sockets",
        "",
        "[end.close() for end in socket.socketpair()]",
    ),
    probe(
        "a service that is not there",
        "",
        "assert socket.socket(socket.AF_UNIX).connect_ex('/none') == errno.ENOENT",
    ),
    probe(
        "waiting",
        "",
        "import select\nselect.epoll().poll(0)\nselect.select([], [], [], 0)",
    ),
    probe("time", "", "import time\ntime.monotonic()\ntime.sleep(0)"),
    probe("random numbers", "", "os.getrandom(8)"),
    probe(
        "no children",
        "",
        "try: os.wait()\nexcept ChildProcessError: pass",
    ),
];

struct Profile {
    name: &'static str,
    refused: &'static [&'static [Probe]],
    allowed: &'static [&'static [Probe]],
}

const PROFILES: [Profile; 4] = [
    Profile {
        name: "strict",
        refused: &[ALWAYS, TCP, UDP, RAW_WITHOUT_UDP, PROCESSES_AND_FILES],
        allowed: &[COMPUTING],
    },
    Profile {
        name: "standard",
        refused: &[ALWAYS, TCP, UDP, RAW_WITHOUT_UDP],
        allowed: &[COMPUTING, PROCESSES_AND_FILES],
    },
    Profile {
        name: "standard-tcp",
        refused: &[ALWAYS, UDP, RAW_WITHOUT_UDP],
        allowed: &[COMPUTING, PROCESSES_AND_FILES, TCP],
    },
    Profile {
        name: "standard-net",
        refused: &[ALWAYS, RAW_BESIDE_UDP],
        allowed: &[COMPUTING, PROCESSES_AND_FILES, TCP, UDP],
    },
];

/// A container engine, and the filters as files that it reads.
struct Containers {
    dir: Dir,
    engine: &'static [&'static str],
}

impl Containers {
    fn all() -> Vec<Self> {
        ENGINES.into_iter().filter_map(Self::of).collect()
    }

    fn of(engine: &'static [&'static str]) -> Option<Self> {
        let dir = Dir::new();
        let asked = finish(dir.program(engine[0]).args(["image", "inspect", IMAGE]), b"");
        if asked.status != 0 {
            return skip(&format!(
                "no image {IMAGE} in {} (`cargo xtask setup` makes it)",
                engine[0]
            ));
        }
        for profile in &PROFILES {
            let shown = finish(&mut dir.command(["seccomp", "show", profile.name]), b"");
            dir.write(profile.name, shown.stdout);
        }
        Some(Self { dir, engine })
    }

    /// Runs a command in a container with a filter, or with none and with capabilities.
    fn run(&self, profile: Option<&str>, options: &[&str], command: &[&str]) -> Output {
        let mut engine = self.dir.program(self.engine[0]);
        engine
            .args(&self.engine[1..])
            .args(["run", "--rm", "--network", "none", "--read-only"]);
        // Podman's default limits may exceed its permissions.
        engine.args([
            "--tmpfs",
            "/tmp",
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=4096:4096",
        ]);
        match profile {
            Some(name) => {
                let filter = format!("seccomp={}", self.dir.path(name).display());
                engine.args([
                    "--cap-drop",
                    "ALL",
                    "--security-opt",
                    "no-new-privileges",
                    "--security-opt",
                    &filter,
                ]);
            }
            None => {
                engine.args(["--security-opt", "seccomp=unconfined"]);
                engine.args(CAPABILITIES.map(|capability| format!("--cap-add={capability}")));
            }
        }
        finish(engine.args(options).arg(IMAGE).args(command), b"")
    }

    /// Returns the deviations outside and inside.
    fn failures(&self, profile: &Profile) -> Vec<String> {
        let refused = profile.refused.concat().into_iter().map(|probe| (true, probe));
        let allowed = profile.allowed.concat().into_iter().map(|probe| (false, probe));
        let (refusals, probes): (Vec<bool>, Vec<Probe>) = refused.chain(allowed).unzip();
        let outside = self.verdicts(None, &probes);
        let inside = self.verdicts(Some(profile.name), &probes);
        let judged = refusals.into_iter().zip(&probes).zip(outside.iter().zip(&inside));
        let failure = |((refused, probe), (outside, inside)): ((bool, &Probe), (&String, &String))| {
            let denied = format!("errno {}", probe.denied);
            let right = match refused {
                true => inside == &denied && outside != &denied,
                false => inside == "ok" && outside == "ok",
            };
            (!right).then(|| format!("{}: outside {outside}, inside {inside}", probe.name))
        };
        judged.filter_map(failure).collect()
    }

    /// Returns the verdict of each act, all in one program.
    fn verdicts(&self, profile: Option<&str>, probes: &[Probe]) -> Vec<String> {
        let output = self.run(profile, &[], &["python3", "-I", "-S", "-c", &program(probes)]);
        let verdicts: Vec<String> = output.stdout.lines().map(str::to_owned).collect();
        assert_eq!(verdicts.len(), probes.len(), "{profile:?}: {output:?}");
        verdicts
    }
}

fn program(probes: &[Probe]) -> String {
    let numbers = include_str!("../../../../seccomp/profiles/syscalls.tsv");
    let acts: String = probes
        .iter()
        .map(|probe| {
            let body: String = probe.act.lines().map(|line| format!("    {line}\n")).collect();
            format!("def act():\n{body}\nprobe(act)\n")
        })
        .collect();
    format!(
        "{}NUMBERS = '''{numbers}'''\n\
         NUMBERS = dict((row[0], row[1 if X86_64 else 2]) for row in map(str.split, NUMBERS.splitlines()[1:]))\n\
         def sys_call(name, *args): return call(int(NUMBERS[name]), *args)\n{acts}",
        include_str!("prelude.py")
    )
}

#[test]
fn each_profile_refuses_what_it_should_and_nothing_else() {
    for containers in Containers::all() {
        for profile in &PROFILES {
            let failures = containers.failures(profile);
            let place = format!("{} in {}", profile.name, containers.engine[0]);
            assert!(failures.is_empty(), "{place}:\n{}", failures.join("\n"));
        }
    }
}

/// The numbers of these calls mean others.
#[cfg(target_arch = "x86_64")]
#[test]
fn other_modes_of_the_processor_end_the_program() {
    let i386 = probe("i386", "", r"machine_code(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')");
    let x32 = probe("x32", "", "call(0x40000000 | 39)");
    for containers in Containers::all() {
        for (profile, probe) in PROFILES
            .iter()
            .flat_map(|profile| [(profile, &i386), (profile, &x32)])
        {
            let output = containers.run(
                Some(profile.name),
                &[],
                &["python3", "-I", "-S", "-c", &program(&[*probe])],
            );
            assert_eq!(
                (output.status, output.stdout.as_str()),
                (159, ""),
                "{}: {output:?}",
                probe.name
            );
        }
    }
}

#[test]
fn programs_of_every_kind_start() {
    let linked = static_program();
    let mount = linked
        .as_deref()
        .map(|path| format!("{}:/linked:ro", path.display()));
    for containers in Containers::all() {
        for profile in &PROFILES {
            let check = |options: &[&str], command: &[&str], expected: &str| {
                let output = containers.run(Some(profile.name), options, command);
                assert_eq!(output.status, 0, "{command:?} under {}: {output:?}", profile.name);
                assert!(output.stdout.contains(expected), "{command:?}: {output:?}");
            };
            check(&[], &["cat", "/etc/hostname"], "");
            check(&[], &["bash", "-c", "echo $((6 * 7))"], "42");
            check(&[], &["env", "python3", "-I", "-S", "-c", "print(1)"], "1");
            check(&["--user", "1000:1000"], &["id", "-u"], "1000");
            if let Some(mount) = &mount {
                check(&["--volume", mount], &["/linked", "--version"], "ldconfig");
            }
        }
        // An init starts its program as a child.
        let with_init = |profile| containers.run(Some(profile), &["--init"], &["true"]).status;
        assert_ne!(with_init("strict"), 0);
        assert_eq!(with_init("standard"), 0);
    }
}

/// The C library's own program is linked statically, since it has to work when nothing else does.
fn static_program() -> Option<PathBuf> {
    let places = ["/sbin/ldconfig.real", "/sbin/ldconfig"].map(Path::new);
    let binary = |path: &&Path| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"));
    match places.into_iter().find(binary) {
        Some(path) => Some(path.to_owned()),
        None => skip("no ldconfig to be started"),
    }
}
