//! Verifies a session's fork from outside before the launcher accepts it, without relying on the fork itself.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cell::Cell;
use crate::nest::NAMESPACES;
use crate::step_error::{Step, StepError};
use crate::sys;

/// A fork that claims to run.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    /// The process, in the launcher's pid namespace.
    pub(crate) pid: libc::pid_t,
    /// The cell that the fork was asked to join.
    pub(crate) cell: &'a Cell,
    /// Files that the fork may have open.
    pub(crate) descriptors: &'a [PathBuf],
    /// A file of the session's own, which no fork may share memory with.
    pub(crate) private: &'a OwnedFd,
}

/// A reason to reject a fork.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The fork failed.
    Failed(StepError),
    /// The session made a false claim.
    Forged(StepError),
}

/// Checks a fork from outside.
pub(crate) fn check(claim: &Claim<'_>) -> Result<(), Refusal> {
    let process = PathBuf::from(format!("/proc/{}", claim.pid));
    let status = fs::read_to_string(process.join("status")).or_else(unseen)?;
    expect(is_ours(&status), "find the fork among the launcher's children").map_err(Refusal::Forged)?;
    expect(is_confined(&status), "find the fork confined").map_err(Refusal::Forged)?;
    let lives_in = lives_in(&process, claim.cell).or_else(unseen)?;
    expect(lives_in, "find the fork in its cell").map_err(Refusal::Forged)?;
    let shares_files = shares_files(&process, claim.descriptors).or_else(unseen)?;
    expect(!shares_files, "find the fork without files of the session").map_err(Refusal::Forged)?;
    let shares_memory = shares_memory(&process, claim.private).or_else(unseen)?;
    expect(
        !shares_memory,
        "fork a session that shares memory (mmap, multiprocessing)",
    )
    .map_err(Refusal::Failed)
}

/// Converts an error of inspecting a fork: the fork has exited, or must not be inspected.
fn unseen<T>(error: io::Error) -> Result<T, Refusal> {
    Err(error).step("look at the fork").map_err(Refusal::Failed)
}

fn expect(holds: bool, step: &'static str) -> Result<(), StepError> {
    if holds {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(libc::EPERM)).step(step)
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    status.lines().find_map(value).map(str::trim)
}

fn is_ours(status: &str) -> bool {
    field(status, "PPid") == Some(&sys::process_ids().0.to_string())
}

fn is_confined(status: &str) -> bool {
    let none = |name| field(status, name).is_some_and(|set| set.bytes().all(|digit| digit == b'0'));
    ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
        .into_iter()
        .all(none)
        && field(status, "NoNewPrivs") == Some("1")
        && field(status, "Seccomp") == Some("2")
        && field(status, "Threads") == Some("1")
        && field(status, "TracerPid") == Some("0")
}

fn lives_in(process: &Path, cell: &Cell) -> io::Result<bool> {
    for (handle, (name, _)) in cell.namespaces.iter().zip(NAMESPACES) {
        let expected = fs::metadata(format!("/proc/self/fd/{}", handle.as_raw_fd()))?;
        let found = fs::metadata(process.join("ns").join(name))?;
        if (expected.st_dev(), expected.st_ino()) != (found.st_dev(), found.st_ino()) {
            return Ok(false);
        }
    }
    Ok(!cell.namespaces.is_empty())
}

/// Returns `true` if the process has a file open other than the given ones and the placeholder for the
/// session's files.
fn shares_files(process: &Path, given: &[PathBuf]) -> io::Result<bool> {
    for entry in fs::read_dir(process.join("fd"))? {
        match fs::read_link(entry?.path()) {
            Ok(file) if file == Path::new("/dev/null") || given.contains(&file) => {}
            // It was closed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Returns `true` for shared mappings with the session, which survive a fork and a change of namespaces.
/// Mappings of files that no process in a cell can write, such as a locale's tables, are permitted.
fn shares_memory(process: &Path, private: &OwnedFd) -> io::Result<bool> {
    let anonymous = device(&sys::memfd(c"ringfence-probe")?)?;
    let own = [anonymous, device(private)?];
    let maps = fs::read_to_string(process.join("maps"))?;
    Ok(maps.lines().any(|mapping| is_shared(mapping, own)))
}

/// Returns `true` if a line of `/proc/<pid>/maps` (proc_pid_maps(5)) is a shared mapping that is writable, or
/// of a file on one of `devices`.
fn is_shared(mapping: &str, devices: [(u32, u32); 2]) -> bool {
    let mut fields = mapping.split_whitespace();
    let modes = fields.nth(1).unwrap_or_default();
    let device = fields.nth(1).and_then(|device| {
        let (major, minor) = device.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        Some((number(major)?, number(minor)?))
    });
    let known = device.is_none_or(|device| devices.contains(&device));
    modes.ends_with('s') && (known || modes.contains('w'))
}

fn device(file: &OwnedFd) -> io::Result<(u32, u32)> {
    let number = fs::metadata(format!("/proc/self/fd/{}", file.as_raw_fd()))?.st_dev();
    Ok((libc::major(number), libc::minor(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_where_another_process_could_write_to_it() {
        let check = |mapping: &str, expected| {
            assert_eq!(is_shared(mapping, [(0, 1), (0, 0x2b)]), expected, "{mapping}");
        };
        check("7f00-7f10 rw-p 00000000 00:00 0", false);
        check("7f00-7f10 rw-s 00000000 00:01 12 /dev/zero (deleted)", true);
        check("7f00-7f10 r--s 00000000 00:01 12 /memfd:x (deleted)", true);
        check("7f00-7f10 r--s 00000000 00:2b 12 /workspace/data", true);
        check("7f00-7f10 r--p 00000000 00:2b 12 /workspace/data", false);
        check(
            "7f00-7f10 r--s 00000000 fe:00 12 /usr/lib/gconv/gconv-modules.cache",
            false,
        );
        check("7f00-7f10 rw-s 00000000 fe:00 12 /workspace/data", true);
        check("7f00-7f10 r--s", true);
    }

    #[test]
    fn every_sign_of_confinement_is_asked_for() {
        let confined = "PPid:\t1\nTracerPid:\t0\nThreads:\t1\nCapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\n\
            CapBnd:\t0000\nCapAmb:\t0000\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        assert!(is_confined(confined));
        for line in confined.lines().filter(|line| !line.starts_with("PPid")) {
            assert!(!is_confined(&confined.replace(line, "")), "{line}");
            let (name, value) = line.split_once('\t').unwrap();
            let other = format!("{name}\t{}", if value == "0000" { "0400" } else { "9" });
            assert!(!is_confined(&confined.replace(line, &other)), "{other}");
        }
        assert!(!is_ours(confined), "the first process is not this one");
    }
}
