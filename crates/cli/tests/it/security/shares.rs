//! Threat: a guest that exhausts a per-user kernel resource for all other processes of that user.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use super::fence::{Fence, USER};

/// A resource that the kernel counts per user.
struct Share {
    /// The function of `shares.py` that takes one unit.
    take: &'static str,
    /// Maximum number of units of a guest.
    most: usize,
    /// The error at the maximum.
    errno: &'static str,
    /// Number of units that another process of the same user still gets.
    others: usize,
}

const fn share(take: &'static str, most: usize, errno: &'static str, others: usize) -> Share {
    Share {
        take,
        most,
        errno,
        others,
    }
}

/// The shares of a guest in a cell.
const SHARES: &[Share] = &[
    share("queued_signal", 256, "EAGAIN", 200),
    share("timer", 256, "EAGAIN", 200),
    share("inotify_instance", 8, "EMFILE", 4),
    share("inotify_watch", 2048, "ENOSPC", 100),
    share("descriptor", 509, "EMFILE", 100),
    share("locked_segment", 16, "ENOMEM", 4),
    share("message_queue", 0, "EMFILE", 0),
    share("lease", 0, "EACCES", 0),
];

/// Each time two messages with 253 descriptors together; the kernel checks the limit before it counts them.
const IN_FLIGHT: Share = share("descriptor_in_flight", 3, "ETOOMANYREFS", 1);

/// The shares without namespaces. A guest of root is nobody there, an ordinary user's is that user.
const WITHOUT_NAMESPACES: &[Share] = &[
    share("queued_signal", 256, "EAGAIN", 200),
    share("timer", 256, "EAGAIN", 200),
    share("inotify_instance", 0, "EMFILE", 4),
    IN_FLIGHT,
    share("descriptor", 509, "EMFILE", 100),
    share("locked_segment", 0, "EPERM", 4),
    share("message_queue", 0, "EPERM", 0),
    share("lease", 0, "EACCES", 0),
];

fn program(call: &str) -> String {
    format!("{}\nprint({call}, flush=True)\n", include_str!("shares.py"))
}

/// A guest that holds its maximum until its input ends.
struct Holder(Child);

impl Holder {
    fn start(fence: &Fence, take: &str) -> (Self, String) {
        let code = format!("{}sys.stdin.read()\n", program(&format!("take({take}, 100000)")));
        let mut command = fence.ringfence(&["--stdin", "-", "--timeout", "120s", "-c", &code]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        (Self(child), line.trim().to_owned())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The processes that must not notice an exhausted share.
#[derive(Clone, Copy, PartialEq)]
enum Others {
    /// Programs of the same user outside, and guests.
    All,
    /// Programs outside. Guests share the user's resource among themselves.
    Outside,
}

/// Returns the deviations: outside more units are available, inside no more than the share, and meanwhile
/// others get theirs.
fn failures(fence: &Fence, share: &Share, others: Others) -> Vec<String> {
    let mut failures = Vec::new();
    let mut expect = |place: &str, found: &str, fine: bool| {
        if !fine {
            failures.push(format!("{} {place}: {found}", share.take));
        }
    };
    let more = share.most + 2;
    let call = |count| program(&format!("take({}, {count})", share.take));
    let found = fence.outside(&call(more), &[]).stdout;
    expect("outside", &found, found.trim() == format!("{more} ok"));
    let (holder, taken) = Holder::start(fence, share.take);
    let (count, errno) = taken.split_once(' ').unwrap_or_default();
    let within = count.parse().is_ok_and(|count: usize| count <= share.most);
    expect("inside", &taken, within && errno == share.errno);
    let enough = format!("{} ok\n", share.others);
    let found = fence.outside(&call(share.others), &[]).stdout;
    expect("outside meanwhile", &found, found == enough);
    if others == Others::All {
        let found = fence.inside(&[], &call(share.others), &[]).stdout;
        expect("another guest meanwhile", &found, found == enough);
    }
    drop(holder);
    failures
}

#[track_caller]
fn bounded(fence: &Fence, others: Others, shares: &[Share]) {
    let failures: Vec<String> = shares
        .iter()
        .flat_map(|share| failures(fence, share, others))
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn of_roots_a_guest_gets_a_share() {
    let Some(fence) = Fence::root() else { return };
    bounded(&fence, Others::All, SHARES);
    bounded(&fence, Others::All, &[IN_FLIGHT]);
}

#[test]
fn of_a_users_a_guest_gets_a_share() {
    let Some(fence) = Fence::ordinary_user() else {
        return;
    };
    bounded(&fence, Others::All, SHARES);
    bounded(&fence, Others::Outside, &[IN_FLIGHT]);
}

#[test]
fn without_namespaces_a_guest_gets_a_share() {
    for user in [0, USER] {
        let Some(fence) = Fence::container(user) else {
            return;
        };
        bounded(&fence, Others::Outside, WITHOUT_NAMESPACES);
    }
}

/// Resources that the kernel counts per user in all namespaces: guests of root are different users, those of
/// one server too.
#[test]
fn guests_of_roots_engine_are_different_users() {
    let Some(fence) = Fence::root() else { return };
    let fence = fence.with_engine();
    for (take, errno) in [
        ("descriptor_in_flight", "ETOOMANYREFS"),
        ("pipe_of_a_mebibyte", "EPERM"),
    ] {
        let (holder, taken) = Holder::start(&fence, take);
        assert!(taken.ends_with(errno), "{take}: {taken}");
        let found = fence.printed(&[], &program(&format!("take({take}, 1)")));
        assert_eq!(found, "1 ok\n", "{take}");
        drop(holder);
    }
}

/// A user's new pipes are small once guests have exhausted the user's pipe buffers. They still work.
#[test]
fn runs_go_on_when_a_guest_has_all_large_pipes() {
    let Some(fence) = Fence::ordinary_user() else {
        return;
    };
    let (holder, taken) = Holder::start(&fence, "pipe_of_a_mebibyte");
    assert!(taken.ends_with("EPERM"), "{taken}");
    let printed = fence.printed(&[], "print('x' * 100_000)");
    assert_eq!(printed.len(), 100_001);
    drop(holder);
}

/// All processes of a guest together leave half of the user's epoll watches.
#[test]
fn a_users_guest_leaves_half_of_what_epoll_may_watch() {
    let Some(fence) = Fence::ordinary_user() else {
        return;
    };
    let program = program("watched_by_epoll()");
    let taken: u64 = fence.printed(&["--pids", "64"], &program).trim().parse().unwrap();
    let most: u64 = std::fs::read_to_string("/proc/sys/fs/epoll/max_user_watches")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    // On a machine with little memory a guest keeps the descriptors that programs need.
    assert!(taken * 64 <= most / 2 || taken <= 64 * 64, "{taken} of {most}");
}
