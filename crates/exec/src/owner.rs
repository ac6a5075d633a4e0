//! Names this process, so that leftovers of dead processes can be identified.

use std::fmt;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns this process's name, `ringfence-<pid>-<start>`, for resources that outlive it if it is killed. The
/// start time distinguishes it from a later process with the same pid.
pub fn owner_name() -> String {
    let pid = std::process::id();
    format!("ringfence-{pid}-{}", start_time(pid).unwrap_or(0))
}

/// Returns such a name with a suffix that is unique in this process: `ringfence-<pid>-<start>.<part>`.
pub(crate) fn part_name() -> String {
    static PARTS: AtomicU64 = AtomicU64::new(1);
    format!("{}.{}", owner_name(), PARTS.fetch_add(1, Ordering::Relaxed))
}

/// Returns `true` if the process with this name (without its prefix) no longer exists.
pub fn owner_is_dead(owner: &str) -> bool {
    let whole = owner.split_once('.').map_or(owner, |(whole, _)| whole);
    let Some((pid, start)) = whole.split_once('-') else {
        return false;
    };
    let (Ok(pid), Ok(start)) = (pid.parse(), start.parse::<u64>()) else {
        return false;
    };
    start_time(pid) != Some(start)
}

/// The owner of resources that can outlive a boot: a process, globally unique, and a part of it.
///
/// Written `<machine>.<boot>.<pid namespace>.<uid>.<pid>.<start>.<part>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    machine: String,
    boot: String,
    namespace: u64,
    uid: u32,
    pid: u32,
    start: u64,
    part: u64,
}

impl Owner {
    /// Creates an owner with a random part for this process. `None` if `/proc` cannot be read.
    pub fn new() -> Option<Self> {
        let pid = std::process::id();
        Some(Self {
            machine: plain(&fs::read_to_string("/etc/machine-id").unwrap_or_default()),
            boot: plain(&fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?),
            namespace: fs::metadata("/proc/self/ns/pid").ok()?.ino(),
            uid: fs::metadata("/proc/self").ok()?.uid(),
            pid,
            start: start_time(pid)?,
            // The standard library's hash keys are random.
            part: RandomState::new().build_hasher().finish(),
        })
    }

    /// Returns `true` if the process is certainly gone. Always `false` for a process of another machine, or
    /// one that this process cannot see.
    pub fn is_dead(&self) -> bool {
        Self::new().is_some_and(|us| self.is_dead_for(&us))
    }

    fn is_dead_for(&self, us: &Self) -> bool {
        let visible = us.uid == 0 || us.uid == self.uid;
        if self.boot == us.boot {
            let gone = self.namespace == us.namespace && start_time(self.pid) != Some(self.start);
            return visible && gone;
        }
        // Another boot of this machine, rather than another machine that uses the same container engine.
        visible && self.machine == us.machine && !self.machine.is_empty()
    }
}

fn plain(text: &str) -> String {
    text.chars().filter(char::is_ascii_hexdigit).take(64).collect()
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            machine,
            boot,
            namespace,
            uid,
            pid,
            start,
            part,
        } = self;
        write!(f, "{machine}.{boot}.{namespace}.{uid}.{pid}.{start}.{part:016x}")
    }
}

/// A text is not a valid owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no owner")]
pub struct ParseOwnerError(String);

impl FromStr for Owner {
    type Err = ParseOwnerError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.split('.');
            let owner = Self {
                machine: parts.next()?.to_owned(),
                boot: parts.next()?.to_owned(),
                namespace: parts.next()?.parse().ok()?,
                uid: parts.next()?.parse().ok()?,
                pid: parts.next()?.parse().ok()?,
                start: parts.next()?.parse().ok()?,
                part: u64::from_str_radix(parts.next()?, 16).ok()?,
            };
            parts.next().is_none().then_some(owner)
        };
        parse().ok_or_else(|| ParseOwnerError(text.chars().take(200).collect()))
    }
}

/// Returns the start time of a live process, in clock ticks since boot. A zombie is not alive: it does
/// nothing more, and its parent may take any time to reap it.
fn start_time(pid: u32) -> Option<u64> {
    start_time_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses the start time (field 22) from the text of `/proc/<pid>/stat` (proc_pid_stat(5)). `None` if the
/// state (field 3) is dead.
fn start_time_in(stat: &str) -> Option<u64> {
    // The command name may contain spaces and parentheses; it ends at the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // A thread group outlives its first thread, which is then shown as a zombie (field 20 is the number of
    // threads).
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let dead = matches!(state, "Z" | "X" | "x") && threads <= 1;
    fields.nth(1)?.parse().ok().filter(|_| !dead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_are_dead_whose_end_is_certain() {
        let us = Owner {
            machine: "a".to_owned(),
            boot: "b".to_owned(),
            ..Owner::new().unwrap()
        };
        let check = |owner: Owner, dead: bool| assert_eq!(owner.is_dead_for(&us), dead, "{owner}");
        check(us.clone(), false);
        let gone = Owner {
            start: us.start + 1,
            ..us.clone()
        };
        check(gone.clone(), true);
        let rebooted = Owner {
            boot: "c".to_owned(),
            ..us.clone()
        };
        check(rebooted.clone(), true);
        check(
            Owner {
                machine: "z".to_owned(),
                ..rebooted.clone()
            },
            false,
        );
        check(
            Owner {
                machine: String::new(),
                ..rebooted
            },
            false,
        );
        check(
            Owner {
                namespace: us.namespace + 1,
                ..gone.clone()
            },
            false,
        );
        let other_user = Owner {
            uid: us.uid + 1,
            ..gone
        };
        assert!(!other_user.is_dead_for(&Owner { uid: 7, ..us.clone() }));
        assert!(other_user.is_dead_for(&Owner { uid: 0, ..us }));
    }

    #[test]
    fn a_zombie_is_dead() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) R (b) {state} 1 7 7 0 -1 4194560 9 0 0 0 0 0 0 0 20 0 {threads} 0 4711 0 0")
        };
        let check =
            |state, threads, expected| assert_eq!(start_time_in(&stat(state, threads)), expected, "{state}");
        for state in ["R", "S", "D", "T", "t", "I"] {
            check(state, 1, Some(4711));
        }
        for state in ["Z", "X", "x"] {
            check(state, 1, None);
            check(state, 0, None);
        }
        check("Z", 3, Some(4711));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child that nobody reaps")]
    fn an_owner_that_nobody_reaped_is_dead() {
        let mut child = std::process::Command::new("/bin/cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let us = Owner::new().unwrap();
        let (pid, start) = (child.id(), start_time(child.id()).unwrap());
        let owner = Owner {
            pid,
            start,
            ..us.clone()
        };
        assert!(!owner.is_dead_for(&us));
        drop(child.stdin.take());
        // The child closes its end of the pipe when it exits, and becomes a zombie right after that.
        std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
        while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::yield_now();
        }
        assert!(owner.is_dead_for(&us));
        assert!(owner_is_dead(&format!("{pid}-{start}")));
        child.wait().unwrap();
    }

    #[test]
    fn an_owner_is_read_as_it_is_written() {
        let us = Owner::new().unwrap();
        assert_eq!(us.to_string().parse(), Ok(us));
        for bad in ["", "a.b.c", "a.b.1.2.3.4.5.6", "a.b.1.2.3.4.x"] {
            assert!(bad.parse::<Owner>().is_err(), "{bad}");
        }
    }
}
