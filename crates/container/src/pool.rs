//! Pools idle containers: each is started in advance, serves one request and is then removed.
//!
//! The pool holds a container for each of the last uses, with an equal key: image, limits, user, mounts. A
//! request checks out one with its key, or gets a new container.

pub(super) mod ready;
mod serve;

use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::{EnvName, Language, Request, Timeout};
use ringfence_pool::PoolSettings;
use ringfence_pool::filled::{FilledPool, Instances};
use tokio::time::sleep;

use super::guest_paths::WORKSPACE;
use super::init::Interpreter;
use super::layout::{self, Belonging, Layout, Program, Storage};
use super::oneshot;
use super::pool_key::PoolKey;
use super::run_error::RunError;
use super::settings::Settings;
use super::spec::Stdin;
use super::supervisor::ContainerSupervisor;
use super::task::NewContainer;
use super::warm;
use ready::Ready;
pub(super) use serve::serve;

/// Idle time after the last use with the same key.
const IDLE: Duration = Duration::from_secs(5 * 60);
/// Maximum capacity, as a multiple of the configured size.
const GROWTH: usize = 4;
/// Delay before a refill, so that it does not slow down a short request.
const SOON: Duration = Duration::from_millis(200);
/// Time for the removal of a container, beside its idle time and its use.
const ROOM: Duration = Duration::from_secs(120);
/// Maximum length of a bash script: it is passed as an argument, whose length the kernel limits
/// (MAX_ARG_STRLEN).
const MAX_SCRIPT: usize = 100_000;
/// Limit of a call's texts: fits into the frame that starts a call, with a margin.
const MAX_TEXT: usize = 7 << 20;

/// The idle containers of both engines.
#[derive(Debug)]
pub(super) struct ContainerPool {
    size: usize,
    idle: FilledPool<Source>,
}

/// The source of idle containers.
#[derive(Debug)]
struct Source {
    settings: Settings,
}

/// An engine's supervisor and a pool key.
#[derive(Debug, Clone)]
struct Key {
    supervisor: Arc<ContainerSupervisor>,
    frame: PoolKey,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.supervisor.engine().kind() == other.supervisor.engine().kind() && self.frame == other.frame
    }
}

impl ContainerPool {
    /// Creates a pool of at most `size` containers; it stays empty until the first use.
    pub(super) fn new(size: usize, settings: Settings) -> Self {
        let policy = PoolSettings {
            size,
            max_size: GROWTH * size,
            per_checkout: 1,
            expiry: Some(IDLE),
        };
        Self {
            size,
            idle: FilledPool::new(policy, Source { settings }),
        }
    }

    /// Records a use, and checks out an idle container with its key, if any.
    pub(super) fn take(
        &self,
        supervisor: &Arc<ContainerSupervisor>,
        frame: &PoolKey,
        request: &Request,
    ) -> Option<Ready> {
        if !suits(request, frame) {
            return None;
        }
        self.idle.take(&Key {
            supervisor: Arc::clone(supervisor),
            frame: frame.clone(),
        })
    }

    /// Creates a container for a request.
    pub(super) async fn fresh(
        &self,
        supervisor: &Arc<ContainerSupervisor>,
        frame: &PoolKey,
        interpreter: Interpreter,
    ) -> Result<Ready, RunError> {
        let key = Key {
            supervisor: Arc::clone(supervisor),
            frame: frame.clone(),
        };
        let ready = self.idle.instances().make(&key, interpreter).await?;
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
        self.idle.refill();
        match served {
            Some(served) => served,
            None => serving.await,
        }
    }

    /// Drops all containers. Their supervisors' shutdown waits for the removal.
    pub(super) async fn close(&self) {
        self.idle.close().await;
    }
}

impl Instances for Source {
    type Key = Key;
    type Instance = Ready;

    fn is_usable(&self, ready: &Ready) -> bool {
        ready.warm.init().is_connected() && ready.warm.container().life().state.is_alive()
    }

    async fn start(&self, key: &Key) -> Option<Ready> {
        let ready = self.make(key, Interpreter::Warm).await.ok()?;
        // Its start is nobody's call.
        let _ = ready.warm.container().use_since_last().await;
        Some(ready)
    }

    async fn end(&self, ready: Ready) {
        drop(ready);
    }
}

impl Source {
    async fn make(
        &self,
        Key { supervisor, frame }: &Key,
        interpreter: Interpreter,
    ) -> Result<Ready, RunError> {
        let program = self.settings.init_program()?;
        let image = supervisor.engine().image_environment(&frame.image).await?;
        let places = Arc::new(Layout::make(&self.settings, frame)?);
        let nothing = Program {
            command: Vec::new(),
            environment: layout::fixed(frame.has_workspace),
            directory: WORKSPACE.to_owned(),
            stdin: Stdin::Attached,
        };
        let ours = Belonging {
            owner: supervisor.owner(),
            storage: Storage::Memory,
        };
        let spec = self
            .settings
            .with_hosts_files(places.spec(&self.settings, frame, nothing, ours)?)?;
        let isolation = oneshot::isolation(supervisor, &spec);
        let new_container = NewContainer {
            spec: warm::with_init(spec, &program, 1, interpreter)?,
            max_duration: IDLE + Timeout::MAX + ROOM,
            attach: true,
            belongings: Some(Box::new(Arc::clone(&places))),
        };
        let warm = warm::start(supervisor, new_container, interpreter).await?;
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
