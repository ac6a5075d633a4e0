//! The confinement of a guest: its filter, its rights to files, and its limits of processes and descriptors.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use ringfence_jail::protocol::{Confinement, GUEST_ID, LandlockRules, Missing, Rlimits, TcpPorts};
use ringfence_jail::seccomp::{Exits, Forks, Ipc, Sockets, Surface, Users};
use ringfence_policy::Limits;

use super::extra::Extra;
use super::layout::{PROXY_PORT, WritableDirs};
use super::root;
use super::user::{MAPS_ANY_ID, NOBODY, effective_uid};

/// Maximum number of file descriptors per process of a guest. Descriptors in flight over sockets, counted per
/// user, exceed it by one message at most, which leaves enough to a user with the 1024 of an ordinary
/// session.
const OPEN_FILES: u64 = 512;

/// Minimum number of file descriptors that programs are expected to work with.
const FEWEST_OPEN_FILES: u64 = 128;

/// Returns the limit on file descriptors for each of a guest's processes.
///
/// With half of them a process can watch the other half by epoll. Epoll watches are counted per user, and all
/// processes of a guest with its caller's user id must together leave half of that quota.
fn open_files(processes: u32, is_own_user: bool) -> u64 {
    let Some(most) = max_epoll_watches().filter(|_| !is_own_user) else {
        return OPEN_FILES;
    };
    let each = most / 2 / u64::from(processes.max(1));
    (2 * each.isqrt()).clamp(FEWEST_OPEN_FILES, OPEN_FILES)
}

/// Returns the maximum number of epoll watches per user.
fn max_epoll_watches() -> Option<u64> {
    static MOST: LazyLock<Option<u64>> = LazyLock::new(|| {
        let text = fs::read_to_string("/proc/sys/fs/epoll/max_user_watches").ok()?;
        text.trim().parse().ok()
    });
    *MOST
}

/// The mechanism that limits processes and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accounting {
    /// A control group, for all processes together.
    ControlGroup,
    /// Resource limits (rlimits), for each process.
    Rlimits,
}

/// The strength of a guest's confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strength {
    /// Every available layer.
    Full(Missing),
    /// Resource limits alone (`--unfenced`).
    Limits,
    /// Nothing: a host command.
    Nothing,
}

/// Builds the confinement of a guest besides namespaces and control groups.
pub(super) fn confinement(
    dirs: &WritableDirs,
    extra: &Extra,
    limits: &Limits,
    accounting: Accounting,
    strength: Strength,
) -> Confinement {
    let by_rlimit = accounting == Accounting::Rlimits;
    let cpu_seconds = processor_seconds(limits);
    let in_cell = *dirs == WritableDirs::Cell;
    let ids = match (in_cell, strength) {
        (true, _) if extra.account.is_root() => Some((0, 0)),
        (true, _) => Some((GUEST_ID, GUEST_ID)),
        (false, Strength::Full(_)) if effective_uid() == Some(0) => Some((NOBODY, NOBODY)),
        (false, _) => None,
    };
    let (landlock, missing) = match strength {
        Strength::Full(missing) if extra.account.is_root() => (Some(root::rules(dirs.rules(extra))), missing),
        Strength::Full(missing) => (Some(dirs.rules(extra)), missing),
        Strength::Limits | Strength::Nothing => (None, Missing::Report),
    };
    let rlimits = || Rlimits {
        file_size: limits.disk.0,
        open_files: open_files(limits.pids.get(), in_cell && *MAPS_ANY_ID),
        processes: by_rlimit.then(|| u64::from(limits.pids.get()) + processes_beside(in_cell, ids)),
        data: by_rlimit.then_some(limits.memory.0),
        cpu_seconds: by_rlimit.then_some(cpu_seconds),
    };
    Confinement {
        working_directory: dirs.workspace(extra),
        ids,
        rlimits: (strength != Strength::Nothing).then(rlimits),
        missing,
        landlock,
        surface: if in_cell {
            Surface {
                sockets: named_sockets(extra),
                ipc: Ipc::Own,
                forks: Forks::Never,
                exits: Exits::Silent,
                users: match extra.account.is_root() {
                    true => Users::Several,
                    false => Users::One,
                },
            }
        } else {
            Surface {
                sockets: Sockets::PairsOnly,
                ipc: Ipc::Shared,
                forks: Forks::Never,
                exits: Exits::Silent,
                users: Users::One,
            }
        },
    }
}

/// Returns the processor time limit of a single process: the maximum that all could use together, plus a
/// second.
pub(super) fn processor_seconds(limits: &Limits) -> u64 {
    (limits.timeout.as_duration().as_secs_f64() * limits.cpus.get()).ceil() as u64 + 1
}

/// Adapts a confinement to a session, which its forks inherit in cells of their own.
///
/// Landlock's rules are inherited and refer to files, but the files of a fork's cell are other ones. So the
/// rule covers the root, and only mounts restrict writing: the root and all of its own mounts are read-only.
pub(super) fn forkable(confinement: Confinement) -> Confinement {
    let landlock = confinement.landlock.map(|rules| LandlockRules {
        readable: Vec::new(),
        writable: vec![PathBuf::from("/")],
        entries: Vec::new(),
        devices: rules.devices,
        tcp: TcpPorts::None,
    });
    Confinement {
        landlock,
        rlimits: lasting(confinement.rlimits),
        surface: Surface {
            forks: Forks::IntoCells,
            ..confinement.surface
        },
        ..confinement
    }
}

/// Removes the limit of processor time, which follows from the time of one run.
fn lasting(limits: Option<Rlimits>) -> Option<Rlimits> {
    let cpu_seconds = None;
    limits.map(|limits| Rlimits {
        cpu_seconds,
        ..limits
    })
}

/// Adapts a confinement to the init of a sandbox, which has terminals and adopts orphaned processes.
pub(super) fn inhabited(confinement: Confinement) -> Confinement {
    let landlock = confinement.landlock.map(|mut rules| {
        rules.devices.push(PathBuf::from("/dev/pts"));
        // Its programs have servers of their own.
        if rules.tcp != TcpPorts::None {
            rules.tcp = TcpPorts::All;
        }
        rules
    });
    Confinement {
        landlock,
        rlimits: lasting(confinement.rlimits),
        surface: Surface {
            forks: Forks::Adopted,
            ..confinement.surface
        },
        ..confinement
    }
}

/// Adapts a confinement to a guest whose exit is announced.
pub(super) fn announced(confinement: Confinement) -> Confinement {
    Confinement {
        surface: Surface {
            exits: Exits::Announced,
            ..confinement.surface
        },
        ..confinement
    }
}

/// Adapts a confinement to a guest with a network: allows TCP, where Landlock governs it only to the proxy.
pub(super) fn networked(confinement: Confinement) -> Confinement {
    let landlock = confinement.landlock.map(|rules| LandlockRules {
        tcp: TcpPorts::Connect(PROXY_PORT),
        ..rules
    });
    let sockets = match confinement.surface.sockets {
        Sockets::PairsOnly | Sockets::PairsAndTcp => Sockets::PairsAndTcp,
        Sockets::Unix | Sockets::UnixAndTcp | Sockets::UnixAndInternet => Sockets::UnixAndTcp,
    };
    Confinement {
        landlock,
        surface: Surface {
            sockets,
            ..confinement.surface
        },
        ..confinement
    }
}

/// Returns the kinds of sockets allowed. A host directory may contain the socket of a service, and neither a
/// namespace nor a read-only mount nor Landlock's path rules prevent a guest from connecting to it: with such
/// a directory, only socket pairs are allowed.
fn named_sockets(extra: &Extra) -> Sockets {
    if extra.mounts.is_empty() && extra.workspace.is_none() {
        Sockets::Unix
    } else {
        Sockets::PairsOnly
    }
}

/// Returns the number of processes that count against a guest's limit although they are not its own: outside
/// a user namespace the kernel counts all processes of the user.
fn processes_beside(in_cell: bool, ids: Option<(u32, u32)>) -> u64 {
    if in_cell {
        return 0;
    }
    let user = ids.map(|(uid, _)| uid).or_else(effective_uid);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = entries.filter(|entry| {
        entry
            .metadata()
            .is_ok_and(|metadata| Some(metadata.uid()) == user)
    });
    own.map(|entry| fs::read_dir(entry.path().join("task")).map_or(0, |tasks| tasks.count() as u64))
        .sum()
}
