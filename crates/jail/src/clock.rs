//! Time namespaces: the clocks of cells hide the machine's uptime.

use std::fs;
use std::io;
use std::time::Duration;

use crate::sys;

/// A time namespace. clone3 accepts it; libc does not define it.
pub(crate) const CLONE_NEWTIME: libc::c_int = 0x80;

/// Uptime in a new cell. Programs mistake some numbers near zero for "never".
const START: Duration = Duration::from_secs(3600);

/// Puts the next child of the caller into a time namespace with a fresh uptime. `false` if it keeps the
/// caller's clocks: the kernel (before 5.6) has no such namespaces, or does not permit setting them.
///
/// Cloning directly into a new time namespace would give the child its parent's clocks, which can no longer
/// be set.
pub(crate) fn start_anew() -> io::Result<bool> {
    match sys::unshare(CLONE_NEWTIME) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(false),
        made => made?,
    }
    let offsets = [
        ("monotonic", sys::clock(libc::CLOCK_MONOTONIC)?),
        ("boottime", sys::clock(libc::CLOCK_BOOTTIME)?),
    ];
    let lines = offsets.map(|(name, now)| offset(name, now)).concat();
    Ok(fs::write("/proc/self/timens_offsets", lines).is_ok())
}

/// Returns the machine's uptime, including suspend; [`Duration::MAX`] if the kernel does not report it.
pub fn uptime() -> Duration {
    sys::clock(libc::CLOCK_BOOTTIME).unwrap_or(Duration::MAX)
}

/// Formats the line that sets a clock back. The kernel requires non-negative nanoseconds.
fn offset(name: &str, now: Duration) -> String {
    let seconds = now.as_secs().cast_signed() - START.as_secs().cast_signed();
    match now.subsec_nanos() {
        0 => format!("{name} {} 0\n", -seconds),
        nanoseconds => format!("{name} {} {}\n", -seconds - 1, 1_000_000_000 - nanoseconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_lead_back_to_the_start() {
        let check = |now: Duration, expected: &str| assert_eq!(offset("boottime", now), expected);
        check(Duration::new(5000, 0), "boottime -1400 0\n");
        check(Duration::new(5000, 1), "boottime -1401 999999999\n");
        check(Duration::new(3600, 0), "boottime 0 0\n");
        check(Duration::new(10, 250_000_000), "boottime 3589 750000000\n");
    }
}
