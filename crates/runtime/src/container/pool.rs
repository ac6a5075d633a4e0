//! Containers that wait for requests: each was made and started beforehand, serves one request, and is gone after it.
//!
//! A container waits for each of the last uses, with all that the request asked for: its image, its limits, its user, what it
//! sees of the host. A request takes one that was made for its equal, or is served by a container that is made for it.

mod serve;
mod waiting;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_policy::{EnvName, Isolation, Language, Request, Timeout};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::agent::{self, Interpreter};
use super::backend::Settings;
use super::exchange::Exchange;
use super::frame::Frame;
use super::keeper::Order;
use super::manager::Manager;
use super::places::{self, Places, Program, Storage, WORKSPACE};
use super::spec::Stdin;
use super::warm::{self, Warm};
use super::{RunError, oneshot};
use crate::egress::NetworkSettings;
pub(super) use serve::serve;
use waiting::{Plan, Waiting};

/// How long a container waits after the last use that it would have served.
const IDLE: Duration = Duration::from_secs(5 * 60);
/// A request that is over sooner is not disturbed by the making of the next container.
const SOON: Duration = Duration::from_millis(200);
/// How long an engine may take to remove a container, beside the time that it waits and serves.
const ROOM: Duration = Duration::from_secs(120);
/// What the agent starts bash with is an argument, which the kernel bounds.
const MAX_SCRIPT: usize = 100_000;
/// What fits into the frame that begins a call, with room to spare.
const MAX_TEXT: usize = 7 << 20;

/// The containers that wait, of both container engines.
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

/// What a container is made for, and where.
#[derive(Debug, Clone)]
struct Key {
    manager: Arc<Manager>,
    frame: Frame,
}

/// A container that waits.
#[derive(Debug)]
pub(super) struct Ready {
    /// First, so that nothing runs there any more when its directories go.
    warm: Warm,
    places: Arc<Places>,
    exchange: Exchange,
    isolation: Isolation,
    /// What the image gives to every program, and what we do.
    environment: Vec<(EnvName, String)>,
    /// What its way out has in common with others, if it shall have one.
    egress: NetworkSettings,
    /// Whether it was made for its request.
    fresh: bool,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.manager.engine().flavor() == other.manager.engine().flavor() && self.frame == other.frame
    }
}

impl Pool {
    /// A pool of at most so many containers; none are made before there is a use.
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

    /// Notes a use, and gives the container that waits for it, if there is one.
    pub(super) fn take(&self, manager: &Arc<Manager>, frame: &Frame, request: &Request) -> Option<Ready> {
        if !suits(request, frame) {
            return None;
        }
        let key = Key {
            manager: Arc::clone(manager),
            frame: frame.clone(),
        };
        self.shelf.waiting().take(&key, Instant::now(), Ready::is_alive)
    }

    /// A container that is made for a request.
    pub(super) async fn fresh(
        &self,
        manager: &Arc<Manager>,
        frame: &Frame,
        interpreter: Interpreter,
    ) -> Result<Ready, RunError> {
        let key = Key {
            manager: Arc::clone(manager),
            frame: frame.clone(),
        };
        let ready = self.shelf.make(&key, interpreter).await?;
        Ok(Ready { fresh: true, ..ready })
    }

    /// Waits for a request that was served, and has the next container made.
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

    /// Lets go of all. They are gone once their managers have closed.
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

    /// Makes containers and removes them, as the uses want it. Never ends.
    async fn keep(&self) {
        loop {
            let Plan { surplus, make, again } = self.waiting().plan(Instant::now(), Ready::is_alive);
            drop(surplus);
            if let Some(key) = make {
                let made = self.make(&key, Interpreter::Warm).await;
                match made {
                    Ok(ready) => self.waiting().made(ready),
                    // Whoever asks next is told what is wrong by the container that is made for them.
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
        let places = Arc::new(Places::make(&self.settings, frame)?);
        let nothing = Program {
            command: Vec::new(),
            environment: places::fixed(frame.has_workspace),
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
            environment: places::with(image, &places::fixed(frame.has_workspace)),
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

/// Whether a request is served by an agent as it would be by a container of its own.
fn suits(request: &Request, frame: &Frame) -> bool {
    let script = request.language == Language::Bash;
    let texts = request
        .args
        .iter()
        .chain(request.env.iter().map(|(_, value)| value));
    let text = request.code.len() + texts.map(|text| text.len() + 64).sum::<usize>();
    // A warm interpreter has started already, and heeds none of these any more.
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
