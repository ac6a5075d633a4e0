//! Tests the fence's filter in the kernel: refused calls work without it, and common programs work with it.
#![allow(
    unsafe_code,
    reason = "the tests load the filter into children and make raw system calls there"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "raw system calls on valid or null arguments, in a forked child"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a helper of a test is a test, too"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "the programs are started under the filter alone, without the jail"
)]

use ringfence_jail::seccomp::{Exits, Forks, Ipc, Program, Sockets, Surface, Users, fence};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output};

/// A raw system call, or a few, with a system call's result.
type Act = fn() -> i64;

const TIGHT: Surface = Surface {
    sockets: Sockets::PairsOnly,
    ipc: Ipc::Own,
    forks: Forks::Never,
    exits: Exits::Silent,
    users: Users::One,
};

fn load(program: &Program) -> std::io::Result<()> {
    let filter = libc::sock_fprog {
        len: program.as_slice().len().try_into().unwrap_or(0),
        filter: program.as_slice().as_ptr().cast_mut(),
    };
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                &raw const filter,
            ) != 0
    };
    if failed {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Runs `act` in a child process and returns its errno, 0 for success.
fn in_child(filter: Option<&Program>, act: Act) -> Result<i32, i32> {
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let errno = match filter.map(load) {
                Some(Err(_)) => 255,
                _ if act() >= 0 => 0,
                _ => *libc::__errno_location(),
            };
            libc::_exit(errno);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        if libc::WIFEXITED(status) {
            Ok(libc::WEXITSTATUS(status))
        } else {
            Err(libc::WTERMSIG(status))
        }
    }
}

macro_rules! syscall {
    ($number:ident $(, $argument:expr)*) => {
        unsafe { libc::syscall(libc::$number $(, $argument as libc::c_long)*) }
    };
}

fn socket(family: i32, kind: i32) -> i64 {
    i64::from(unsafe { libc::socket(family, kind, 0) })
}

/// Cases with the errno under the filter. Without it, the call must succeed or fail for a reason of its own,
/// with another errno; if the machine's own error looks the same, the case proves nothing and is skipped with
/// a message.
const REFUSED: &[(&str, Act, i32)] = &[
    (
        "socket AF_INET",
        || socket(libc::AF_INET, libc::SOCK_STREAM),
        libc::EACCES,
    ),
    (
        "socket AF_INET6",
        || socket(libc::AF_INET6, libc::SOCK_DGRAM),
        libc::EACCES,
    ),
    (
        "socket AF_UNIX",
        || socket(libc::AF_UNIX, libc::SOCK_STREAM),
        libc::EPERM,
    ),
    (
        "socket AF_NETLINK",
        || socket(libc::AF_NETLINK, libc::SOCK_RAW),
        libc::EPERM,
    ),
    (
        "socket AF_ALG",
        || socket(libc::AF_ALG, libc::SOCK_SEQPACKET),
        libc::EPERM,
    ),
    (
        "socket AF_VSOCK",
        || socket(libc::AF_VSOCK, libc::SOCK_STREAM),
        libc::EPERM,
    ),
    (
        "socket AF_PACKET",
        || socket(libc::AF_PACKET, libc::SOCK_RAW),
        libc::EPERM,
    ),
    (
        "unshare user",
        || syscall!(SYS_unshare, libc::CLONE_NEWUSER),
        libc::EPERM,
    ),
    (
        "clone user",
        || syscall!(SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD, 0, 0, 0, 0),
        libc::EPERM,
    ),
    ("clone3", || syscall!(SYS_clone3, 0, 0), libc::ENOSYS),
    (
        "ptrace",
        || syscall!(SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0),
        libc::EPERM,
    ),
    (
        "process_vm_readv",
        || syscall!(SYS_process_vm_readv, libc::getpid(), 0, 0, 0, 0, 0),
        libc::EPERM,
    ),
    (
        "io_uring_setup",
        || syscall!(SYS_io_uring_setup, 1, 0),
        libc::EPERM,
    ),
    ("userfaultfd", || syscall!(SYS_userfaultfd, 1), libc::EPERM),
    ("bpf", || syscall!(SYS_bpf, 0, 0, 0), libc::EPERM),
    (
        "perf_event_open",
        || syscall!(SYS_perf_event_open, 0, 0, -1, -1, 0),
        libc::EPERM,
    ),
    ("keyctl", || syscall!(SYS_keyctl, 0, -3, 1, 0, 0), libc::EPERM),
    ("add_key", || syscall!(SYS_add_key, 0, 0, 0, 0, -3), libc::EPERM),
    (
        "mount",
        || {
            syscall!(
                SYS_mount,
                c"none".as_ptr(),
                c"/nowhere".as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                0
            )
        },
        libc::EPERM,
    ),
    (
        "open_tree",
        || syscall!(SYS_open_tree, libc::AT_FDCWD, c"/".as_ptr(), 0),
        libc::EPERM,
    ),
    ("setns", || syscall!(SYS_setns, -1, 0), libc::EPERM),
    (
        "execveat",
        || syscall!(SYS_execveat, -1, c"".as_ptr(), 0, 0, libc::AT_EMPTY_PATH),
        libc::EPERM,
    ),
    (
        "memfd_create MFD_EXEC",
        || syscall!(SYS_memfd_create, c"x".as_ptr(), libc::MFD_EXEC),
        libc::EACCES,
    ),
    ("pidfd_getfd", || syscall!(SYS_pidfd_getfd, -1, 0, 0), libc::EPERM),
    (
        "name_to_handle_at",
        || syscall!(SYS_name_to_handle_at, libc::AT_FDCWD, 0, 0, 0, 0),
        libc::EPERM,
    ),
    (
        "ioctl TIOCSTI",
        || syscall!(SYS_ioctl, -1, libc::TIOCSTI, 0),
        libc::EPERM,
    ),
    (
        "ioctl TIOCSTI, high bits set",
        || syscall!(SYS_ioctl, -1, libc::TIOCSTI | 1 << 40, 0),
        libc::EPERM,
    ),
    (
        "personality",
        || syscall!(SYS_personality, libc::ADDR_NO_RANDOMIZE),
        libc::EPERM,
    ),
    (
        "prctl PR_SET_CHILD_SUBREAPER",
        || syscall!(SYS_prctl, libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
        libc::EPERM,
    ),
    (
        "prlimit64 of the parent",
        || syscall!(SYS_prlimit64, libc::getppid(), 7, 0, 0),
        libc::EPERM,
    ),
    (
        "setuid to oneself",
        || syscall!(SYS_setuid, libc::getuid()),
        libc::EPERM,
    ),
    (
        "landlock",
        || syscall!(SYS_landlock_create_ruleset, 0, 0, 1),
        libc::EPERM,
    ),
    (
        "seccomp",
        || syscall!(SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, 0),
        libc::EPERM,
    ),
    (
        "get_mempolicy",
        || syscall!(SYS_get_mempolicy, 0, 0, 0, 0, 0),
        libc::EPERM,
    ),
    (
        "mmap MAP_HUGETLB",
        || {
            syscall!(
                SYS_mmap,
                0,
                1 << 21,
                3,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB,
                7,
                0
            )
        },
        libc::ENOMEM,
    ),
    (
        "setxattr",
        || syscall!(SYS_fsetxattr, -1, c"user.x".as_ptr(), 0, 0, 0),
        libc::EOPNOTSUPP,
    ),
    (
        "socketpair SOCK_DGRAM",
        || {
            let mut pair = [0; 2];
            i64::from(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM, 0, pair.as_mut_ptr()) })
        },
        libc::EPERM,
    ),
    ("fchmod setuid", || syscall!(SYS_fchmod, -1, 0o4755), libc::EPERM),
    (
        "fchmodat setgid",
        || syscall!(SYS_fchmodat, -1, NOWHERE, 0o2755),
        libc::EPERM,
    ),
    (
        "fchmodat2 setuid",
        || syscall!(SYS_fchmodat2, -1, NOWHERE, 0o4755, 0),
        libc::EPERM,
    ),
    (
        "mknodat setuid",
        || syscall!(SYS_mknodat, -1, NOWHERE, libc::S_IFREG | 0o4755, 0),
        libc::EPERM,
    ),
    (
        "openat O_CREAT setuid",
        || syscall!(SYS_openat, -1, NOWHERE, libc::O_CREAT, 0o4755),
        libc::EPERM,
    ),
    (
        "openat O_TMPFILE setuid",
        || syscall!(SYS_openat, -1, NOWHERE, libc::O_TMPFILE | libc::O_RDWR, 0o4755),
        libc::EPERM,
    ),
    (
        "openat2",
        || {
            let how = [0_u64; 3];
            syscall!(SYS_openat2, libc::AT_FDCWD, c"/".as_ptr(), how.as_ptr(), 24)
        },
        libc::ENOSYS,
    ),
];

const NOWHERE: *const libc::c_char = c"nowhere".as_ptr();

#[test]
fn the_kernel_refuses_inside_what_works_outside() {
    let program = fence(TIGHT).unwrap();
    let mut shown = 0;
    for &(name, act, expected) in REFUSED {
        assert_eq!(in_child(Some(&program), act), Ok(expected), "{name} inside");
        match in_child(None, act) {
            Ok(errno) if errno == expected => {
                eprintln!("skipped: {name} fails with errno {errno} outside, too")
            }
            _ => shown += 1,
        }
    }
    assert!(
        shown > REFUSED.len() / 2,
        "only {shown} of {} acts differ outside",
        REFUSED.len()
    );
}

#[test]
fn ordinary_calls_work_inside() {
    let program = fence(TIGHT).unwrap();
    let allowed: &[(&str, Act)] = &[
        ("getpid", || syscall!(SYS_getpid)),
        ("memfd_create", || {
            syscall!(SYS_memfd_create, c"x".as_ptr(), libc::MFD_CLOEXEC)
        }),
        ("own limits", || syscall!(SYS_prlimit64, 0, 7, 0, 0)),
        ("name", || {
            syscall!(SYS_prctl, libc::PR_SET_NAME, c"guest".as_ptr(), 0, 0, 0)
        }),
        ("personality query", || syscall!(SYS_personality, 0xffff_ffff_u32)),
        ("socketpair", || {
            let mut pair = [0; 2];
            i64::from(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) })
        }),
        ("fork", || i64::from(unsafe { libc::fork() })),
    ];
    for &(name, act) in allowed {
        assert_eq!(in_child(Some(&program), act), Ok(0), "{name}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn i386_calls_kill_the_process() {
    /// getpid through the old gate: to a filter that ignores the architecture, 20 means `writev`.
    fn old_gate() -> i64 {
        let result: i64;
        unsafe { std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => result) };
        result
    }
    if in_child(None, old_gate) != Ok(0) {
        eprintln!("skipped: this kernel has no i386 calls");
        return;
    }
    assert_eq!(
        in_child(Some(&fence(TIGHT).unwrap()), old_gate),
        Err(libc::SIGSYS)
    );
}

#[test]
#[cfg(target_arch = "x86_64")]
fn x32_calls_are_unknown() {
    let getpid = || unsafe { libc::syscall(0x4000_0000 | libc::SYS_getpid) };
    assert_eq!(in_child(Some(&fence(TIGHT).unwrap()), getpid), Ok(libc::ENOSYS));
}

/// Runs a program under the filter, if it is installed.
fn run(program: &str, arguments: &[&str], surface: Surface) -> Option<Output> {
    let filter = fence(surface).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(folder.path())
        .env("TMPDIR", folder.path());
    unsafe { command.pre_exec(move || load(&filter)) };
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: {program} is not installed");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

fn prints(program: &str, arguments: &[&str], expected: &str) {
    let Some(output) = run(program, arguments, TIGHT) else {
        return;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        (out.as_str(), err.as_str(), output.status.into_raw()),
        (expected, "", 0),
        "{program}"
    );
}

#[test]
fn the_shell_and_its_tools_work() {
    let script = r#"set -eu
        printf 'b 2\na 1\nc 3\n' > list; sort -o sorted list; awk '{n += $2} END {print n}' sorted
        sed -n 's/^a /found /p' < sorted; grep -c . list; find . -name 'l*' -newermt 2000-01-01 | wc -l
        cp -p list copy; mv copy moved; ln -s list link; mkfifo pipe; touch -d 2020-01-01 moved; chmod 600 moved
        tar -czf all.tar.gz list sorted; mkdir out; tar -xzf all.tar.gz -C out; cat out/sorted | tr -d '\n'; echo
        (sleep 0 & wait); kill -0 $$; ulimit -n > /dev/null; diff list out/list; head -c 4 /dev/urandom | wc -c"#;
    prints("bash", &["-c", script], "6\nfound 1\n3\n1\na 1b 2c 3\n4\n");
}

/// A file with a setuid or setgid bit can be copied; the copy has none, and cannot get one.
#[test]
fn copies_carry_no_setuid_bit() {
    let folder = tempfile::tempdir().unwrap();
    let team = folder.path().join("team");
    std::fs::create_dir(&team).unwrap();
    std::fs::write(team.join("tool"), "").unwrap();
    for (path, mode) in [(&team, 0o2755), (&team.join("tool"), 0o6755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let script = r#"export LC_ALL=C; umask 022; cp -r "$0" copy && stat -c %a copy copy/tool; chmod u+s copy/tool 2>&1; stat -c %a copy/tool"#;
    let refused = "chmod: changing permissions of 'copy/tool': Operation not permitted\n";
    prints(
        "bash",
        &["-c", script, team.to_str().unwrap()],
        &format!("755\n755\n{refused}755\n"),
    );
}

#[test]
fn python_works() {
    let code = r#"
import asyncio, concurrent.futures, mmap, multiprocessing, os, resource, shutil, signal, socket, sqlite3, subprocess, sys, tempfile, threading
def square(n): return n * n
if __name__ == "__main__":
    with concurrent.futures.ThreadPoolExecutor(4) as pool: print(sum(pool.map(square, range(10))))
    async def shell():
        process = await asyncio.create_subprocess_exec("echo", "child", stdout=subprocess.PIPE)
        return (await process.communicate())[0].decode().strip()
    print(asyncio.run(shell()))
    with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(square, range(4)))
    print(subprocess.run(["echo", "run"], capture_output=True, text=True).stdout.strip())
    base = sqlite3.connect("base.sqlite"); base.execute("create table t (n)"); base.execute("insert into t values (7)"); base.commit()
    print(base.execute("select n from t").fetchone()[0])
    with tempfile.NamedTemporaryFile() as file: shutil.copy2(file.name, "copied")
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0, len(os.sched_getaffinity(0)) > 0)
    try: socket.create_connection(("127.0.0.1", 9))
    except OSError as error: print(type(error).__name__)
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program.py");
    std::fs::write(&file, code).unwrap();
    let expected = "285\nchild\n[0, 1, 4, 9]\nrun\n7\nTrue True\nPermissionError\n";
    prints("python3", &[file.to_str().unwrap()], expected);
}

#[test]
fn node_works() {
    let code = r#"
const { execFileSync, spawn } = require("child_process"), { Worker } = require("worker_threads"), fs = require("fs");
console.log(execFileSync("echo", ["child"]).toString().trim());
fs.promises.writeFile("f", "text").then(() => fs.promises.readFile("f", "utf8")).then(console.log).then(() => {
  new Worker("require('worker_threads').parentPort.postMessage(6 * 7)", { eval: true }).on("message", (n) => {
    console.log(n);
    require("net").connect(9, "127.0.0.1").on("error", (e) => console.log(e.code));
  });
});"#;
    prints("node", &["-e", code], "child\ntext\n42\nEACCES\n");
}

#[test]
fn a_compiler_works() {
    let script = "printf 'int main(void) { return 7; }' > a.c && gcc -O1 a.c -o a; ./a; echo $?";
    if run("gcc", &["--version"], TIGHT).is_some() {
        prints("bash", &["-c", script], "7\n");
    }
}
