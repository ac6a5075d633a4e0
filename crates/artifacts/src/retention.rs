//! Retention of artifacts: by age and, beyond a limit, evicting from the scope with the most records.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use ringfence_policy::{Scope, timestamp};
use sha2::{Digest, Sha256};

/// Retention limits. Number and size never remove the newest record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Maximum number of records.
    pub records: usize,
    /// Maximum length of all records.
    pub bytes: u64,
    /// Days for which a record is kept; 0: without an end.
    pub days: u32,
}

impl Keep {
    /// Defaults of the configuration.
    pub const DEFAULT: Self = Self {
        records: 1_000,
        bytes: 256 << 20,
        days: 0,
    };

    /// Returns the number of names, oldest first, whose records are too old.
    pub(super) fn expired(&self, names: &[String], now: SystemTime) -> usize {
        let age = Duration::from_secs(u64::from(self.days) * 24 * 60 * 60);
        match now.checked_sub(age) {
            Some(oldest) if self.days > 0 => {
                let oldest = timestamp::compact(&timestamp::rfc3339(oldest));
                names.partition_point(|name| *name < oldest)
            }
            _ => 0,
        }
    }
}

/// An existing record.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredRecord<'a> {
    pub(super) name: &'a str,
    pub(super) bytes: u64,
}

/// Number of digits in a scope's tag.
const TAG: usize = 8;

/// Returns the suffix of the names of a scope's records, so that their scope is known without opening them.
/// The local scope, the only one on most machines, has none.
pub(super) fn tag(scope: &Scope) -> String {
    if *scope == Scope::local() {
        return String::new();
    }
    let digest = Sha256::digest(scope.as_str());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("_{}", &digits[..TAG])
}

/// Returns `true` for the name of a record of a scope that has a tag.
pub(super) fn is_of(name: &str, scope: &Scope) -> bool {
    tag(scope).strip_prefix('_') == Some(tag_of(name))
}

fn tag_of(name: &str) -> &str {
    let tag = name.split('_').nth(2).unwrap_or_default();
    tag.split('-').next().unwrap_or_default()
}

/// The records of one scope, oldest first, with their total length.
#[derive(Debug, Default)]
struct Share<'a> {
    records: VecDeque<StoredRecord<'a>>,
    bytes: u64,
}

/// Returns the records to remove, from all records, oldest first: always the oldest of the scope that has the
/// most, so that one scope's flood costs no other scope a record. The newest of all is kept.
pub(super) fn surplus(mut kept: Vec<StoredRecord<'_>>, keep: Keep) -> Vec<&str> {
    let newest = kept.pop();
    let mut shares: BTreeMap<&str, Share<'_>> = BTreeMap::new();
    let (mut records, mut bytes) = (1, newest.map_or(0, |kept| kept.bytes));
    for one in kept {
        let share = shares.entry(tag_of(one.name)).or_default();
        share.records.push_back(one);
        share.bytes += one.bytes;
        records += 1;
        bytes += one.bytes;
    }
    let mut gone = Vec::new();
    while records > keep.records.max(1) || bytes > keep.bytes {
        let largest = shares.values_mut().max_by_key(|share| match bytes > keep.bytes {
            true => share.bytes,
            false => share.records.len() as u64,
        });
        let Some((share, oldest)) = largest.and_then(|share| {
            let oldest = share.records.pop_front()?;
            Some((share, oldest))
        }) else {
            break;
        };
        share.bytes -= oldest.bytes;
        records -= 1;
        bytes -= oldest.bytes;
        gone.push(oldest.name);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kept: &[(&str, u64)], records: usize, bytes: u64, expected: &[&str]) {
        let kept = kept
            .iter()
            .map(|(name, bytes)| StoredRecord { name, bytes: *bytes });
        let keep = Keep {
            records,
            bytes,
            days: 0,
        };
        assert_eq!(surplus(kept.collect(), keep), expected);
    }

    #[test]
    fn the_oldest_go_by_number_and_by_size() {
        let three = [("1_h", 10), ("2_h", 10), ("3_h", 10)];
        check(&three, 3, 30, &[]);
        check(&three, 2, 30, &["1_h"]);
        check(&three, 9, 29, &["1_h"]);
        check(&three, 9, 10, &["1_h", "2_h"]);
        // The newest is kept, however large it is.
        check(&three, 0, 0, &["1_h", "2_h"]);
        check(&[("1_h", 10), ("2_h", 1_000)], 9, 100, &["1_h"]);
        check(&[], 1, 1, &[]);
    }

    #[test]
    fn whoever_has_the_most_makes_room() {
        let flood = [
            ("1_h_a", 1),
            ("2_h_b", 10),
            ("3_h_b-1", 10),
            ("4_h_b", 10),
            ("5_h_a", 1),
        ];
        check(&flood, 4, 100, &["2_h_b"]);
        check(&flood, 3, 100, &["2_h_b", "3_h_b-1"]);
        check(&flood, 9, 25, &["2_h_b"]);
        check(&flood, 9, 12, &["2_h_b", "3_h_b-1"]);
    }

    #[test]
    fn scopes_have_tags() {
        let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        assert_eq!(tag(&Scope::local()), "");
        assert_ne!(tag(&ann), tag(&bob));
        for suffix in ["", "-7"] {
            let name = format!("20261121T221500.123Z_0123456789ab{}{suffix}", tag(&ann));
            assert_eq!(format!("_{}", tag_of(&name)), tag(&ann));
        }
        assert_eq!(tag_of("20261121T221500.123Z_0123456789ab-1"), "");
    }
}
