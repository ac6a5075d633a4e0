//! The clocks of cells, which do not tell how long the machine has been running.

use std::fs;
use std::io;
use std::time::Duration;

use crate::sys;

/// A time namespace. clone3 takes it; libc does not name it.
pub(crate) const CLONE_NEWTIME: libc::c_int = 0x80;

/// What the clocks of a new cell show. Programs mistake some numbers near zero for "never".
const START: Duration = Duration::from_secs(3600);

/// Has the next child of the caller live in a time namespace in which the machine has just been started. `false`: its clocks
/// are the caller's, for the kernel has no such namespaces, as before 5.6, or does not let us set them.
///
/// A child that is cloned into a new time namespace has the clocks of its parent, and they cannot be set any more.
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

/// Time since the machine was started, sleep included. Endless if the kernel cannot tell.
pub fn uptime() -> Duration {
    sys::clock(libc::CLOCK_BOOTTIME).unwrap_or(Duration::MAX)
}

/// The line that sets a clock back. The kernel wants nanoseconds that are not negative.
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
