//! Rate limit for records of refused uses, per scope: beyond it, refusals are counted in one record.
//!
//! A refusal costs its caller nothing, while a record takes room from others' records: a caller that is
//! refused sixteen thousand times in a row must not rotate the log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use super::entry::Counted;

/// Number of refusals of a scope that can be recorded one by one in a burst.
const BURST: u32 = 100;
/// Interval at which the burst is replenished by one.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum count held in memory alone, and lost if the process is killed.
const MAX_COUNTED: u64 = 100;
/// Maximum number of scopes counted separately; all others share one count.
const MAX_SCOPES: usize = 64;
/// Maximum number of error kinds counted separately; all others share one count.
const MAX_ERRORS: usize = 16;

/// The rates of this process's scopes.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<String, Rate>);

/// The handling of a refused use.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The use gets a record of its own.
    Recorded,
    Counted,
    /// The use is counted, and the count must be recorded now.
    Due(Counted),
}

/// A token bucket of a scope.
#[derive(Debug)]
struct Rate {
    /// Remaining tokens.
    left: u32,
    since: Instant,
    counted: Option<Pending>,
}

/// A count that is not recorded yet.
#[derive(Debug)]
struct Pending {
    since: SystemTime,
    count: u64,
    errors: BTreeMap<String, u64>,
}

impl Refusals {
    /// Counts a refusal in a scope. Returns whether it gets a record of its own, is only counted, or makes the count
    /// due.
    pub(super) fn add(&mut self, scope: &str, error: &str, now: Instant) -> Refusal {
        let is_known = self.0.contains_key(scope) || self.0.len() < MAX_SCOPES;
        // No scope has this name.
        let scope = if is_known { scope } else { OTHERS };
        let rate = self.0.entry(scope.to_owned()).or_insert_with(|| Rate {
            left: BURST,
            since: now,
            counted: None,
        });
        let may_record = rate.take(now);
        if may_record && rate.counted.is_none() {
            return Refusal::Recorded;
        }
        let pending = rate.counted.get_or_insert_with(|| Pending {
            since: SystemTime::now(),
            count: 0,
            errors: BTreeMap::new(),
        });
        pending.add(error);
        if may_record || pending.count >= MAX_COUNTED {
            return match rate.counted.take() {
                Some(pending) => Refusal::Due(pending.record(scope)),
                None => Refusal::Counted,
            };
        }
        Refusal::Counted
    }

    /// Takes the counts that are not recorded yet.
    pub(super) fn take(&mut self) -> Vec<Counted> {
        let counted = |(scope, rate): (&String, &mut Rate)| Some(rate.counted.take()?.record(scope));
        self.0.iter_mut().filter_map(counted).collect()
    }
}

/// Name of the scopes beyond [`MAX_SCOPES`].
const OTHERS: &str = "(others)";

impl Rate {
    /// Takes a token, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.since);
        let gained = u32::try_from(elapsed.as_secs() / INTERVAL.as_secs()).unwrap_or(u32::MAX);
        if gained > 0 {
            self.left = self.left.saturating_add(gained).min(BURST);
            self.since = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

impl Pending {
    fn add(&mut self, error: &str) {
        let is_known = self.errors.contains_key(error) || self.errors.len() < MAX_ERRORS;
        let error = if is_known { error } else { "other" };
        *self.errors.entry(error.to_owned()).or_default() += 1;
        self.count += 1;
    }

    fn record(self, scope: &str) -> Counted {
        Counted::of(scope, self.since, self.errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of `count` refusals were recorded individually, and how many counts were due.
    fn flood(refusals: &mut Refusals, scope: &str, count: u32, now: Instant) -> (u32, u32) {
        let (mut recorded, mut due) = (0, 0);
        for _ in 0..count {
            match refusals.add(scope, "not_found", now) {
                Refusal::Recorded => recorded += 1,
                Refusal::Due(_) => due += 1,
                Refusal::Counted => {}
            }
        }
        (recorded, due)
    }

    #[test]
    fn a_flood_is_counted_and_no_other_scopes_matter() {
        let mut refusals = Refusals::default();
        let now = Instant::now();
        assert_eq!(flood(&mut refusals, "a", 16_000, now), (BURST, 159));
        assert_eq!(flood(&mut refusals, "b", BURST, now), (BURST, 0));
        assert_eq!(refusals.take().len(), 0);
        assert_eq!(flood(&mut refusals, "a", 99, now), (0, 0));
        let counts = refusals.take();
        let count = serde_json::to_value(&counts[0]).unwrap();
        assert_eq!(
            (&count["refused"]["scope"], &count["refused"]["count"]),
            (&"a".into(), &99.into())
        );
        assert_eq!(count["refused"]["errors"]["not_found"], 99);
    }

    #[test]
    fn who_waits_is_recorded_again() {
        let mut refusals = Refusals::default();
        let now = Instant::now();
        flood(&mut refusals, "a", BURST + 1, now);
        let later = now + INTERVAL;
        assert!(matches!(refusals.add("a", "x", later), Refusal::Due(_)));
        let later = later + 10 * INTERVAL;
        assert_eq!(flood(&mut refusals, "a", 10, later), (10, 0));
    }

    #[test]
    fn scopes_and_errors_are_bounded() {
        let mut refusals = Refusals::default();
        let now = Instant::now();
        for number in 0..1_000 {
            flood(&mut refusals, &number.to_string(), 1, now);
        }
        assert!(refusals.0.len() <= MAX_SCOPES + 1);
        for number in 0..1_000 {
            let _ = refusals.add("0", &number.to_string(), now);
        }
        let rate = refusals.0.get("0").and_then(|rate| rate.counted.as_ref());
        assert!(rate.is_none_or(|pending| pending.errors.len() <= MAX_ERRORS + 1));
    }
}
