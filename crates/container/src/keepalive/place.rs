//! Creates a reused container: its mounts, and the mechanism that runs its calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_exec::local::Workdir;
use ringfence_network::egress::NetworkSettings;
use ringfence_policy::{self as policy, Access, EngineKind, EnvName, Isolation, NetworkMode};

use super::key::Key;
use crate::exchange::{Exchange, Users};
use crate::guest_paths::{OUTPUT, WORKSPACE};
use crate::info::Info;
use crate::init::{AT_ONCE, Interpreter};
use crate::layout::Storage;
use crate::outputs::OpenOutput;
use crate::run_error::RunError;
use crate::settings::Settings;
use crate::spec::{Bind, Binds, Filter, Image, Init, Log, Name, ProcessLimit, Resources, Spec, Stdin};
use crate::supervisor::{Container, ContainerSupervisor};
use crate::task::NewContainer;
use crate::warm::{self, Warm};
use crate::{layout, mounts, oneshot, pool_key};

/// Longer than the lifetime of any reused container, which ends with its calls.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A reused container.
#[derive(Debug)]
pub(super) struct ReusedContainer {
    pub(super) runs: Runs,
    pub(super) engine: EngineKind,
    pub(super) image: String,
    /// Isolation layers requested from the engine.
    pub(super) isolation: Isolation,
    /// Capabilities of the engine.
    pub(super) info: Info,
    /// Host directory for output files.
    pub(super) output: OpenOutput,
    /// Environment of every program: the image's and Ringfence's variables.
    pub(super) environment: Vec<(EnvName, String)>,
    /// Egress settings shared by the outlets of its calls.
    pub(super) egress: NetworkSettings,
    /// Synchronizes the container's `/output` with that directory, if `/output` is a tmpfs.
    pub(super) exchange: Exchange,
    /// Host directory mounted as its workspace, if it has neither a workspace nor one on tmpfs.
    pub(super) own: Option<PathBuf>,
    /// Warning for a workspace with a read-only top directory.
    pub(super) closed: Option<String>,
}

/// The mechanism that runs calls in a container.
#[derive(Debug)]
pub(super) enum Runs {
    Init(Warm),
    /// The engine's exec API, and the reason for not using Ringfence's init.
    Exec(Box<Container>, String),
}

/// Parameters of a container to create.
struct Maker<'a> {
    settings: &'a Settings,
    supervisor: &'a ContainerSupervisor,
    key: &'a Key,
    image: Image,
    output: OpenOutput,
    environment: Vec<(EnvName, String)>,
}

/// Creates a reused container. Falls back to the engine's exec API if our init cannot run in it.
pub(super) async fn make(
    settings: &Settings,
    supervisor: &ContainerSupervisor,
    key: &Key,
) -> Result<ReusedContainer, RunError> {
    let program = settings.init_program()?;
    make_with(settings, supervisor, key, &program).await
}

/// Like [`make`], with this program as the init.
pub(super) async fn make_with(
    settings: &Settings,
    supervisor: &ContainerSupervisor,
    key: &Key,
    program: &Path,
) -> Result<ReusedContainer, RunError> {
    let outputs = &settings.outputs;
    let image: Image = key.keep_alive.image.parse().map_err(RunError::Image)?;
    let image = settings.pinned(key.engine, &image)?;
    let environment = supervisor.engine().image_environment(&image).await?;
    let maker = Maker {
        settings,
        supervisor,
        key,
        output: outputs
            .open(&key.scope, key.keep_alive.session.as_ref())
            .map_err(RunError::Outputs)?,
        environment: layout::with(environment, &layout::fixed(key.workspace.is_some())),
        image,
    };
    match maker.with_init(program).await {
        Err(RunError::InitLost(parted)) if key.reach != policy::Network::None => {
            Err(RunError::NoAgent(parted))
        }
        Err(error) if key.reach != policy::Network::None => Err(error),
        Err(error) if error.may_be_of_the_init() => {
            let made = maker.without_init(error.to_string()).await;
            made.map_err(|_| error)
        }
        made => made,
    }
}

impl Maker<'_> {
    async fn with_init(&self, program: &Path) -> Result<ReusedContainer, RunError> {
        let (spec, _) = self.specify(Storage::Memory)?;
        let spec = warm::with_init(spec, program, self.calls(), Interpreter::Warm)?;
        let facts = self.facts(&spec, None);
        let warm = warm::start(self.supervisor, new_container(spec, None), Interpreter::Warm).await?;
        let container = facts(Runs::Init(warm));
        // Its start is nobody's call.
        let _ = container.handle().use_since_last().await;
        Ok(container)
    }

    async fn without_init(&self, why: String) -> Result<ReusedContainer, RunError> {
        let (spec, own) = self.specify(Storage::Host)?;
        let facts = self.facts(&spec, own.as_ref());
        let (container, _) = self.supervisor.create(new_container(spec, own)).await?;
        Ok(facts(Runs::Exec(Box::new(container), why)))
    }

    /// Returns the limit of concurrent calls.
    fn calls(&self) -> u32 {
        let most = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
        self.key.keep_alive.max_calls.min(most)
    }

    /// Returns a constructor of the container, to be completed with its mechanism.
    fn facts(&self, spec: &Spec, own: Option<&Workdir>) -> impl FnOnce(Runs) -> ReusedContainer + use<> {
        let (engine, image) = (self.key.engine, self.key.keep_alive.image.clone());
        let isolation = oneshot::isolation(self.supervisor, spec);
        let info = self.supervisor.info().clone();
        let (output, environment) = (self.output.clone(), self.environment.clone());
        let egress = self.settings.egress.clone();
        let own = own.map(|own| own.path().to_path_buf());
        let closed = mounts::warning(self.key.workspace.as_deref(), self.settings);
        let place = output.path().to_path_buf();
        let exchange = Exchange::of_output(place, spec.resources.volume(), Users::Several);
        move |runs| ReusedContainer {
            runs,
            engine,
            image,
            isolation,
            info,
            output,
            environment,
            egress,
            exchange,
            own,
            closed,
        }
    }

    /// Returns the specification without the init, and the container's own workspace directory if it needs
    /// one.
    fn specify(&self, storage: Storage) -> Result<(Spec, Option<Workdir>), RunError> {
        let Self {
            settings,
            supervisor,
            key,
            ..
        } = self;
        let user = mounts::user(settings, supervisor);
        let own_filter = filter(key.keep_alive.network);
        let (network, filter) = pool_key::reach(&key.reach, key.keep_alive.network, own_filter);
        let own = match (&key.workspace, storage) {
            (Some(_), _) | (None, Storage::Memory) => None,
            (None, Storage::Host) => Some(layout::workdir(settings, user).map_err(RunError::Directory)?),
        };
        let resources = Resources {
            memory: key.limits.memory,
            cpus: key.limits.cpus,
            pids: key.limits.pids,
            disk: key.limits.disk,
        };
        let (name, binds) = (Name::unused(), self.binds(own.as_ref(), storage)?);
        let has_workspace = binds.iter().any(|bind| bind.guest() == Path::new(WORKSPACE));
        let output = vec![PathBuf::from(OUTPUT), self.output.path().to_path_buf()];
        let spec = Spec {
            volumes: match storage {
                Storage::Memory => pool_key::volumes(&name, resources.volume(), output, !has_workspace),
                Storage::Host => Vec::new(),
            },
            name,
            image: self.image.clone(),
            command: vec!["sleep".to_owned(), "infinity".to_owned()],
            env: layout::fixed(has_workspace),
            directory: WORKSPACE.to_owned(),
            user,
            resources,
            process_limit: ProcessLimit::User,
            network,
            filter: Filter::named(filter).map_err(RunError::Filter)?,
            binds,
            ledger: settings.ledger.clone(),
            oci_runtime: supervisor.oci_runtime(settings.oci_runtime)?,
            init: Init::Engine,
            stdin: Stdin::Empty,
            log: Log::None,
            scope: key.scope.as_str().to_owned(),
            owner: supervisor.owner().clone(),
        };
        Ok((settings.with_hosts_files(spec)?, own))
    }

    fn binds(&self, own: Option<&Workdir>, storage: Storage) -> Result<Binds, RunError> {
        let settings = self.settings;
        let own = own.map(|own| own.path().join("workspace"));
        let mut binds = self.key.shown.clone();
        if let (None, Some(own)) = (&self.key.workspace, own) {
            let place = Path::new(WORKSPACE);
            binds.push(Bind::ours(&own, place, Access::ReadWrite, &settings.hidden)?);
        }
        if storage == Storage::Host {
            binds.extend(mounts::kept(self.output.path())?);
        }
        Ok(Binds::new(binds)?)
    }
}

/// Returns the name of the seccomp filter for a network mode.
pub(super) fn filter(network: NetworkMode) -> &'static str {
    match network {
        NetworkMode::None => "standard",
        NetworkMode::Bridge => "standard-net",
    }
}

fn new_container(spec: Spec, own: Option<Workdir>) -> NewContainer {
    NewContainer {
        spec,
        max_duration: FOREVER,
        attach: false,
        belongings: own.map(|own| -> Box<dyn std::any::Any + Send + Sync> { Box::new(own) }),
    }
}

impl ReusedContainer {
    pub(super) fn handle(&self) -> &Container {
        match &self.runs {
            Runs::Init(warm) => warm.container(),
            Runs::Exec(container, _) => container,
        }
    }

    /// Returns `true` if the container can serve calls.
    pub(super) fn is_alive(&self) -> bool {
        let init = match &self.runs {
            Runs::Init(warm) => warm.init().is_connected(),
            Runs::Exec(..) => true,
        };
        init && self.handle().life().state.is_alive()
    }

    /// Ends the container with all processes, and waits for its removal.
    pub(super) async fn end(&self) {
        if let Runs::Init(warm) = &self.runs {
            warm.init().release();
        }
        self.handle().stop().await;
    }
}
