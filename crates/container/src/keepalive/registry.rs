//! Assigns calls to containers, and selects those to remove. Pure: no clock, no engine.

use std::time::Duration;

use tokio::time::Instant;

/// Lifetime limits of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// Number of calls after which it takes no more; at least one.
    pub(super) max_calls: u32,
    /// Idle timeout.
    pub(super) idle: Duration,
}

/// Identifier of a container in the registry, valid while a call runs in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number(u64);

/// Condition of a container after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// The container can serve further calls.
    Well,
    Dead,
    /// The container was never created.
    Unmade,
}

/// The limit is reached and every container is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// The registry of reused containers.
#[derive(Debug)]
pub(super) struct Registry<K, T> {
    entries: Vec<Entry<K, T>>,
    most: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry<K, T> {
    number: Number,
    key: K,
    what: T,
    rule: Rule,
    begun: u32,
    running: u32,
    /// Time of the end of its last call.
    idle_since: Instant,
    /// Set if the container takes no more calls, and is removed after its last one.
    retired: bool,
}

/// A container for a call, and the one that was evicted for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken<T> {
    pub(super) number: Number,
    pub(super) what: T,
    pub(super) evicted: Option<T>,
}

impl<K: PartialEq, T: Clone> Registry<K, T> {
    /// Creates a registry of at most `most` containers.
    pub(super) fn new(most: usize) -> Self {
        Self {
            entries: Vec::new(),
            most,
            next: 0,
        }
    }

    /// Returns the container for a new call: an existing one, or a new one. Every call must be ended with
    /// [`Self::left`].
    pub(super) fn take(
        &mut self,
        key: K,
        rule: Rule,
        now: Instant,
        new: impl FnOnce() -> T,
    ) -> Result<Taken<T>, Full> {
        let open = |entry: &&mut Entry<K, T>| !entry.retired && entry.key == key;
        if let Some(entry) = self.entries.iter_mut().find(open) {
            return Ok(entry.begin(None));
        }
        let evicted = self.make_room()?;
        let number = Number(self.next);
        self.next += 1;
        let mut entry = Entry {
            number,
            key,
            what: new(),
            rule,
            begun: 0,
            running: 0,
            idle_since: now,
            retired: false,
        };
        let taken = entry.begin(evicted);
        self.entries.push(entry);
        Ok(taken)
    }

    /// Evicts the container that was idle longest if the limit is reached; never a busy one.
    fn make_room(&mut self) -> Result<Option<T>, Full> {
        if self.entries.len() < self.most {
            return Ok(None);
        }
        let idle = self.entries.iter().filter(|entry| entry.running == 0);
        let longest = idle.min_by_key(|entry| entry.idle_since).ok_or(Full)?;
        let number = longest.number;
        Ok(self.remove(number))
    }

    /// Records the end of a call. Returns the container if it must be removed now.
    pub(super) fn left(&mut self, number: Number, condition: Condition, now: Instant) -> Option<T> {
        let entry = self.entries.iter_mut().find(|entry| entry.number == number)?;
        entry.running -= 1;
        entry.idle_since = now;
        entry.retired |= condition == Condition::Dead;
        let useless = entry.retired || condition == Condition::Unmade;
        let goes = entry.running == 0 && useless;
        goes.then(|| self.remove(number)).flatten()
    }

    /// Removes the containers past their idle timeout.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<T> {
        let (gone, kept) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| entry.due().is_some_and(|due| due <= now));
        self.entries = kept;
        gone.into_iter().map(|entry: Entry<K, T>| entry.what).collect()
    }

    /// Returns the time at which the next idle timeout expires.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.entries.iter().filter_map(Entry::due).min()
    }

    /// Removes all containers.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.entries.drain(..).map(|entry| entry.what).collect()
    }

    /// Iterates over key, container, number of calls so far, and expiry if idle.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &T, u32, Option<Instant>)> {
        self.entries
            .iter()
            .map(|entry| (&entry.key, &entry.what, entry.begun, entry.due()))
    }

    pub(super) fn key(&self, number: Number) -> Option<&K> {
        let entry = self.entries.iter().find(|entry| entry.number == number);
        entry.map(|entry| &entry.key)
    }

    fn remove(&mut self, number: Number) -> Option<T> {
        let place = self.entries.iter().position(|entry| entry.number == number)?;
        Some(self.entries.swap_remove(place).what)
    }
}

impl<K, T: Clone> Entry<K, T> {
    fn begin(&mut self, evicted: Option<T>) -> Taken<T> {
        self.begun += 1;
        self.running += 1;
        self.retired = self.begun >= self.rule.max_calls;
        Taken {
            number: self.number,
            what: self.what.clone(),
            evicted,
        }
    }

    /// Returns the expiry of the container's idle timeout; `None` if it is busy.
    fn due(&self) -> Option<Instant> {
        (self.running == 0).then(|| self.idle_since + self.rule.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const RULE: Rule = Rule {
        max_calls: 3,
        idle: Duration::from_secs(600),
    };

    /// A registry with a manual clock; its containers are numbers.
    struct Library {
        book: Registry<&'static str, u32>,
        now: Instant,
        made: u32,
    }

    impl Library {
        fn new(most: usize) -> Self {
            Self {
                book: Registry::new(most),
                now: Instant::now(),
                made: 0,
            }
        }

        fn take(&mut self, key: &'static str) -> Taken<u32> {
            let made = &mut self.made;
            let new = || {
                *made += 1;
                *made
            };
            self.book.take(key, RULE, self.now, new).unwrap()
        }

        fn left(&mut self, number: Number, condition: Condition) -> Option<u32> {
            self.book.left(number, condition, self.now)
        }

        fn pass(&mut self, time: Duration) -> Vec<u32> {
            self.now += time;
            self.book.overdue(self.now)
        }
    }

    #[test]
    fn calls_of_one_key_share_a_container_and_others_do_not() {
        let mut library = Library::new(9);
        assert_eq!(library.take("ann").what, 1);
        assert_eq!(library.take("bob").what, 2);
        assert_eq!(library.take("ann").what, 1);
    }

    #[test]
    fn after_its_calls_a_container_goes_with_the_last_that_runs_and_cuts_none() {
        let mut library = Library::new(9);
        let first = library.take("ann").number;
        assert_eq!(library.left(first, Condition::Well), None);
        let [second, third] = [library.take("ann"), library.take("ann")].map(|taken| taken.number);
        assert_eq!(library.take("ann").what, 2);
        // However long their calls run.
        assert_eq!(library.pass(60 * MINUTE), Vec::<u32>::new());
        assert_eq!(library.left(third, Condition::Well), None);
        assert_eq!(library.left(second, Condition::Well), Some(1));
        assert_eq!(library.book.iter().count(), 1);
    }

    #[test]
    fn idle_ones_go_by_the_clock_and_running_ones_do_not() {
        let mut library = Library::new(9);
        let ann = library.take("ann").number;
        let bob = library.take("bob").number;
        assert_eq!(library.book.next_due(), None);
        library.left(ann, Condition::Well);
        assert_eq!(library.book.next_due(), Some(library.now + 10 * MINUTE));
        assert_eq!(library.pass(9 * MINUTE), Vec::<u32>::new());
        // Each call restarts the idle timeout.
        let again = library.take("ann");
        assert_eq!(again.what, 1);
        library.left(again.number, Condition::Well);
        assert_eq!(library.pass(9 * MINUTE), Vec::<u32>::new());
        assert_eq!(library.pass(MINUTE), [1]);
        library.left(bob, Condition::Well);
        assert_eq!(library.pass(10 * MINUTE), [2]);
        assert_eq!(library.book.next_due(), None);
    }

    #[test]
    fn there_are_no_more_than_allowed_and_the_longest_idle_goes_first() {
        let mut library = Library::new(2);
        let [ann, bob] = ["ann", "bob"].map(|key| library.take(key).number);
        let full = library.book.take("eve", RULE, library.now, || 9);
        assert_eq!(full, Err(Full));
        library.left(bob, Condition::Well);
        library.pass(MINUTE);
        library.left(ann, Condition::Well);
        let eve = library.take("eve");
        assert_eq!((eve.what, eve.evicted), (3, Some(2)));
        let bob = library.take("bob");
        assert_eq!((bob.what, bob.evicted), (4, Some(1)));
    }

    #[test]
    fn a_dead_one_serves_nobody_and_goes_with_its_last_call() {
        let mut library = Library::new(9);
        let [one, two] = [library.take("ann"), library.take("ann")].map(|taken| taken.number);
        assert_eq!(library.left(one, Condition::Dead), None);
        assert_eq!(library.take("ann").what, 2);
        assert_eq!(library.left(two, Condition::Dead), Some(1));
    }

    #[test]
    fn one_that_was_never_made_is_forgotten_once_nobody_waits_for_it() {
        let mut library = Library::new(9);
        let [one, two] = [library.take("ann"), library.take("ann")].map(|taken| taken.number);
        assert_eq!(library.left(one, Condition::Unmade), None);
        assert_eq!(library.left(two, Condition::Unmade), Some(1));
        assert_eq!(library.take("ann").what, 2);
    }

    #[test]
    fn one_call_each_means_one_container_each() {
        let mut library = Library::new(9);
        let once = Rule { max_calls: 1, ..RULE };
        let first = library.book.take("ann", once, library.now, || 1).unwrap();
        let second = library.book.take("ann", once, library.now, || 2).unwrap();
        assert_eq!((first.what, second.what), (1, 2));
        assert_eq!(library.left(first.number, Condition::Well), Some(1));
        assert_eq!(library.book.clear(), [2]);
    }
}
