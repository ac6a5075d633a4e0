//! The processors of this machine, as the bound of what a program may ask for.

use std::fs;

use ringfence_policy::Cpus;

/// Numbers of the processors that are switched on, such as `0-3,8`.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// More processors than this machine has: the limit would limit nothing.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "cpus `{asked}` is out of range; it must be between 0.01 and {available}, the number of this machine's processors"
)]
pub struct TooManyProcessors {
    asked: Cpus,
    available: u32,
}

/// Refuses a limit beyond the processors of this machine.
///
/// # Errors
/// If the limit is larger.
pub fn check(asked: Cpus) -> Result<(), TooManyProcessors> {
    match beyond(asked) {
        Some(available) => Err(TooManyProcessors { asked, available }),
        None => Ok(()),
    }
}

/// Returns a limit that nobody here asked for, or the processors of this machine if it is larger.
pub fn at_most(limit: Cpus) -> Cpus {
    let available = beyond(limit).and_then(|available| Cpus::try_from(f64::from(available)).ok());
    available.unwrap_or(limit)
}

/// Returns the number of this machine's processors if the limit is larger.
fn beyond(limit: Cpus) -> Option<u32> {
    // Every machine has one.
    if limit.get() <= 1.0 {
        return None;
    }
    // Without the file nobody knows, and the control group takes any number.
    let online = fs::read_to_string(ONLINE).ok()?;
    count(online.trim()).filter(|available| limit.get() > f64::from(*available))
}

/// Counts the numbers of a list such as `0-3,8`.
fn count(list: &str) -> Option<u32> {
    list.split(',').try_fold(0_u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted() {
        for (list, expected) in [
            ("0", Some(1)),
            ("0-3", Some(4)),
            ("0-3,8,10-11", Some(7)),
            ("", None),
            ("3-1", None),
        ] {
            assert_eq!(count(list), expected, "{list}");
        }
    }

    #[test]
    fn the_error_has_the_range() {
        let cpus = |cores: f64| Cpus::try_from(cores).unwrap();
        assert_eq!(check(cpus(1.0)), Ok(()));
        let error = check(cpus(1024.0)).unwrap_err();
        assert_eq!(check(at_most(cpus(1024.0))), Ok(()));
        assert_eq!(at_most(cpus(0.5)), cpus(0.5));
        let expected = format!(
            "cpus `1024` is out of range; it must be between 0.01 and {}, the number of this machine's processors",
            error.available
        );
        assert_eq!(error.to_string(), expected);
    }
}
