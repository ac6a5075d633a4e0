//! Plans a pool: one idle instance for each of the last uses, until they expire.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// A pool of idle instances `T`, each for a use with its key `K`.
#[derive(Debug)]
pub(super) struct Waiting<K, T> {
    /// Capacity under low load; 0 disables the pool.
    least: usize,
    /// Current capacity, including the instance being created. Grows when uses are faster than creation.
    most: usize,
    /// Age at which a use expires.
    idle: Duration,
    /// The last uses, oldest first; never more than the capacity.
    uses: VecDeque<(K, Instant)>,
    ready: VecDeque<(K, T)>,
    making: Option<K>,
}

/// The next steps for the pool's owner.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan<K, T> {
    /// Instances to remove.
    pub(super) surplus: Vec<T>,
    /// Key of an instance to create; the owner reports with [`Waiting::made`] or [`Waiting::failed`].
    pub(super) make: Option<K>,
    /// Time of the next planning, if nothing happens before.
    pub(super) again: Option<Instant>,
}

/// Limit of [`Waiting::most`], as a multiple of [`Waiting::least`].
const GROWTH: usize = 4;

impl<K: Clone + PartialEq, T> Waiting<K, T> {
    pub(super) fn new(size: usize, idle: Duration) -> Self {
        Self {
            least: size,
            most: size,
            idle,
            uses: VecDeque::new(),
            ready: VecDeque::new(),
            making: None,
        }
    }

    /// Records a use, and checks out a usable instance with its key, if any. Unusable ones become surplus.
    pub(super) fn take(&mut self, key: &K, now: Instant, usable: impl Fn(&T) -> bool) -> Option<T> {
        if self.most == 0 {
            return None;
        }
        let found = self
            .ready
            .iter()
            .position(|(of, thing)| of == key && usable(thing));
        // A miss with a recorded key: uses came faster than creation.
        let missed = found.is_none() && self.uses.iter().any(|(of, _)| of == key);
        if self.uses.len() == self.most {
            if missed && self.most < GROWTH * self.least {
                self.most += 1;
            } else {
                self.uses.pop_front();
            }
        }
        self.uses.push_back((key.clone(), now));
        found
            .and_then(|place| self.ready.remove(place))
            .map(|(_, thing)| thing)
    }

    /// Computes the next steps; `usable` filters instances that have died.
    pub(super) fn plan(&mut self, now: Instant, usable: impl Fn(&T) -> bool) -> Plan<K, T> {
        let idle = self.idle;
        self.uses.retain(|(_, used)| now < *used + idle);
        self.most = self.least.max(self.uses.len());
        let mut wanted: Vec<K> = self.uses.iter().map(|(key, _)| key.clone()).collect();
        if let Some(place) = self.making.as_ref().and_then(|key| position(&wanted, key)) {
            wanted.swap_remove(place);
        }
        let mut surplus = Vec::new();
        for (key, thing) in std::mem::take(&mut self.ready) {
            match position(&wanted, &key).filter(|_| usable(&thing)) {
                Some(place) => {
                    wanted.remove(place);
                    self.ready.push_back((key, thing));
                }
                None => surplus.push(thing),
            }
        }
        if self.making.is_none() && self.ready.len() < self.most {
            // Newest use first.
            self.making = wanted.pop();
            return self.planned(surplus, self.making.clone());
        }
        self.planned(surplus, None)
    }

    fn planned(&self, surplus: Vec<T>, make: Option<K>) -> Plan<K, T> {
        Plan {
            surplus,
            make,
            again: self.uses.front().map(|(_, used)| *used + self.idle),
        }
    }

    /// Adds the created instance.
    pub(super) fn made(&mut self, thing: T) {
        if let Some(key) = self.making.take() {
            self.ready.push_back((key, thing));
        }
    }

    /// Records that the creation failed; it is not retried before the next use.
    pub(super) fn failed(&mut self) {
        if let Some(key) = self.making.take() {
            self.uses.retain(|(of, _)| *of != key);
        }
    }

    /// Drains the pool, and disables it.
    pub(super) fn close(&mut self) -> Vec<T> {
        (self.least, self.most) = (0, 0);
        self.uses.clear();
        self.ready.drain(..).map(|(_, thing)| thing).collect()
    }
}

fn position<K: PartialEq>(all: &[K], key: &K) -> Option<usize> {
    all.iter().rposition(|of| of == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(300);

    /// A pool of numbers, with a clock in seconds.
    struct Pool {
        waiting: Waiting<&'static str, u32>,
        begin: Instant,
        count: u32,
    }

    impl Pool {
        fn new(most: usize) -> Self {
            Self {
                waiting: Waiting::new(most, IDLE),
                begin: Instant::now(),
                count: 0,
            }
        }

        fn at(&self, second: u64) -> Instant {
            self.begin + Duration::from_secs(second)
        }

        fn take(&mut self, key: &'static str, second: u64) -> Option<u32> {
            let now = self.at(second);
            self.waiting.take(&key, now, |_| true)
        }

        /// Executes the plan until nothing is left to do; returns the keys of created instances, and the
        /// removed ones.
        fn work(&mut self, second: u64) -> (Vec<&'static str>, Vec<u32>) {
            let (mut made, mut removed) = (Vec::new(), Vec::new());
            loop {
                let plan = self.waiting.plan(self.at(second), |_| true);
                removed.extend(plan.surplus);
                let Some(key) = plan.make else {
                    return (made, removed);
                };
                self.count += 1;
                self.waiting.made(self.count);
                made.push(key);
                assert!(self.waiting.ready.len() <= self.waiting.most);
            }
        }
    }

    #[test]
    fn what_was_used_waits_for_the_next_use() {
        let mut pool = Pool::new(2);
        assert_eq!(pool.work(0), (vec![], vec![]));
        assert_eq!(pool.take("a", 0), None);
        assert_eq!(pool.work(0), (vec!["a"], vec![]));
        assert_eq!((pool.take("b", 1), pool.take("a", 2)), (None, Some(1)));
        assert_eq!(pool.work(2), (vec!["a", "b"], vec![]));
        // Each serves once.
        assert_eq!((pool.take("a", 3), pool.take("a", 4)), (Some(2), None));
        assert_eq!(pool.work(4), (vec!["a", "a", "a"], vec![3]));
    }

    #[test]
    fn the_last_uses_decide_and_no_more_wait_than_may() {
        let mut pool = Pool::new(2);
        for key in ["a", "b", "c", "d"] {
            assert_eq!(pool.take(key, 0), None);
        }
        assert_eq!(pool.work(0), (vec!["d", "c"], vec![]));
        assert_eq!(pool.take("e", 1), None);
        assert_eq!(pool.work(1), (vec!["e"], vec![2]));
        assert_eq!((pool.take("c", 2), pool.take("d", 2)), (None, Some(1)));
    }

    #[test]
    fn what_nobody_used_for_a_while_goes() {
        let mut pool = Pool::new(2);
        pool.take("a", 0);
        pool.take("b", 100);
        assert_eq!(pool.work(100), (vec!["b", "a"], vec![]));
        let plan = pool.waiting.plan(pool.at(299), |_| true);
        let unchanged = Plan {
            surplus: vec![],
            make: None,
            again: Some(pool.at(300)),
        };
        assert_eq!(plan, unchanged);
        assert_eq!(pool.work(300), (vec![], vec![2]));
        assert_eq!(pool.work(400), (vec![], vec![1]));
        assert_eq!(pool.waiting.plan(pool.at(400), |_| true).again, None);
    }

    #[test]
    fn uses_that_come_too_fast_have_more_wait_until_they_are_rare_again() {
        let mut pool = Pool::new(2);
        // A capacity of two, and five uses at once.
        for second in [0, 0] {
            pool.take("a", second);
        }
        assert_eq!(pool.work(0).0, ["a", "a"]);
        let burst = |pool: &mut Pool, second| (0..5).filter(|_| pool.take("a", second).is_some()).count();
        assert_eq!(burst(&mut pool, 1), 2);
        assert_eq!(pool.work(1).0, ["a"; 5]);
        assert_eq!(burst(&mut pool, 2), 5);
        // Growth is limited.
        for second in 3..20 {
            burst(&mut pool, second);
            burst(&mut pool, second);
            pool.work(second);
        }
        assert_eq!(pool.waiting.ready.len(), 2 * GROWTH);
        assert_eq!(pool.work(400).1.len(), 2 * GROWTH);
        assert_eq!((pool.waiting.most, pool.take("a", 400)), (2, None));
    }

    #[test]
    fn what_died_is_not_given_away_and_is_replaced() {
        let mut pool = Pool::new(2);
        pool.take("a", 0);
        pool.work(0);
        let now = pool.at(1);
        assert_eq!(pool.waiting.take(&"a", now, |thing| *thing != 1), None);
        let plan = pool.waiting.plan(now, |thing| *thing != 1);
        assert_eq!((plan.surplus, plan.make), (vec![1], Some("a")));
    }

    #[test]
    fn what_cannot_be_made_is_not_tried_for_ever() {
        let mut pool = Pool::new(2);
        pool.take("a", 0);
        let now = pool.at(0);
        assert_eq!(pool.waiting.plan(now, |_| true).make, Some("a"));
        pool.waiting.failed();
        assert_eq!(pool.waiting.plan(now, |_| true).make, None);
        pool.take("a", 1);
        assert_eq!(pool.work(1), (vec!["a"], vec![]));
    }

    #[test]
    fn one_is_made_at_a_time_and_may_be_surplus_when_it_is_there() {
        let mut pool = Pool::new(2);
        pool.take("a", 0);
        let now = pool.at(0);
        assert_eq!(pool.waiting.plan(now, |_| true).make, Some("a"));
        pool.take("b", 0);
        pool.take("c", 0);
        assert_eq!(pool.waiting.plan(now, |_| true).make, None);
        pool.waiting.made(9);
        assert_eq!(pool.work(0), (vec!["c", "b"], vec![9]));
    }

    #[test]
    fn one_without_room_and_a_closed_one_keep_nothing() {
        let mut pool = Pool::new(0);
        assert_eq!(pool.take("a", 0), None);
        assert_eq!(pool.work(0), (vec![], vec![]));
        let mut pool = Pool::new(2);
        pool.take("a", 0);
        pool.work(0);
        pool.take("b", 0);
        assert_eq!(pool.waiting.plan(pool.at(0), |_| true).make, Some("b"));
        assert_eq!(pool.waiting.close(), [1]);
        pool.waiting.made(2);
        assert_eq!(pool.take("b", 0), None);
        assert_eq!(pool.work(0), (vec![], vec![2]));
    }
}
