//! Ranges of host ids, of which each sandbox with root inside has one.

use std::sync::{Arc, Mutex, PoisonError};

use ringfence_jail::protocol::HostIds;

use super::error::Error;
use super::guest::{Groups, check_groups};
use super::user::MAPS_ANY_ID;

/// Number of sandboxes with root inside of one server at a time.
const MAX: u32 = 32;
/// Number of host ids of each sandbox: for root and users of its cell, and for its launcher.
const IDS: u32 = 2_048;
/// First host id of these ranges. The ids of other launchers are below.
const BASE: u32 = 1 << 31;
/// Number of servers, distinguished by process id, whose ranges do not overlap.
const SERVERS: u32 = 32_767;

/// Ranges in use.
static TAKEN: Mutex<u32> = Mutex::new(0);

/// A range of host ids that belongs to one sandbox until its last copy is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RootIds(Arc<Slot>);

#[derive(Debug, PartialEq, Eq)]
struct Slot(u32);

impl Drop for Slot {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) &= !(1 << self.0);
    }
}

impl RootIds {
    /// Takes a range.
    ///
    /// # Errors
    /// If this process may not map ids, has no control groups (per-user limits do not bind a process that can change its uid),
    /// or all ranges are in use.
    pub(super) fn take(groups: Option<&Arc<Groups>>) -> Result<Self, Error> {
        if !*MAPS_ANY_ID {
            return Err(Error::NeedsIds);
        }
        check_groups(groups)?;
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (0..MAX)
            .find(|slot| *taken >> slot & 1 == 0)
            .ok_or(Error::NoMoreRoots { max: MAX })?;
        *taken |= 1 << free;
        Ok(Self(Arc::new(Slot(free))))
    }

    /// Returns the range.
    pub(super) fn range(&self) -> HostIds {
        let server = std::process::id() % SERVERS;
        HostIds {
            first: BASE + (server * MAX + self.0.0) * IDS,
            count: IDS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_neither_each_other_nor_the_largest_id() {
        let last = BASE.checked_add((SERVERS * MAX - 1) * IDS).unwrap();
        assert!(last.checked_add(IDS).is_some_and(|end| end < u32::MAX - 1));
    }
}
