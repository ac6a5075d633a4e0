//! Pools idle containers: each is started in advance, serves one request and is then removed.
//!
//! The pool holds a container for each of the last uses, with an equal key: image, limits, user, mounts. A
//! request checks out one with its key, or gets a new container.

mod serve;
mod waiting;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_network::egress::NetworkSettings;
use ringfence_policy::{EnvName, Isolation, Language, Request, Timeout};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::agent::{self, Interpreter};
use super::backend::Settings;
use super::exchange::Exchange;
use super::layout::{self, Layout, Program, Storage, WORKSPACE};
use super::manager::Manager;
use super::pool_key::PoolKey;
use super::spec::Stdin;
use super::task::Order;
use super::warm::{self, Warm};
use super::{RunError, oneshot};
pub(super) use serve::serve;
use waiting::{Plan, Waiting};

/// Idle time after the last use with the same key.
const IDLE: Duration = Duration::from_secs(5 * 60);
/// Delay before a refill, so that it does not slow down a short request.
const SOON: Duration = Duration::from_millis(200);
/// Time for the removal of a container, beside its idle time and its use.
const ROOM: Duration = Duration::from_secs(120);
/// Bash gets its script as an argument, whose length the kernel limits (MAX_ARG_STRLEN).
const MAX_SCRIPT: usize = 100_000;
/// Limit of a call's texts: fits into the frame that starts a call, with a margin.
const MAX_TEXT: usize = 7 << 20;

/// The idle containers of both engines.
#[derive(Debug)]
pub(super) struct Pool {
    size: usize,
    shelf: Arc<Shelf>,
    maker: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Shelf {
    settings: Settings,
    waiting: Mutex<Waiting<Key, Ready>>,
    changed: Notify,
}

/// An engine's manager and a pool key.
#[derive(Debug, Clone)]
struct Key {
    manager: Arc<Manager>,
    frame: PoolKey,
}

/// An idle container.
#[derive(Debug)]
pub(super) struct Ready {
    /// First, so that it is dropped before its directories.
    warm: Warm,
    places: Arc<Layout>,
    exchange: Exchange,
    isolation: Isolation,
    /// Environment of every program: the image's and ours.
    environment: Vec<(EnvName, String)>,
    /// Egress settings of its outlet, if the request has a network.
    egress: NetworkSettings,
    /// Set if it was created for its request.
    fresh: bool,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.manager.engine().kind() == other.manager.engine().kind() && self.frame == other.frame
    }
}

impl Pool {
    /// Creates a pool of at most `size` containers; it stays empty until the first use.
    pub(super) fn new(size: usize, settings: Settings) -> Self {
        Self {
            size,
            shelf: Arc::new(Shelf {
                settings,
                waiting: Mutex::new(Waiting::new(size, IDLE)),
                changed: Notify::new(),
            }),
            maker: Mutex::default(),
        }
    }

    /// Records a use, and checks out an idle container with its key, if any.
    pub(super) fn take(&self, manager: &Arc<Manager>, frame: &PoolKey, request: &Request) -> Option<Ready> {
        if !suits(request, frame) {
            return None;
        }
        let key = Key {
            manager: Arc::clone(manager),
            frame: frame.clone(),
        };
        self.shelf.waiting().take(&key, Instant::now(), Ready::is_alive)
    }

    /// Creates a container for a request.
    pub(super) async fn fresh(
        &self,
        manager: &Arc<Manager>,
        frame: &PoolKey,
        interpreter: Interpreter,
    ) -> Result<Ready, RunError> {
        let key = Key {
            manager: Arc::clone(manager),
            frame: frame.clone(),
        };
        let ready = self.shelf.make(&key, interpreter).await?;
        Ok(Ready { fresh: true, ..ready })
    }

    /// Awaits a request, and starts the refill meanwhile.
    pub(super) async fn refilled<T>(&self, serving: impl Future<Output = T>) -> T {
        if self.size == 0 {
            return serving.await;
        }
        let mut serving = std::pin::pin!(serving);
        let served = tokio::select! {
            served = &mut serving => Some(served),
            () = sleep(SOON) => None,
        };
        self.refill();
        match served {
            Some(served) => served,
            None => serving.await,
        }
    }

    fn refill(&self) {
        let mut maker = lock(&self.maker);
        if maker.is_empty() {
            let shelf = Arc::clone(&self.shelf);
            maker.spawn(async move { shelf.keep().await });
        }
        self.shelf.changed.notify_one();
    }

    /// Drops all containers. Their managers' shutdown waits for the removal.
    pub(super) async fn close(&self) {
        let waiting = self.shelf.waiting().close();
        drop(waiting);
        let mut maker = std::mem::take(&mut *lock(&self.maker));
        maker.shutdown().await;
    }
}

impl Shelf {
    fn waiting(&self) -> MutexGuard<'_, Waiting<Key, Ready>> {
        lock(&self.waiting)
    }

    /// Creates and removes containers to match the recorded uses. Never returns.
    async fn keep(&self) {
        loop {
            let Plan { surplus, make, again } = self.waiting().plan(Instant::now(), Ready::is_alive);
            drop(surplus);
            if let Some(key) = make {
                let made = self.make(&key, Interpreter::Warm).await;
                match made {
                    Ok(ready) => self.waiting().made(ready),
                    // The next request gets the same error from its own new container.
                    Err(_) => self.waiting().failed(),
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

    async fn make(&self, Key { manager, frame }: &Key, interpreter: Interpreter) -> Result<Ready, RunError> {
        let program = agent::file(&self.settings.agent).map_err(RunError::AgentFile)?;
        let image = manager.engine().image_environment(&frame.image).await?;
        let places = Arc::new(Layout::make(&self.settings, frame)?);
        let nothing = Program {
            command: Vec::new(),
            environment: layout::fixed(frame.has_workspace),
            directory: WORKSPACE.to_owned(),
            stdin: Stdin::Attached,
        };
        let ours = (manager.owner(), Storage::Memory);
        let spec = places.spec((&self.settings, frame), nothing, ours)?;
        let isolation = oneshot::isolation(manager, &spec);
        let order = Order {
            spec: warm::agented(spec, &program, (1, interpreter))?,
            max_duration: IDLE + Timeout::MAX + ROOM,
            attach: true,
            belongings: Some(Box::new(Arc::clone(&places))),
        };
        let warm = warm::start(manager, order, interpreter).await?;
        Ok(Ready {
            warm,
            exchange: places.exchange(frame),
            places,
            isolation,
            environment: layout::with(image, &layout::fixed(frame.has_workspace)),
            egress: self.settings.egress.clone(),
            fresh: false,
        })
    }
}

impl Ready {
    fn is_alive(&self) -> bool {
        self.warm.agent().is_connected() && self.warm.sandbox().life().state.is_alive()
    }
}

/// Returns `true` if the init can serve a request exactly as a container of its own would.
fn suits(request: &Request, frame: &PoolKey) -> bool {
    let script = request.language == Language::Bash;
    let texts = request
        .args
        .iter()
        .chain(request.env.iter().map(|(_, value)| value));
    let text = request.code.len() + texts.map(|text| text.len() + 64).sum::<usize>();
    // Python's variables are only read at its start, which a warm interpreter has behind it.
    let early = |name: &EnvName| request.language == Language::Python && name.as_str().starts_with("PYTHON");
    frame.filter.lets_fork()
        && request.language != Language::Javascript
        && !(script && request.code.len() > MAX_SCRIPT)
        && text < MAX_TEXT
        && !request.env.iter().any(|(name, _)| early(name))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
