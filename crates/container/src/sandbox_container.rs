//! Containers of sandboxes. Ringfence's init is their first process, and serves processes, interpreters and
//! files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_exec::local::{Fence, NoSockets};
use ringfence_network::egress::Outlet;
use ringfence_policy::{
    EgressPolicy, EngineKind, EnvName, Isolation, Limits, Network, NetworkMode, ResourceLimits, Scope,
};
use tokio::time::timeout;

use super::backend::Containers;
use super::guest_paths::{OUTPUT, WORKSPACE};
use super::init::{Greeting, InitClient, Interpreter};
use super::run_error::RunError;
use super::spec::{Binds, Filter, Init, Log, Name, ProcessLimit, Resources, Spec, Stdin};
use super::supervisor::{Container, ContainerSupervisor};
use super::task::NewContainer;
use super::warm::{self, Warm};
use super::{ContainerRuntime, Error, Use, layout, mounts, oneshot, pool_key};

/// Longer than any sandbox lives: its registry ends it.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Maximum time of a measurement, before which Podman takes a sample.
const MEASURING: Duration = Duration::from_secs(2);

/// A container to create for a sandbox.
#[derive(Debug, Clone, Copy)]
pub struct NewSandboxContainer<'a> {
    pub engine: EngineKind,
    pub scope: &'a Scope,
    pub limits: Limits,
    /// Hosts that the sandbox's programs may reach. With an empty [`Network::Allowlist`] programs can listen
    /// on ports, but reach no host.
    pub network: &'a Network,
    /// Environment of the sandbox's programs, beside the image's.
    pub env: &'a [(EnvName, String)],
    pub fence: Fence,
}

/// A container of a sandbox. Dropping it ends the container.
#[derive(Debug)]
pub struct SandboxContainer {
    warm: Warm,
    init: InitClient,
    image: String,
    isolation: Isolation,
    limits: ResourceLimits,
    warnings: Vec<String>,
    engine: ContainerRuntime,
}

impl Containers {
    /// Creates a container of the configured image for a sandbox.
    ///
    /// # Errors
    /// If the engine cannot be used, or cannot make such a container.
    pub async fn open_sandbox(&self, new: NewSandboxContainer<'_>) -> Result<SandboxContainer, RunError> {
        let supervisor = self.supervisor(new.engine).await?;
        if new.fence == Fence::Required
            && let Some(what) = supervisor.info().unlimited()
        {
            return Err(RunError::Unlimited(what));
        }
        let spec = self
            .settings()
            .with_hosts_files(self.container_spec(supervisor, new)?)?;
        let environment = supervisor.engine().image_environment(&spec.image).await?;
        let spec = Spec {
            env: layout::with(layout::with(environment, &layout::fixed(true)), new.env),
            ..spec
        };
        let spec = warm::with_init(spec, &self.init_program()?, 0, Interpreter::None)?;
        let (image, resources) = (spec.image.clone(), spec.resources);
        let isolation = oneshot::isolation(supervisor, &spec);
        let greeting = Greeting {
            mount_points: spec.binds.mount_points(),
            ..Greeting::of_sandbox()
        };
        let new_container = NewContainer {
            spec,
            max_duration: FOREVER,
            attach: false,
            belongings: None,
        };
        let warm = warm::greet(supervisor, new_container, greeting).await?;
        let init = match new.network {
            Network::Allowlist(policy) => {
                let outlet = Outlet::new(policy, &self.settings().egress);
                warm.init().clone().through(outlet)
            }
            Network::None => warm.init().clone(),
        };
        Ok(SandboxContainer {
            init,
            image: image.to_string(),
            isolation,
            limits: supervisor.info().held(ResourceLimits {
                memory_bytes: Some(resources.memory.0),
                cpus: Some(resources.cpus.get()),
                pids: Some(resources.pids.get()),
                disk_bytes: Some(resources.volume().0),
                ..new.limits.into()
            }),
            warnings: warnings(supervisor, &warm, resources),
            engine: supervisor.engine().clone(),
            warm,
        })
    }

    fn container_spec(
        &self,
        supervisor: &ContainerSupervisor,
        new: NewSandboxContainer<'_>,
    ) -> Result<Spec, RunError> {
        let settings = self.settings();
        let (network, filter) = pool_key::reach(new.network, NetworkMode::None, "standard");
        let resources = Resources {
            memory: new.limits.memory,
            cpus: new.limits.cpus,
            pids: new.limits.pids,
            disk: new.limits.disk,
        };
        let name = Name::unused();
        Ok(Spec {
            volumes: pool_key::volumes(&name, resources.volume(), vec![PathBuf::from(OUTPUT)], true),
            name,
            image: self.image(new.engine)?,
            command: Vec::new(),
            env: Vec::new(),
            directory: WORKSPACE.to_owned(),
            user: mounts::user(settings, supervisor),
            resources,
            process_limit: ProcessLimit::User,
            network,
            filter: Filter::named(filter).map_err(RunError::Filter)?,
            binds: Binds::default(),
            ledger: settings.ledger.clone(),
            oci_runtime: supervisor.oci_runtime(settings.oci_runtime)?,
            init: Init::Program,
            stdin: Stdin::Attached,
            log: Log::None,
            scope: new.scope.as_str().to_owned(),
            owner: supervisor.owner().clone(),
        })
    }
}

fn warnings(supervisor: &ContainerSupervisor, warm: &Warm, resources: Resources) -> Vec<String> {
    let disk = format!(
        "the disk limit is that of each of /workspace, /output and /tmp: {}",
        resources.volume()
    );
    let engine = supervisor.info().warning();
    let mounts = warm.container().warnings().iter().cloned();
    std::iter::once(disk).chain(engine).chain(mounts).collect()
}

impl SandboxContainer {
    /// Returns the client of the container's init. Processes that it starts reach the allowed hosts.
    pub const fn init(&self) -> &InitClient {
        &self.init
    }

    /// Replaces the hosts that its programs may reach. Connections that the new policy denies are closed before this returns.
    ///
    /// # Errors
    /// If the container was created without a network: its programs have no sockets.
    pub fn replace_egress(&self, policy: &EgressPolicy) -> Result<(), NoSockets> {
        self.init.outlet().ok_or(NoSockets)?.replace(policy);
        Ok(())
    }

    /// Returns `true` if each of its processes has a proxy, at one of the ports for these.
    pub fn has_proxies(&self) -> bool {
        self.init.outlet().is_some_and(Outlet::has_led)
    }

    pub const fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    /// Returns the limits that hold.
    pub const fn limits(&self) -> ResourceLimits {
        self.limits
    }

    pub fn image(&self) -> &str {
        &self.image
    }

    /// Returns remarks about limits and mounts.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns a future that resolves to its resource usage; to `None` if the engine does not respond in
    /// time.
    pub fn measure(&self) -> impl Future<Output = Option<Use>> + Send + use<> {
        let (engine, id) = (self.engine.clone(), self.warm.container().id().clone());
        async move {
            let mut stats = engine.stats(&id);
            timeout(MEASURING, stats.next()).await.ok()?.ok()?
        }
    }

    /// Returns a handle that pauses and resumes the container's processes.
    pub fn pause_control(&self) -> ContainerPause {
        ContainerPause(self.warm.shared())
    }

    /// Returns a future that resolves at the container's end, to the reason.
    pub fn end(&self) -> impl Future<Output = String> + Send + use<> {
        let container = self.warm.shared();
        async move {
            let life = container.ended().await;
            match life.oom_killed {
                true => "its container ended for lack of memory".to_owned(),
                false => "its container has ended".to_owned(),
            }
        }
    }

    /// Ends the container with everything in it, and waits for its removal.
    pub async fn close(self) {
        let container = self.warm.shared();
        drop(self);
        drop(container.stop().await);
    }
}

/// The processes of a container, which its engine stops and continues.
#[derive(Debug, Clone)]
pub struct ContainerPause(Arc<Container>);

impl ContainerPause {
    /// Stops all processes.
    ///
    /// # Errors
    /// If the engine cannot, or the container has ended.
    pub async fn pause(&self) -> Result<(), Error> {
        self.0.pause().await
    }

    /// Resumes all processes.
    ///
    /// # Errors
    /// If the engine cannot, or the container has ended.
    pub async fn resume(&self) -> Result<(), Error> {
        self.0.resume().await
    }
}
