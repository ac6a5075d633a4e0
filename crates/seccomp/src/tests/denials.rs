//! The attacks that broke other sandboxes, each by name with its expected errno.

use super::*;

#[test]
fn other_modes_of_the_processor_are_refused() {
    let filter = Filter::new(Arch::X86_64, TIGHT);
    let i386 = 0x4000_0003;
    assert_eq!(run(&filter.0, 20, i386, &[]), KILL);
    assert_eq!(run(&filter.0, 39, Arch::Aarch64.audit(), &[]), KILL);
    for number in [0, 39, 59, 512, 520, 545] {
        assert_eq!(
            filter.number(number | 0x4000_0000, &[]),
            refused(libc::ENOSYS),
            "x32 call {number}"
        );
    }
    assert_eq!(filter.number(u32::MAX, &[]), refused(libc::ENOSYS));
    assert_eq!(filter.number(470, &[]), refused(libc::ENOSYS));
    let arm = 0x4000_0028;
    assert_eq!(run(&Filter::new(Arch::Aarch64, TIGHT).0, 20, arm, &[]), KILL);
}

/// Refused on every surface, whatever the arguments.
const REFUSED: &str = "
    io_uring_setup io_uring_enter io_uring_register ptrace process_vm_readv process_vm_writev
    process_madvise userfaultfd add_key request_key keyctl bpf perf_event_open execveat mount umount2
    pivot_root move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick mount_setattr statmount
    listmount unshare chroot swapon swapoff reboot kexec_load kexec_file_load init_module finit_module
    delete_module settimeofday clock_settime clock_adjtime adjtimex quotactl quotactl_fd acct syslog
    open_by_handle_at name_to_handle_at pidfd_getfd kcmp lookup_dcookie vhangup sethostname setdomainname
    move_pages migrate_pages mbind set_mempolicy get_mempolicy fanotify_init fanotify_mark nfsservctl
    memfd_secret landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp setuid
    setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid
";

/// The same, for calls that only x86_64 has.
const REFUSED_ON_X86_64: &str = "
    iopl ioperm modify_ldt uselib create_module query_module _sysctl ustat sysfs getpmsg
";

#[test]
fn the_kernel_surface_is_refused() {
    for surface in surfaces() {
        for arch in ARCHES {
            let filter = Filter::new(arch, surface);
            let more = if arch == Arch::X86_64 {
                REFUSED_ON_X86_64
            } else {
                ""
            };
            for name in REFUSED.split_whitespace().chain(more.split_whitespace()) {
                if surface.users == Users::Several && CHANGES_OF_USER.contains(&name) {
                    assert_eq!(filter.call(name, &[0; 6]), ALLOW, "{name}");
                    continue;
                }
                assert_eq!(filter.call(name, &[0; 6]), refused(libc::EPERM), "{name}");
                assert_eq!(filter.call(name, &[u64::MAX; 6]), refused(libc::EPERM), "{name}");
            }
            assert_eq!(filter.call("clone3", &[0; 6]), refused(libc::ENOSYS));
        }
    }
}

/// A session's fork moves into its cell, and drops the privileges gained there, under the filter. No other
/// guest may do so, and all children must be its own.
#[test]
fn only_a_session_can_fork_into_a_cell() {
    let parent = libc::CLONE_PARENT as u64;
    let with_id = parent | (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) as u64;
    let shared = [
        libc::CLONE_VM,
        libc::CLONE_FILES,
        libc::CLONE_FS,
        libc::CLONE_SIGHAND,
    ];
    for surface in surfaces() {
        let expected = match surface.forks {
            Forks::Never | Forks::Adopted => refused(libc::EPERM),
            Forks::IntoCells => ALLOW,
        };
        for filter in ARCHES.map(|arch| Filter::new(arch, surface)) {
            for (name, first) in [
                ("setns", 0),
                ("capset", 0),
                ("clone", parent),
                ("clone", with_id),
                ("prctl", libc::PR_CAPBSET_DROP as u64),
                ("prctl", libc::PR_CAP_AMBIENT as u64),
            ] {
                assert_eq!(filter.call(name, &[first]), expected, "{name} {first:#x}");
            }
            for flag in shared.map(|flag| flag as u64) {
                assert_eq!(filter.call("clone", &[flag | with_id]), refused(libc::EPERM));
                assert_eq!(filter.call("clone", &[flag | parent]), refused(libc::EPERM));
            }
        }
    }
}

#[test]
fn no_file_has_more_than_its_size() {
    for filter in surfaces().flat_map(|surface| ARCHES.map(|arch| Filter::new(arch, surface))) {
        let check = |name: &str, args: &[u64], expected: u32| {
            assert_eq!(filter.call(name, args), expected, "{name} {args:x?}")
        };
        let (eperm, unsupported) = (refused(libc::EPERM), refused(libc::EOPNOTSUPP));
        // FS_IOC_RESVSP, FS_IOC_RESVSP64, FS_IOC_ZERO_RANGE.
        for command in [0x4030_5828, 0x4030_582a, 0x4030_5839] {
            check("ioctl", &[3, command], eperm);
        }
        for (mode, expected) in [
            (0, ALLOW),
            (3, ALLOW),
            (0x10, ALLOW),
            (1, unsupported),
            (0x11, unsupported),
        ] {
            check("fallocate", &[3, mode, 0, 1 << 30], expected);
        }
    }
}

#[test]
fn arguments_that_escape_are_refused() {
    for filter in surfaces().flat_map(|surface| ARCHES.map(|arch| Filter::new(arch, surface))) {
        let check = |name: &str, args: &[u64], expected: u32| {
            assert_eq!(filter.call(name, args), expected, "{name} {args:x?}")
        };
        let (eperm, eacces) = (refused(libc::EPERM), refused(libc::EACCES));
        let sigchld = 17;
        check("clone", &[sigchld], ALLOW);
        check("clone", &[0x3d_0f00], ALLOW); // A thread of glibc.
        check(
            "clone",
            &[libc::CLONE_VM as u64 | libc::CLONE_VFORK as u64 | sigchld],
            ALLOW,
        );
        let namespaces = [
            libc::CLONE_NEWNS,
            libc::CLONE_NEWCGROUP,
            libc::CLONE_NEWUTS,
            libc::CLONE_NEWIPC,
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWNET,
            0x80,
        ];
        for flag in namespaces {
            check("clone", &[flag as u64 | sigchld], eperm);
        }
        for command in [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD] {
            check("ioctl", &[0, command], eperm);
            check("ioctl", &[0, command | 1 << 32], eperm);
        }
        check("ioctl", &[0, libc::TCGETS], ALLOW);
        check("ioctl", &[0, libc::TIOCGWINSZ], ALLOW);
        check("memfd_create", &[0, libc::MFD_CLOEXEC as u64], ALLOW);
        check("memfd_create", &[0, u64::from(libc::MFD_EXEC)], eacces);
        check("memfd_create", &[0, u64::from(libc::MFD_HUGETLB)], eperm);
        check(
            "mmap",
            &[0, 4096, 3, libc::MAP_HUGETLB as u64],
            refused(libc::ENOMEM),
        );
        check("mmap", &[0, 4096, 3, libc::MAP_PRIVATE as u64], ALLOW);
        check("prlimit64", &[0, 7], ALLOW);
        check("prlimit64", &[1, 7], eperm);
        check("personality", &[0], ALLOW);
        check("personality", &[0xffff_ffff], ALLOW);
        check("personality", &[libc::ADDR_NO_RANDOMIZE as u64], eperm);
        for (kind, expected) in [
            (libc::S_IFIFO, ALLOW),
            (libc::S_IFREG, ALLOW),
            (0, ALLOW),
            (libc::S_IFBLK, eperm),
            (libc::S_IFCHR, eperm),
            (libc::S_IFSOCK, eperm),
        ] {
            check("mknodat", &[0, 0, u64::from(kind | 0o644)], expected);
        }
        check("setxattr", &[], refused(libc::EOPNOTSUPP));
    }
}

/// On the host, such a file in a mounted directory would be a program that runs as the directory's owner.
/// Allowed where a guest has several users.
const CHANGES_OF_USER: &[&str] = &[
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setfsuid",
    "setfsgid",
    "setgroups",
];

#[test]
fn modes_are_free_only_where_there_are_several_users() {
    let set_user_id = 0o4755;
    for surface in surfaces() {
        let filter = Filter::new(Arch::X86_64, surface);
        let expected = match surface.users {
            Users::Several => ALLOW,
            Users::One => refused(libc::EPERM),
        };
        assert_eq!(filter.call("chmod", &[0, set_user_id]), expected, "{surface:?}");
        let device = u64::from(libc::S_IFCHR) | 0o600;
        assert_eq!(filter.call("mknod", &[0, device, 0]), refused(libc::EPERM));
    }
}

#[test]
fn no_call_gives_a_setuid_bit() {
    let create = u64::from((libc::O_CREAT | libc::O_WRONLY) as u32);
    let nameless = u64::from((libc::O_TMPFILE | libc::O_WRONLY) as u32);
    let plain = u64::from(libc::S_IFREG);
    // The arguments, with a mode of 0 at the given index.
    let everywhere: &[(&str, [u64; 4], usize)] = &[
        ("fchmod", [0; 4], 1),
        ("fchmodat", [0; 4], 2),
        ("fchmodat2", [0; 4], 2),
        ("openat", [0, 0, create, 0], 3),
        ("openat", [0, 0, nameless, 0], 3),
        ("mknodat", [0; 4], 2),
        ("mknodat", [0, 0, plain, 0], 2),
    ];
    let on_x86_64: &[(&str, [u64; 4], usize)] = &[
        ("chmod", [0; 4], 1),
        ("open", [0, create, 0, 0], 2),
        ("open", [0, nameless, 0, 0], 2),
        ("creat", [0; 4], 1),
        ("mknod", [0, plain, 0, 0], 1),
    ];
    for surface in surfaces().filter(|surface| surface.users == Users::One) {
        for (arch, calls) in [
            (Arch::X86_64, everywhere),
            (Arch::X86_64, on_x86_64),
            (Arch::Aarch64, everywhere),
        ] {
            let filter = Filter::new(arch, surface);
            for &(name, mut args, place) in calls {
                let without = args[place];
                // Without namespaces modes are not changed, and the call reports success.
                let harmless = match surface.ipc {
                    Ipc::Shared if name.contains("chmod") => refused(0),
                    Ipc::Own | Ipc::Shared => ALLOW,
                };
                // The kernel reads 16 bits of a mode: the bits above must not matter.
                for above in [0, 1 << 16, 0xffff_ffff_0000_0000] {
                    for (mode, expected) in [
                        (0o644, harmless),
                        (0o1777, harmless),
                        (0o4000, refused(libc::EPERM)),
                        (0o2755, refused(libc::EPERM)),
                        (0o7777, refused(libc::EPERM)),
                    ] {
                        args[place] = without | mode | above;
                        assert_eq!(filter.call(name, &args), expected, "{name} {args:x?}");
                    }
                }
            }
            assert_eq!(filter.call("openat2", &[0; 4]), refused(libc::ENOSYS));
            // Without O_CREAT there is no mode, only a stale register.
            let directory = u64::from(libc::O_DIRECTORY as u32);
            assert_eq!(filter.call("openat", &[0, 0, directory, u64::MAX]), ALLOW);
            // The kernel itself strips the bits from a new directory, and `cp -r` asks for them.
            assert_eq!(filter.call("mkdirat", &[0, 0, 0o2755]), ALLOW);
        }
    }
}

#[test]
fn prctl_allows_what_it_names() {
    let filter = Filter::new(Arch::X86_64, TIGHT);
    let allowed = [
        libc::PR_SET_NAME,
        libc::PR_GET_NAME,
        libc::PR_SET_PDEATHSIG,
        libc::PR_GET_PDEATHSIG,
        libc::PR_GET_DUMPABLE,
        libc::PR_SET_DUMPABLE,
        libc::PR_GET_NO_NEW_PRIVS,
        libc::PR_SET_NO_NEW_PRIVS,
        libc::PR_SET_VMA,
        libc::PR_CAPBSET_READ,
        libc::PR_GET_SECCOMP,
        libc::PR_SET_THP_DISABLE,
        libc::PR_SET_TIMERSLACK,
        libc::PR_GET_TIMERSLACK,
        libc::PR_GET_TID_ADDRESS,
    ];
    for option in 0..100 {
        let expected = if allowed.contains(&option) {
            ALLOW
        } else {
            refused(libc::EPERM)
        };
        assert_eq!(
            filter.call("prctl", &[option as u64]),
            expected,
            "prctl option {option}"
        );
    }
    assert_eq!(filter.call("prctl", &[libc::PR_SET_VMA as u64]), ALLOW);
    assert_eq!(
        filter.call("prctl", &[libc::PR_SET_PTRACER as u64]),
        refused(libc::EPERM)
    );
}

const SOCKETS: [Sockets; 5] = [
    Sockets::PairsOnly,
    Sockets::Unix,
    Sockets::PairsAndTcp,
    Sockets::UnixAndTcp,
    Sockets::UnixAndInternet,
];

const EPERM: u32 = refused(libc::EPERM);
const EACCES: u32 = refused(libc::EACCES);

type Row = (&'static str, [libc::c_int; 3], [u32; 5]);

/// Call, then family, type and protocol, then its result on each surface.
const ROWS: &[Row] = &[
    ("socketpair", [libc::AF_UNIX, STREAM, 0], [ALLOW; 5]),
    ("socketpair", [libc::AF_UNIX, libc::SOCK_SEQPACKET, 0], [ALLOW; 5]),
    ("socketpair", [libc::AF_UNIX, libc::SOCK_DGRAM, 0], NAMED),
    ("socketpair", [libc::AF_TIPC, STREAM, 0], [EPERM; 5]),
    ("socket", [libc::AF_UNIX, STREAM, 0], NAMED),
    ("socket", [libc::AF_UNIX, libc::SOCK_DGRAM, 0], NAMED),
    ("socket", [libc::AF_INET, STREAM, 0], TCP),
    ("socket", [libc::AF_INET, STREAM, libc::IPPROTO_TCP], TCP),
    ("socket", [libc::AF_INET6, STREAM, libc::IPPROTO_TCP], TCP),
    ("socket", [libc::AF_INET, libc::SOCK_DGRAM, 0], UDP),
    (
        "socket",
        [libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP],
        UDP,
    ),
    ("socket", [libc::AF_INET, libc::SOCK_RAW, 0], OTHER),
    ("socket", [libc::AF_INET, STREAM, libc::IPPROTO_SCTP], OTHER),
    ("socket", [libc::AF_INET, STREAM, libc::IPPROTO_MPTCP], OTHER),
    (
        "socket",
        [libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP],
        OTHER,
    ),
];

const STREAM: libc::c_int = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
const NAMED: [u32; 5] = [EPERM, ALLOW, EPERM, ALLOW, ALLOW];
const TCP: [u32; 5] = [EACCES, EACCES, ALLOW, ALLOW, ALLOW];
const UDP: [u32; 5] = [EACCES, EACCES, EACCES, EACCES, ALLOW];
const OTHER: [u32; 5] = [EACCES, EACCES, EACCES, EACCES, EPERM];

#[test]
fn sockets_follow_the_surface() {
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
    for (index, sockets) in SOCKETS.into_iter().enumerate() {
        let surface = Surface {
            sockets,
            ipc: Ipc::Own,
            forks: Forks::Never,
            exits: Exits::Silent,
            users: Users::One,
        };
        let filter = Filter::new(Arch::X86_64, surface);
        for (name, arguments, expected) in ROWS {
            let args = arguments.map(|value| u64::from(value as u32));
            assert_eq!(
                filter.call(name, &args),
                expected[index],
                "{name} {args:?} {sockets:?}"
            );
        }
        for family in (0..60).filter(|family| !families.contains(family)) {
            for kind in 0..16 {
                assert_eq!(
                    filter.call("socket", &[family as u64, kind]),
                    EPERM,
                    "family {family}"
                );
            }
        }
        let named = if index == 0 { EPERM } else { ALLOW };
        for name in ["bind", "listen", "accept", "accept4", "connect"] {
            assert_eq!(filter.call(name, &[]), named, "{name}");
        }
        let option = |name: libc::c_int| filter.call("setsockopt", &[0, libc::SOL_TCP as u64, name as u64]);
        assert_eq!((option(libc::TCP_ULP), option(libc::TCP_NODELAY)), (EPERM, ALLOW));
    }
}

#[test]
fn ipc_needs_its_own_namespace() {
    for (ipc, expected) in [(Ipc::Own, ALLOW), (Ipc::Shared, refused(libc::EPERM))] {
        let filter = Filter::new(
            Arch::Aarch64,
            Surface {
                sockets: Sockets::Unix,
                ipc,
                forks: Forks::Never,
                exits: Exits::Silent,
                users: Users::One,
            },
        );
        for name in ["shmget", "shmat", "semop", "msgsnd", "mq_open"] {
            assert_eq!(filter.call(name, &[]), expected, "{name}");
        }
    }
}

/// Without namespaces a guest has its caller's user id, and Landlock governs neither modes, owners nor
/// priorities.
#[test]
fn the_callers_files_and_processes_are_left_alone_without_namespaces() {
    let (nothing_done, eperm) = (refused(0), refused(libc::EPERM));
    let pid = 4711;
    for surface in surfaces() {
        for arch in ARCHES {
            let filter = Filter::new(arch, surface);
            let check = |name: &str, args: &[u64], shared: u32| {
                let expected = if surface.ipc == Ipc::Own { ALLOW } else { shared };
                assert_eq!(
                    filter.call(name, args),
                    expected,
                    "{name} {args:?} {arch:?} {surface:?}"
                );
            };
            check("fchmod", &[3, 0o666], nothing_done);
            check("fchmodat", &[0, 0, 0o666], nothing_done);
            check("fchmodat2", &[0, 0, 0o666], nothing_done);
            check("utimensat", &[], nothing_done);
            check("ioctl", &[3, 0x4008_6602], eperm); // FS_IOC_SETFLAGS
            check("ioctl", &[3, 0x401c_5820], eperm); // FS_IOC_FSSETXATTR
            check("fchown", &[], eperm);
            check("fchownat", &[], eperm);
            for (name, before) in [
                ("sched_setaffinity", &[][..]),
                ("sched_setscheduler", &[]),
                ("sched_setparam", &[]),
                ("sched_setattr", &[]),
                ("setpriority", &[0]),
                ("ioprio_set", &[1]),
            ] {
                check(name, &[before, &[pid]].concat(), eperm);
                check(name, &[before, &[0]].concat(), ALLOW);
            }
            check("setpriority", &[2, 0], eperm);
            check("ioprio_set", &[3, 0], eperm);
        }
    }
}
