//! Tests the container filters: each within the next, and the refusals of each.

use super::*;

const PROFILES: [Profile; 4] = [
    Profile::Strict,
    Profile::Standard,
    Profile::StandardTcp,
    Profile::StandardNet,
];

fn filters(arch: Arch) -> [Filter; 4] {
    PROFILES.map(|profile| {
        let (policy, surface) = profile.policy().unwrap();
        Filter::of(policy, arch, surface)
    })
}

/// Returns the argument lists that any of the files distinguishes.
fn all_arguments(name: &str) -> Vec<Vec<u64>> {
    [policy_file(), strict_file()]
        .iter()
        .flat_map(|file| arguments(file, name))
        .collect()
}

#[test]
fn each_profile_allows_what_the_one_before_it_allows() {
    for arch in ARCHES {
        let filters = filters(arch);
        for call in shipped()
            .unwrap()
            .table()
            .iter()
            .filter(|call| call.number(arch).is_some())
        {
            for args in all_arguments(call.name) {
                let allowed = filters
                    .each_ref()
                    .map(|filter| filter.call(call.name, &args) == ALLOW);
                assert!(
                    allowed.is_sorted(),
                    "{} {args:x?} {arch:?}: {allowed:?}",
                    call.name
                );
            }
        }
    }
}

/// The profiles differ only in their purpose.
#[test]
fn the_profiles_differ_where_they_should() {
    let inet = [libc::AF_INET as u64, libc::SOCK_STREAM as u64];
    let datagrams = [libc::AF_INET as u64, libc::SOCK_DGRAM as u64];
    let adopt = [libc::PR_SET_CHILD_SUBREAPER as u64];
    let calls: &[(&str, &[u64], [bool; 4])] = &[
        ("read", &[], [true; 4]),
        ("execve", &[], [true; 4]),
        ("clone", &[17], [false, true, true, true]),
        ("mkdirat", &[], [false, true, true, true]),
        ("prctl", &adopt, [false, true, true, true]),
        ("socket", &inet, [false, false, true, true]),
        ("socket", &datagrams, [false, false, false, true]),
    ];
    for filters in ARCHES.map(filters) {
        for (name, args, expected) in calls {
            let allowed = filters.each_ref().map(|filter| filter.call(name, args) == ALLOW);
            assert_eq!(allowed, *expected, "{name} {args:x?}");
        }
    }
}

#[test]
fn strict_starts_threads_and_no_processes() {
    for arch in ARCHES {
        let [filter, ..] = filters(arch);
        let eperm = refused(libc::EPERM);
        let check = |flags: i32, expected| {
            assert_eq!(
                filter.call("clone", &[flags as u32 as u64]),
                expected,
                "{flags:#x}"
            );
        };
        check(0x3d_0f00, ALLOW); // A thread of glibc.
        check(libc::SIGCHLD, eperm);
        check(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, eperm);
        check(libc::CLONE_THREAD | libc::CLONE_PARENT, eperm);
        for namespace in [
            libc::CLONE_NEWNS,
            libc::CLONE_NEWCGROUP,
            libc::CLONE_NEWUTS,
            libc::CLONE_NEWIPC,
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWNET,
        ] {
            check(namespace | libc::CLONE_THREAD, eperm);
            check(namespace, eperm);
        }
        assert_eq!(filter.call("clone3", &[]), refused(libc::ENOSYS));
    }
}

#[test]
fn strict_opens_files_that_are_there() {
    for (arch, name, place) in [
        (Arch::X86_64, "open", 1),
        (Arch::X86_64, "openat", 2),
        (Arch::Aarch64, "openat", 2),
    ] {
        let [filter, ..] = filters(arch);
        let check = |flags: i32, expected| {
            for above in [0, 1 << 32] {
                let mut args = [0; 4];
                args[place] = u64::from(flags as u32) | above;
                assert_eq!(filter.call(name, &args), expected, "{name} {flags:#o}");
            }
        };
        check(libc::O_RDONLY, ALLOW);
        check(libc::O_WRONLY | libc::O_CLOEXEC, ALLOW); // As runc opens its FIFO.
        check(
            libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY | libc::O_NOFOLLOW,
            ALLOW,
        );
        check(libc::O_PATH, ALLOW);
        for refusal in [
            libc::O_RDWR,
            libc::O_ACCMODE,
            libc::O_CREAT,
            libc::O_TRUNC,
            libc::O_TMPFILE,
        ] {
            check(refusal, refused(libc::EPERM));
            check(refusal | libc::O_CLOEXEC, refused(libc::EPERM));
        }
        assert_eq!(filter.call("openat2", &[]), refused(libc::ENOSYS));
    }
}

#[test]
fn strict_changes_no_files_and_names_no_sockets() {
    let names = "mkdirat mknodat renameat renameat2 linkat symlinkat unlinkat truncate ftruncate fallocate fchmod fchmodat
        fchown fchownat utimensat setxattr memfd_create bind listen accept accept4 shmget msgget mq_open flistxattr";
    for arch in ARCHES {
        let [filter, ..] = filters(arch);
        for name in names.split_whitespace() {
            assert_eq!(filter.call(name, &[]), refused(libc::EPERM), "{name}");
            assert_eq!(filter.call(name, &[u64::MAX; 6]), refused(libc::EPERM), "{name}");
        }
    }
}

#[test]
fn sockets_follow_the_profile() {
    let (eperm, eacces) = (refused(libc::EPERM), refused(libc::EACCES));
    let table = [
        (libc::AF_UNIX, libc::SOCK_STREAM, [ALLOW; 4]),
        (libc::AF_INET, libc::SOCK_STREAM, [eacces, eacces, ALLOW, ALLOW]),
        (libc::AF_INET6, libc::SOCK_DGRAM, [eacces, eacces, eacces, ALLOW]),
        (libc::AF_INET, libc::SOCK_RAW, [eacces, eacces, eacces, eperm]),
        (libc::AF_NETLINK, libc::SOCK_RAW, [eperm; 4]),
        (libc::AF_PACKET, libc::SOCK_RAW, [eperm; 4]),
        (libc::AF_VSOCK, libc::SOCK_STREAM, [eperm; 4]),
        (libc::AF_ALG, libc::SOCK_SEQPACKET, [eperm; 4]),
    ];
    for filters in ARCHES.map(filters) {
        for (family, kind, expected) in table {
            let args = [family as u64, kind as u64];
            assert_eq!(
                filters.each_ref().map(|filter| filter.call("socket", &args)),
                expected,
                "{args:?}"
            );
        }
    }
}

/// The kernel accepts 4096 instructions; the engines' library writes fewer than two for each of these.
#[test]
fn the_documents_are_short_enough_for_other_compilers() {
    for (arch, kind) in ARCHES
        .into_iter()
        .flat_map(|arch| PROFILES.map(|kind| (arch, kind)))
    {
        let document = profile(arch, kind).unwrap();
        let length = |list: &Value| list.as_array().map_or(0, Vec::len);
        let entries = document["syscalls"].as_array().unwrap().iter();
        let rules: usize = entries
            .map(|entry| length(&entry["names"]) * (1 + length(&entry["args"])))
            .sum();
        assert!(2 * rules < 4096, "{rules} for {arch:?} {kind:?}");
    }
}
