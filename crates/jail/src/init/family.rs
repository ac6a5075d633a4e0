//! Finds and kills descendants of a process.

use std::collections::BTreeSet;
use std::fs;

use crate::sys;

/// An entry of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Relative {
    pid: libc::pid_t,
    parent: libc::pid_t,
    session: libc::pid_t,
    dead: bool,
}

/// Kills all descendants of a process, once: those forked meanwhile survive until the next call.
pub(super) fn kill_below(ancestor: libc::pid_t) {
    for pid in below(ancestor, &all()) {
        let _ = sys::kill(pid, libc::SIGKILL);
    }
}

/// Kills the processes of a session, once.
pub(super) fn kill_session(session: libc::pid_t) {
    for process in all().into_iter().filter(|process| process.session == session) {
        let _ = sys::kill(process.pid, libc::SIGKILL);
    }
}

/// Kills children of this process that are neither in `ours` nor in one of `sessions`, once. Returns their
/// sessions; empty if there were none.
pub(super) fn kill_strays(
    ours: &BTreeSet<libc::pid_t>,
    sessions: &BTreeSet<libc::pid_t>,
) -> Vec<libc::pid_t> {
    let own = sys::process_ids().0;
    let is_stray = |process: &Relative| {
        let known = ours.contains(&process.pid) || sessions.contains(&process.session);
        process.parent == own && !process.dead && !known
    };
    let strays: Vec<Relative> = all().into_iter().filter(is_stray).collect();
    for stray in &strays {
        let _ = sys::kill(stray.pid, libc::SIGKILL);
    }
    strays.iter().map(|stray| stray.session).collect()
}

/// Returns all live descendants of a process, parents before children.
fn below(ancestor: libc::pid_t, all: &[Relative]) -> Vec<libc::pid_t> {
    let children = |parent| all.iter().filter(move |process| process.parent == parent);
    let mut found: Vec<&Relative> = children(ancestor).collect();
    let mut next = 0;
    // A list read while processes come and go could contain a cycle; its length bounds the walk.
    while next < found.len() && found.len() <= all.len() {
        found.extend(children(found[next].pid));
        next += 1;
    }
    let alive = found.into_iter().filter(|process| !process.dead);
    alive.map(|process| process.pid).collect()
}

fn all() -> Vec<Relative> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        parse(pid, &text)
    })
    .collect()
}

/// Parses `pid (name) state parent group session …`. The guest chooses the name, which may contain anything
/// that follows.
fn parse(pid: libc::pid_t, stat: &[u8]) -> Option<Relative> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(&stat[end + 1..]).ok()?;
    let mut words = text.split_ascii_whitespace();
    let state = words.next()?;
    Some(Relative {
        pid,
        parent: words.next()?.parse().ok()?,
        session: words.nth(1)?.parse().ok()?,
        dead: matches!(state, "Z" | "X"),
    })
}

/// Returns the number of out-of-memory kills in this container; `None` if the kernel does not expose it.
pub(super) fn memory_kills() -> Option<u64> {
    let counts = [
        "/sys/fs/cgroup/memory.events",
        "/sys/fs/cgroup/memory/memory.oom_control",
    ];
    let text = counts.iter().find_map(|path| fs::read_to_string(path).ok())?;
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill "))
        .and_then(|count| count.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_pretend_to_be_the_rest_of_the_line() {
        let check = |stat: &[u8], expected| {
            let found = parse(7, stat).map(|found| (found.parent, found.session, found.dead));
            assert_eq!(found, expected);
        };
        check(b"7 (python3) S 5 7 8 0", Some((5, 8, false)));
        check(b"7 (x) Z 1 (y) R 4 7 8", Some((4, 8, false)));
        check(b"7 (a\xff\n) Z 5 0 0", Some((5, 0, true)));
        check(b"7 (python3", None);
        check(b"7 (python3) S", None);
    }

    #[test]
    fn descendants_are_found_and_a_circle_ends() {
        let process = |pid, parent| Relative {
            pid,
            parent,
            session: 1,
            dead: false,
        };
        let all = [
            process(2, 1),
            process(3, 2),
            process(4, 3),
            process(5, 1),
            process(6, 2),
        ];
        assert_eq!(below(2, &all), [3, 6, 4]);
        assert_eq!(below(4, &all), [] as [i32; 0]);
        let circle = [process(2, 3), process(3, 2)];
        assert!(!below(2, &circle).is_empty());
    }
}
