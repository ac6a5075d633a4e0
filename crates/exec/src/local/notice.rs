//! Notices about the end of programs that could not report it themselves, and about gaps in the fence.

use std::path::Path;

use ringfence_jail::protocol::Applied;
use ringfence_policy::{
    Bytes, Family, Limits, Outcome, Remedy, ResourceLimits, RuntimeKind, Timeout, remedy,
};

use super::confinement;
use super::guest::LimitScope;
use super::launcher::FailedModule;

/// Returns the notice appended to standard error for this outcome; `None` if the program ended by itself.
pub fn notice(outcome: Outcome, limits: &ResourceLimits) -> Option<String> {
    Some(match outcome {
        Outcome::TimedOut => match Timeout::try_from(limits.timeout) {
            Ok(timeout) => format!("execution timed out after {timeout}"),
            // No run has such a limit, but a server's response might claim it.
            Err(_) => "execution timed out".to_owned(),
        },
        Outcome::MemoryExceeded => match limits.memory_bytes {
            Some(bytes) => format!("killed: the memory limit of {} was exceeded", Bytes(bytes)),
            None => "killed: its memory limit was exceeded".to_owned(),
        },
        Outcome::Cancelled => "execution cancelled".to_owned(),
        Outcome::Unknown => "the executor broke; nothing is known of the program's end".to_owned(),
        Outcome::Exited | Outcome::Signalled | Outcome::Blocked => return None,
    })
}

/// Prefix of the warning of `limits_gap`. It concerns the machine, not the program.
const LIMITS_GAP: &str = "not all limits hold for the run as a whole: ";

/// Returns a warning about limits that do not hold for all processes of a run together. One that `lasts` has no limit
/// of processor time.
pub(super) fn limits_gap(limit_scope: LimitScope, limits: &Limits, lasts: bool) -> Option<String> {
    let gap = match limit_scope {
        LimitScope::Together => return None,
        LimitScope::TogetherButProcessor => "its control group does not limit processor time".to_owned(),
        LimitScope::EachProcess => {
            let processor = match lasts {
                true => "any amount".to_owned(),
                false => format!("{} s", confinement::processor_seconds(limits)),
            };
            format!(
                "there are no control groups here, so each process may use {} of memory and {processor} of processor time",
                limits.memory,
            )
        }
    };
    Some(format!(
        "{LIMITS_GAP}{gap}; {}",
        Remedy::from(remedy::Run::ExamineLimits).person()
    ))
}

/// Prefix of the warning of [`not_preloaded`].
const NOT_PRELOADED: &str = "not preloaded: ";

/// Returns the warning about a module that the zygote could not import.
pub(super) fn not_preloaded(FailedModule { module, reason }: &FailedModule) -> String {
    format!(
        "{NOT_PRELOADED}`{module}` cannot be imported beforehand, so each program imports it itself: {reason}"
    )
}

/// Returns the warning about packages that cannot be imported in advance.
pub(super) fn packages_not_preloaded(reason: &str) -> String {
    format!("{NOT_PRELOADED}each program imports the packages itself: {reason}")
}

/// Prefix of the warning of [`started_cold`].
const STARTED_COLD: &str = "the server keeps another Python ready: ";

/// Returns the warning about a run that the server left to its client.
pub fn started_cold(python: &Path) -> String {
    format!(
        "{STARTED_COLD}this run uses {}, the first one on the PATH here, and started it; {}",
        python.display(),
        Remedy::from(remedy::Run::SharePython).person()
    )
}

/// Returns `true` for a warning to the operator, of no use to a model.
pub fn is_for_operators(warning: &str) -> bool {
    is_limits_gap(warning)
        || [NOT_PRELOADED, STARTED_COLD]
            .iter()
            .any(|begin| warning.starts_with(begin))
}

/// Returns `true` for the warning of `limits_gap`: shown to people, never to a model.
pub fn is_limits_gap(warning: &str) -> bool {
    warning.starts_with(LIMITS_GAP)
}

/// Messages that programs print when a write exceeds a size limit.
const FULL: [&str; 3] = ["No space left on device", "Disk quota exceeded", "File too large"];

/// Returns a warning with the limit of disk space, if a program's standard error reports that a file did not
/// fit.
pub(super) fn full(stderr: &str, runtime: RuntimeKind, limits: &Limits) -> Option<String> {
    let is_full = FULL.iter().any(|text| stderr.contains(text));
    let (size, why) = match runtime.traits().family {
        Family::Container => {
            let room = limits.disk.min(Bytes(limits.memory.0 / 2));
            (room, ", each of them, and no more than half of the memory")
        }
        Family::General | Family::Pyodide => (limits.disk, " together"),
        // Its service has limits of its own.
        Family::Remote => return None,
    };
    is_full.then(|| {
        format!(
            "a file did not fit: /workspace, /output and /tmp hold {size}{why}; {}",
            Remedy::from(remedy::Run::RaiseDisk).person()
        )
    })
}

/// Returns the notice for a program that ended its session.
pub fn session_ended(id: &str) -> String {
    format!("the session `{id}` was ended and its variables are lost")
}

/// Returns the notice for an interrupted evaluation.
pub fn session_kept(id: &str) -> String {
    format!("the session `{id}` was interrupted and keeps its variables")
}

/// First Landlock ABI that governs truncation (Linux 6.2).
const TRUNCATE_ABI: u32 = 3;
/// First Landlock ABI that governs signals (Linux 6.12).
const SIGNAL_ABI: u32 = 6;

/// The warning about processes that could not be ended: they may wait for a device or a network file system.
pub(super) const SURVIVORS: &str =
    "processes that the program started were killed and have not ended yet: they may still write files";

/// Returns a warning about actions that an older Landlock does not prevent, if no other layer does. Unfenced
/// runs are warned about elsewhere.
pub(super) fn landlock_gap(applied: Applied) -> Option<String> {
    let alone = applied.no_new_privs && !applied.namespaces;
    let gap = match applied.landlock_abi {
        _ if !alone => return None,
        0 => "this kernel has no Landlock to keep the program from your files and your other processes",
        abi if abi < TRUNCATE_ABI => {
            "this kernel's Landlock cannot keep the program from emptying your files, nor from signalling your other processes"
        }
        abi if abi < SIGNAL_ABI => {
            "this kernel's Landlock cannot keep the program from signalling your other processes"
        }
        _ => return None,
    };
    Some(gap.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_room_learns_of_the_limit() {
        let told = |stderr: &str, runtime| full(stderr, runtime, &Limits::DEFAULT);
        let python = "OSError: [Errno 28] No space left on device: 'x'";
        for (runtime, expected) in [
            (RuntimeKind::Local, "hold 64MiB together;"),
            (RuntimeKind::Docker, "hold 64MiB, each of them,"),
        ] {
            let told = told(python, runtime).unwrap();
            assert!(
                told.contains(expected) && told.contains("`sandbox.disk`"),
                "{told}"
            );
        }
        let little = Limits {
            memory: Bytes::mib(32),
            ..Limits::DEFAULT
        };
        let told_of_half = full(python, RuntimeKind::Podman, &little).unwrap();
        assert!(told_of_half.contains("hold 16MiB,"), "{told_of_half}");
        assert_eq!(told("Traceback", RuntimeKind::Local), None);
    }

    #[test]
    fn what_landlock_leaves_open_is_told_where_it_stands_alone() {
        let gap = |namespaces, no_new_privs, landlock_abi| {
            landlock_gap(Applied {
                namespaces,
                no_new_privs,
                landlock_abi,
                ..Applied::default()
            })
        };
        for (abi, told) in [
            (0, Some("no Landlock")),
            (2, Some("emptying")),
            (3, Some("signalling")),
            (5, Some("signalling")),
            (6, None),
            (7, None),
        ] {
            let found = gap(false, true, abi);
            assert_eq!(found.is_some(), told.is_some(), "{abi}");
            assert!(
                found.unwrap_or_default().contains(told.unwrap_or_default()),
                "{abi}"
            );
        }
        assert_eq!(gap(true, true, 5), None);
        assert_eq!(gap(false, false, 0), None);
    }

    #[test]
    fn limits_are_named_as_they_were_given() {
        for (given, shown) in [
            ("1ms", "1ms"),
            ("0.7", "700ms"),
            ("1.001s", "1001ms"),
            ("90", "90s"),
        ] {
            let limits = Limits {
                timeout: given.parse().unwrap(),
                ..Limits::DEFAULT
            };
            assert_eq!(
                notice(Outcome::TimedOut, &limits.into()),
                Some(format!("execution timed out after {shown}"))
            );
        }
        assert_eq!(
            notice(Outcome::MemoryExceeded, &Limits::DEFAULT.into()).as_deref(),
            Some("killed: the memory limit of 256MiB was exceeded")
        );
        assert_eq!(notice(Outcome::Exited, &Limits::DEFAULT.into()), None);
    }
}
