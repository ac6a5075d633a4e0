//! Pools of numbers.

use super::*;

const IDLE: Duration = Duration::from_secs(300);
const GROWTH: usize = 4;

/// Settings of a pool that grows.
fn growing(size: usize) -> PoolSettings {
    PoolSettings {
        size,
        max_size: GROWTH * size,
        per_checkout: 1,
        expiry: Some(IDLE),
    }
}

/// A pool of numbers, with a clock in seconds.
struct Numbers {
    pool: Pool<&'static str, u32>,
    begin: Instant,
    count: u32,
}

impl Numbers {
    fn new(most: usize) -> Self {
        Self::with(growing(most))
    }

    fn with(settings: PoolSettings) -> Self {
        Self {
            pool: Pool::new(settings),
            begin: Instant::now(),
            count: 0,
        }
    }

    fn at(&self, second: u64) -> Instant {
        self.begin + Duration::from_secs(second)
    }

    fn take(&mut self, key: &'static str, second: u64) -> Option<u32> {
        let now = self.at(second);
        self.pool.take(&key, now, |_| true)
    }

    /// Executes the plan until nothing is left to do; returns the keys of created instances, and the
    /// removed ones.
    fn work(&mut self, second: u64) -> (Vec<&'static str>, Vec<u32>) {
        let (mut made, mut removed) = (Vec::new(), Vec::new());
        loop {
            let plan = self.pool.plan(self.at(second), |_| true);
            removed.extend(plan.surplus);
            let Some(key) = plan.start else {
                return (made, removed);
            };
            self.count += 1;
            self.pool.started(self.count);
            made.push(key);
            assert!(self.pool.len() <= self.pool.capacity);
        }
    }
}

#[test]
fn what_was_used_waits_for_the_next_use() {
    let mut pool = Numbers::new(2);
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
    let mut pool = Numbers::new(2);
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
    let mut pool = Numbers::new(2);
    pool.take("a", 0);
    pool.take("b", 100);
    assert_eq!(pool.work(100), (vec!["b", "a"], vec![]));
    let plan = pool.pool.plan(pool.at(299), |_| true);
    let unchanged = Plan {
        surplus: vec![],
        start: None,
        again: Some(pool.at(300)),
    };
    assert_eq!(plan, unchanged);
    assert_eq!(pool.work(300), (vec![], vec![2]));
    assert_eq!(pool.work(400), (vec![], vec![1]));
    assert_eq!(pool.pool.plan(pool.at(400), |_| true).again, None);
}

#[test]
fn uses_that_come_too_fast_have_more_wait_until_they_are_rare_again() {
    let mut pool = Numbers::new(2);
    // A capacity of two, and five uses at once.
    for second in [0, 0] {
        pool.take("a", second);
    }
    assert_eq!(pool.work(0).0, ["a", "a"]);
    let burst = |pool: &mut Numbers, second| (0..5).filter(|_| pool.take("a", second).is_some()).count();
    assert_eq!(burst(&mut pool, 1), 2);
    assert_eq!(pool.work(1).0, ["a"; 5]);
    assert_eq!(burst(&mut pool, 2), 5);
    // Growth is limited.
    for second in 3..20 {
        burst(&mut pool, second);
        burst(&mut pool, second);
        pool.work(second);
    }
    assert_eq!(pool.pool.len(), 2 * GROWTH);
    assert_eq!(pool.work(400).1.len(), 2 * GROWTH);
    assert_eq!((pool.pool.capacity, pool.take("a", 400)), (2, None));
}

#[test]
fn what_died_is_not_given_away_and_is_replaced() {
    let mut pool = Numbers::new(2);
    pool.take("a", 0);
    pool.work(0);
    let now = pool.at(1);
    assert_eq!(pool.pool.take(&"a", now, |thing| *thing != 1), None);
    let plan = pool.pool.plan(now, |thing| *thing != 1);
    assert_eq!((plan.surplus, plan.start), (vec![1], Some("a")));
}

#[test]
fn what_cannot_be_made_is_not_tried_for_ever() {
    let mut pool = Numbers::new(2);
    pool.take("a", 0);
    let now = pool.at(0);
    assert_eq!(pool.pool.plan(now, |_| true).start, Some("a"));
    pool.pool.failed();
    assert_eq!(pool.pool.plan(now, |_| true).start, None);
    pool.take("a", 1);
    assert_eq!(pool.work(1), (vec!["a"], vec![]));
}

#[test]
fn one_is_made_at_a_time_and_may_be_surplus_when_it_is_there() {
    let mut pool = Numbers::new(2);
    pool.take("a", 0);
    let now = pool.at(0);
    assert_eq!(pool.pool.plan(now, |_| true).start, Some("a"));
    pool.take("b", 0);
    pool.take("c", 0);
    assert_eq!(pool.pool.plan(now, |_| true).start, None);
    pool.pool.started(9);
    assert_eq!(pool.work(0), (vec!["c", "b"], vec![9]));
}

#[test]
fn one_without_room_and_a_closed_one_keep_nothing() {
    let mut pool = Numbers::new(0);
    assert_eq!(pool.take("a", 0), None);
    assert_eq!(pool.work(0), (vec![], vec![]));
    let mut pool = Numbers::new(2);
    pool.take("a", 0);
    pool.work(0);
    pool.take("b", 0);
    assert_eq!(pool.pool.plan(pool.at(0), |_| true).start, Some("b"));
    assert_eq!(pool.pool.close(), [1]);
    pool.pool.started(2);
    assert_eq!(pool.take("b", 0), None);
    assert_eq!(pool.work(0), (vec![], vec![2]));
}

/// Settings of a pool for one key at a time, whose instances never expire.
fn lasting(size: usize) -> PoolSettings {
    PoolSettings {
        size,
        max_size: size,
        per_checkout: size,
        expiry: None,
    }
}

#[test]
fn a_checkout_can_reserve_more_than_one() {
    let mut pool = Numbers::with(PoolSettings {
        per_checkout: 2,
        ..growing(3)
    });
    assert_eq!(pool.take("a", 0), None);
    assert_eq!(pool.work(0), (vec!["a", "a"], vec![]));
    assert_eq!(pool.take("b", 0), None);
    assert_eq!(pool.work(0), (vec!["b", "b"], vec![2]));
    assert_eq!((pool.take("a", 1), pool.take("b", 1)), (Some(1), Some(3)));
}

#[test]
fn what_has_a_former_key_is_never_taken() {
    let mut pool = Numbers::with(lasting(2));
    pool.pool.reserve(&"old", pool.begin);
    assert_eq!(pool.work(0), (vec!["old", "old"], vec![]));
    // One was about to be started.
    assert_eq!(pool.take("old", 1), Some(1));
    assert_eq!(pool.pool.plan(pool.at(1), |_| true).start, Some("old"));
    assert_eq!(pool.take("new", 2), None);
    pool.pool.started(3);
    assert_eq!(pool.take("new", 2), None);
    pool.pool.put_back("old", 1);
    assert_eq!(pool.take("new", 2), None);
    pool.count = 3;
    assert_eq!(pool.work(2), (vec!["new", "new"], vec![2, 3, 1]));
    assert_eq!((pool.take("new", 3), pool.take("new", 3)), (Some(4), Some(5)));
}

#[test]
fn what_was_put_back_is_taken_unless_it_has_died() {
    let mut pool = Numbers::with(lasting(1));
    pool.pool.reserve(&"a", pool.begin);
    assert_eq!(pool.work(0).0, ["a"]);
    assert_eq!(pool.take("a", 0), Some(1));
    pool.pool.put_back("a", 1);
    assert_eq!(pool.pool.len(), 1);
    let now = pool.at(1);
    assert_eq!(pool.pool.take(&"a", now, |_| false), None);
    let plan = pool.pool.plan(now, |_| false);
    assert_eq!((plan.surplus, plan.start), (vec![1], Some("a")));
    assert!(pool.pool.is_empty());
}
