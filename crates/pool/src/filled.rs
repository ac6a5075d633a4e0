//! A pool with a task that fills it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::{Plan, Pool, PoolSettings};

/// The instances of a [`FilledPool`].
pub trait Instances: Send + Sync + 'static {
    type Key: Clone + PartialEq + fmt::Debug + Send + 'static;
    type Instance: fmt::Debug + Send + 'static;

    /// Returns `true` if an idle instance is alive.
    fn is_usable(&self, instance: &Self::Instance) -> bool;

    /// Starts an idle instance. `None` if that fails: the next checkout starts one itself and gets the error.
    fn start(&self, key: &Self::Key) -> impl Future<Output = Option<Self::Instance>> + Send;

    /// Ends an idle instance.
    fn end(&self, instance: Self::Instance) -> impl Future<Output = ()> + Send;
}

/// A pool that a background task fills; it stays empty until the first checkout.
#[derive(Debug)]
pub struct FilledPool<I: Instances> {
    shared: Arc<Shared<I>>,
    filler: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Shared<I: Instances> {
    instances: I,
    pool: Mutex<Pool<I::Key, I::Instance>>,
    changed: Notify,
}

impl<I: Instances> FilledPool<I> {
    /// Creates an empty pool.
    pub fn new(settings: PoolSettings, instances: I) -> Self {
        Self {
            shared: Arc::new(Shared {
                instances,
                pool: Mutex::new(Pool::new(settings)),
                changed: Notify::new(),
            }),
            filler: Mutex::default(),
        }
    }

    /// Returns the source of the instances.
    pub fn instances(&self) -> &I {
        &self.shared.instances
    }

    /// Records a checkout, and returns an idle instance with its key, if any.
    pub fn take(&self, key: &I::Key) -> Option<I::Instance> {
        let usable = |instance: &mut I::Instance| self.shared.instances.is_usable(instance);
        self.shared.pool().take(key, Instant::now(), usable)
    }

    /// Triggers a refill after a checkout.
    pub fn refill(&self) {
        let mut filler = lock(&self.filler);
        if filler.is_empty() {
            let shared = Arc::clone(&self.shared);
            filler.spawn(async move { shared.fill().await });
        }
        self.shared.changed.notify_one();
    }

    /// Disables the pool, and ends all idle instances.
    pub async fn close(&self) {
        let mut idle = self.shared.pool().close();
        let mut filler = std::mem::take(&mut *lock(&self.filler));
        filler.shutdown().await;
        idle.extend(self.shared.pool().close());
        for instance in idle {
            self.shared.instances.end(instance).await;
        }
    }
}

impl<I: Instances> Shared<I> {
    fn pool(&self) -> MutexGuard<'_, Pool<I::Key, I::Instance>> {
        lock(&self.pool)
    }

    /// Starts and ends instances to match the recorded checkouts. Never returns.
    async fn fill(&self) {
        loop {
            let usable = |instance: &mut I::Instance| self.instances.is_usable(instance);
            let Plan {
                surplus,
                start,
                again,
            } = self.pool().plan(Instant::now(), usable);
            for instance in surplus {
                self.instances.end(instance).await;
            }
            if let Some(key) = start {
                match self.instances.start(&key).await {
                    Some(instance) => self.pool().started(instance),
                    None => self.pool().failed(),
                }
                continue;
            }
            let changed = self.changed.notified();
            match again {
                Some(again) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(again) => {}
                },
                None => changed.await,
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    const EXPIRY: Duration = Duration::from_secs(600);

    /// Numbers, counted as they start and end. Those with a negative key do not start.
    #[derive(Debug, Default)]
    struct Numbers {
        started: AtomicU32,
        ended: AtomicU32,
        event: Notify,
    }

    impl Numbers {
        fn counts(&self) -> (u32, u32) {
            (
                self.started.load(Ordering::Relaxed),
                self.ended.load(Ordering::Relaxed),
            )
        }
    }

    impl Instances for Arc<Numbers> {
        type Key = i32;
        type Instance = u32;

        fn is_usable(&self, _: &u32) -> bool {
            true
        }

        async fn start(&self, key: &i32) -> Option<u32> {
            self.event.notify_one();
            (*key >= 0).then(|| self.started.fetch_add(1, Ordering::Relaxed))
        }

        async fn end(&self, _: u32) {
            self.ended.fetch_add(1, Ordering::Relaxed);
            self.event.notify_one();
        }
    }

    fn pool(numbers: &Arc<Numbers>) -> FilledPool<Arc<Numbers>> {
        let settings = PoolSettings {
            size: 1,
            max_size: 1,
            per_checkout: 1,
            expiry: Some(EXPIRY),
        };
        FilledPool::new(settings, Arc::clone(numbers))
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_is_idle_from_the_first_refill_until_it_expires() {
        let numbers = Arc::new(Numbers::default());
        let pool = pool(&numbers);
        assert_eq!((pool.take(&1), numbers.counts()), (None, (0, 0)));
        pool.refill();
        numbers.event.notified().await;
        let since = Instant::now();
        assert_eq!(numbers.counts(), (1, 0));
        // The clock is advanced while every task waits.
        numbers.event.notified().await;
        assert_eq!((since.elapsed() >= EXPIRY, numbers.counts()), (true, (1, 1)));
        assert_eq!(pool.take(&1), None);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_the_idle_and_starts_no_more() {
        let numbers = Arc::new(Numbers::default());
        let pool = pool(&numbers);
        pool.take(&-1);
        pool.refill();
        numbers.event.notified().await;
        assert_eq!(numbers.counts(), (0, 0));
        pool.take(&1);
        pool.refill();
        numbers.event.notified().await;
        assert_eq!(numbers.counts(), (1, 0));
        pool.close().await;
        assert_eq!(numbers.counts(), (1, 1));
        assert_eq!(pool.take(&1), None);
        pool.refill();
        tokio::task::yield_now().await;
        assert_eq!(numbers.counts(), (1, 1));
    }
}
