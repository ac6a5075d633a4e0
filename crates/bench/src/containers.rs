//! Containers under measurement, and the same work by the container engine alone.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ringfence_container::endpoint::Address;
use ringfence_container::init;
use ringfence_container::init::Interpreter;
use ringfence_container::runtime::Id;
use ringfence_container::spec::{
    Binds, Filter, Init, Log, Name, OciRuntime, ProcessLimit, Resources, Spec, Stdin, User,
};
use ringfence_container::warm::{self, Warm};
use ringfence_container::{ContainerRuntime, ContainerSupervisor, Containers, NewContainer};
use ringfence_exec::local::Connection;
use ringfence_policy::{Bytes, EngineKind, EnvName, Limits, NetworkMode};

use super::context::BenchContext;
use super::engine::python;
use super::process::milliseconds;

/// The command of the peers.
pub(super) const PRINT: [&str; 5] = ["python3", "-I", "-S", "-c", "print(1)"];

/// The smallest command, which prints nothing.
pub(super) const TRUE: [&str; 1] = ["/bin/true"];

/// Upper bound of any measurement.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An available container engine.
#[derive(Debug)]
pub(super) struct Dock {
    containers: Containers,
    pub(super) engine_kind: EngineKind,
}

impl Dock {
    /// Connects to the container engine and checks for the image.
    pub(super) async fn open(place: &BenchContext, engine_kind: EngineKind) -> anyhow::Result<Self> {
        let mut settings = place.machine.containers.clone();
        settings.init = place.directory("init");
        let dock = Self {
            containers: Containers::new(settings),
            engine_kind,
        };
        let image = dock.containers.settings().image.clone();
        dock.engine().await?.image(&image).await?;
        Ok(dock)
    }

    pub(super) async fn supervisor(&self) -> anyhow::Result<&ContainerSupervisor> {
        Ok(self.containers.supervisor(self.engine_kind).await?)
    }

    pub(super) async fn engine(&self) -> anyhow::Result<&ContainerRuntime> {
        Ok(self.supervisor().await?.engine())
    }

    /// Returns the address of the engine's API, in the form of `DOCKER_HOST`.
    pub(super) async fn address(&self) -> anyhow::Result<String> {
        Ok(match self.engine().await?.address() {
            Address::Unix(path) => format!("unix://{}", path.display()),
            Address::Loopback(address) => format!("tcp://{address}"),
        })
    }

    pub(super) fn image(&self) -> String {
        self.containers.settings().image.to_string()
    }

    /// Returns a container specification with the limits of a run and this command.
    pub(super) async fn spec(&self, command: &[&str], oci_runtime: OciRuntime) -> anyhow::Result<Spec> {
        let limits = Limits::DEFAULT;
        // gVisor keeps its process state within the container's memory.
        let memory = match oci_runtime {
            OciRuntime::Runsc => Bytes::mib(512),
            OciRuntime::Default | OciRuntime::Runc | OciRuntime::Crun => limits.memory,
        };
        let environment = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp")];
        let pair = |(name, value): (&str, &str)| anyhow::Ok((name.parse::<EnvName>()?, value.to_owned()));
        Ok(Spec {
            name: Name::unused(),
            image: self.containers.settings().image.clone(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            env: environment.into_iter().map(pair).collect::<Result<_, _>>()?,
            directory: "/tmp".to_owned(),
            user: self.user().await?,
            resources: Resources {
                memory,
                cpus: limits.cpus,
                pids: limits.pids,
                disk: limits.disk,
            },
            process_limit: ProcessLimit::User,
            network: NetworkMode::None,
            filter: Filter::named("standard")?,
            binds: Binds::default(),
            ledger: self.containers.settings().ledger.clone(),
            volumes: Vec::new(),
            oci_runtime,
            init: Init::Program,
            stdin: Stdin::Empty,
            log: Log::None,
            scope: "bench".to_owned(),
            owner: self.supervisor().await?.owner().clone(),
        })
    }

    async fn user(&self) -> anyhow::Result<User> {
        let rootless = self.supervisor().await?.info().rootless;
        let id = if rootless { 0 } else { 65_534 };
        Ok(User { uid: id, gid: id })
    }

    /// Starts a container with our init, ready for calls.
    pub(super) async fn warm(&self, oci_runtime: OciRuntime) -> anyhow::Result<Warm> {
        let spec = self.spec(&[], oci_runtime).await?;
        let new_container = NewContainer {
            spec: warm::with_init(spec, &self.containers.init_program()?, 1, Interpreter::Warm)?,
            max_duration: Duration::from_secs(600),
            attach: true,
            belongings: None,
        };
        Ok(warm::start(self.supervisor().await?, new_container, Interpreter::Warm).await?)
    }

    /// Makes the API calls of `docker run --rm`, until the container is removed; returns the duration in
    /// milliseconds. The command must print `expected`.
    pub(super) async fn run_by_api(&self, command: &[&str], expected: &str) -> anyhow::Result<f64> {
        let engine = self.engine().await?;
        let spec = self.spec(command, OciRuntime::Default).await?;
        let since = Instant::now();
        let id = engine.create(&spec).await?;
        let ran = async {
            let mut attached = engine.attach(&id).await?;
            engine.start(&id).await?;
            let mut printed = Vec::new();
            while let Some(chunk) = attached.output.next().await? {
                printed.extend(chunk.bytes);
            }
            anyhow::Ok((engine.wait(&id).await?, printed))
        };
        let ran = ran.await;
        engine.remove(&id).await?;
        let elapsed = milliseconds(since.elapsed());
        match ran? {
            (0, printed) if printed == expected.as_bytes() => Ok(elapsed),
            (status, _) => bail!("a container ended with {status}"),
        }
    }

    /// Does the API calls of `docker exec`. The command must print `expected`.
    pub(super) async fn exec_by_api(&self, id: &Id, command: &[&str], expected: &str) -> anyhow::Result<f64> {
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        let since = Instant::now();
        let late = tokio::time::sleep(TIMEOUT);
        let keep = Limits::DEFAULT.max_output;
        let result = self.engine().await?.run(id, &command, late, keep).await?;
        let elapsed = milliseconds(since.elapsed());
        if result.status != Some(0) || result.stdout.text != expected {
            bail!("a command in a container ended with {:?}", result.status);
        }
        Ok(elapsed)
    }

    /// Closes all containers.
    pub(super) async fn close(&self) {
        self.containers.close().await;
    }
}

/// Runs `print(1)` in a pre-started container.
pub(super) async fn call(warm: &Warm) -> anyhow::Result<f64> {
    let request = python("print(1)");
    let since = Instant::now();
    let start = init::start(&request, "/tmp", false)?;
    let keep = request.limits.max_output;
    let finished = warm.init().run(start, keep, Connection::none()).await;
    let elapsed = milliseconds(since.elapsed());
    let finished = finished.context("running a call")?;
    if finished.stdout.text != "1\n" {
        bail!(
            "a call gave {:?} instead of 1: {:?} {}",
            finished.stdout.text,
            finished.outcome,
            finished.stderr.text.trim()
        );
    }
    Ok(elapsed)
}
