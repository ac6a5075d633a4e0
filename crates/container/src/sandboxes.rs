//! Manages named sandboxes that a person created, each in its scope with a limited lifetime.

pub(crate) mod info;
mod journal;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_exec::filter::STANDARD_TCP;
use ringfence_exec::local::Connection;
use ringfence_jail::init::frames::{Program, Start};
use ringfence_network::egress::Outlet;
use ringfence_policy::{
    Bytes, Cpus, EgressPolicy, EngineKind, EnvName, NetworkMode, Outcome, Pids, Scope, Timeout,
};
use serde::{Deserialize, Serialize};

use super::backend::Containers;
use super::error::Error;
use super::guest_paths::OUTPUT;
use super::init::{InitLost, Interpreter};
use super::layout;
use super::mounts;
use super::run_error::RunError;
use super::spec::name::PREFIX;
use super::spec::{
    Binds, Filter, Image, Init, Log, Name, OciRuntime, ProcessLimit, Resources, Spec, Stdin, Volume,
};
use super::state::State;
use super::streams::RunResult;
use super::supervisor::{Container, ContainerSupervisor};
use super::task::NewContainer;
use super::warm::{self, Warm};
pub use info::SandboxInfo;
use journal::Journal;
pub use journal::{LogChunk, SandboxLog};

/// Limit of sandboxes per scope.
const MAX_SANDBOXES: usize = 64;
/// Limit of concurrent commands in a sandbox with allowed hosts.
const COMMANDS: u32 = 32;

/// A request to create a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSandbox {
    /// Name, without the common prefix; generated if `None`.
    pub name: Option<String>,
    pub engine: EngineKind,
    pub image: String,
    /// Name of the template that its limits come from.
    pub template: String,
    pub memory: Bytes,
    /// Processor time, in cores.
    pub cpus: Cpus,
    /// Limit of processes and threads.
    pub pids: Pids,
    /// Size limit of `/tmp`, and of `/output`.
    pub disk: Bytes,
    /// Maximum lifetime in milliseconds.
    pub max_duration_ms: u64,
    /// Name of the seccomp filter.
    pub filter: String,
    pub oci_runtime: OciRuntime,
    /// Hosts that the sandbox's commands may reach; without any, it has no network.
    pub allowed_hosts: Vec<String>,
    /// Address ranges that are not public but may be reached.
    pub private_networks: Vec<String>,
}

/// A sandbox with its metadata.
#[derive(Debug)]
struct Entry {
    container: Arc<Container>,
    reach: Option<Arc<Reach>>,
    journal: Arc<Journal>,
    engine: EngineKind,
    template: String,
    since: Instant,
    max_duration: Duration,
}

/// The result of a look-up.
#[derive(Debug)]
struct FoundSandbox {
    container: Arc<Container>,
    reach: Option<Arc<Reach>>,
    journal: Arc<Journal>,
}

/// The command runner of a sandbox with allowed hosts.
#[derive(Debug)]
struct Reach {
    warm: Warm,
    policy: EgressPolicy,
    environment: Vec<(EnvName, String)>,
}

/// The sandboxes of all scopes.
#[derive(Debug)]
pub struct Sandboxes {
    containers: Arc<Containers>,
    all: Mutex<BTreeMap<(Scope, Name), Entry>>,
}

/// A command for a sandbox.
#[derive(Debug, Clone, Copy)]
pub struct SandboxCommand<'a> {
    pub words: &'a [String],
    pub timeout: Timeout,
    /// Bytes kept of each of its output streams.
    pub keep: Bytes,
}

impl Sandboxes {
    pub fn new(containers: Arc<Containers>) -> Self {
        Self {
            containers,
            all: Mutex::default(),
        }
    }

    /// Removes orphans of dead processes from all available engines.
    pub async fn sweep(&self) {
        for engine in [EngineKind::Docker, EngineKind::Podman] {
            // An engine that is not available has nothing of ours; using it fails later.
            let _ = self.containers.supervisor(engine).await;
        }
    }

    /// Creates a sandbox.
    ///
    /// # Errors
    /// If it cannot be created, or the limit is reached.
    pub async fn create(&self, scope: &Scope, new: NewSandbox) -> Result<SandboxInfo, RunError> {
        let supervisor = self.containers.supervisor(new.engine).await?;
        let name = match &new.name {
            Some(name) => name.parse().map_err(RunError::Name)?,
            None => Name::unused(),
        };
        self.make_room(scope)?;
        let image: Image = new.image.parse().map_err(RunError::Image)?;
        let max_duration = Duration::from_millis(new.max_duration_ms).min(Timeout::MAX);
        let resources = Resources {
            memory: new.memory,
            cpus: new.cpus,
            pids: new.pids,
            disk: new.disk,
        };
        let spec = Spec {
            volumes: vec![Volume {
                name: name.clone(),
                places: vec![PathBuf::from(OUTPUT)],
                size: resources.volume(),
            }],
            name: name.clone(),
            image: self.containers.settings().pinned(new.engine, &image)?,
            command: vec!["sleep".to_owned(), "infinity".to_owned()],
            env: layout::fixed(false),
            directory: "/tmp".to_owned(),
            user: mounts::user(self.containers.settings(), supervisor),
            resources,
            process_limit: ProcessLimit::User,
            network: NetworkMode::None,
            filter: Filter::named(&new.filter).map_err(RunError::Filter)?,
            binds: Binds::default(),
            ledger: self.containers.settings().ledger.clone(),
            oci_runtime: new.oci_runtime,
            init: Init::Engine,
            stdin: Stdin::Empty,
            log: Log::File,
            scope: scope.as_str().to_owned(),
            owner: supervisor.owner().clone(),
        };
        let new_container = NewContainer {
            spec: self.containers.settings().with_hosts_files(spec)?,
            max_duration,
            attach: false,
            belongings: None,
        };
        let (container, reach) = match policy(&new)? {
            None => (Arc::new(supervisor.create(new_container).await?.0), None),
            Some(policy) => {
                let reach = self.reach(supervisor, new_container, policy).await?;
                (reach.warm.shared(), Some(Arc::new(reach)))
            }
        };
        let entry = Entry {
            container,
            reach,
            journal: Arc::default(),
            engine: new.engine,
            template: new.template,
            since: Instant::now(),
            max_duration,
        };
        let info = entry.info();
        self.entries().insert((scope.clone(), name), entry);
        Ok(info)
    }

    /// Creates a sandbox with allowed hosts.
    async fn reach(
        &self,
        supervisor: &ContainerSupervisor,
        new_container: NewContainer,
        policy: EgressPolicy,
    ) -> Result<Reach, RunError> {
        let image = supervisor
            .engine()
            .image_environment(&new_container.spec.image)
            .await?;
        let environment = layout::with(image, &new_container.spec.env);
        let mut spec = new_container.spec;
        if !spec.filter.lets_fork() {
            return Err(RunError::ReachUnder(spec.filter.name().to_owned()));
        }
        if spec.filter.name() == "standard" {
            spec.filter = Filter::named(STANDARD_TCP).map_err(RunError::Filter)?;
        }
        let spec = warm::with_init(
            spec,
            &self.containers.init_program()?,
            COMMANDS,
            Interpreter::None,
        )?;
        match warm::start(
            supervisor,
            NewContainer {
                spec,
                ..new_container
            },
            Interpreter::None,
        )
        .await
        {
            Ok(warm) => Ok(Reach {
                warm,
                policy,
                environment,
            }),
            Err(RunError::InitLost(parted)) => Err(RunError::NoAgent(parted)),
            Err(error) => Err(error),
        }
    }

    /// Lists a scope's sandboxes, including recently ended ones, and its reused containers.
    pub fn list(&self, scope: &Scope) -> Vec<SandboxInfo> {
        let own = self.select(Some(scope)).into_iter();
        own.map(|(_, info)| info).collect()
    }

    /// Lists the sandboxes of all scopes, as [`Self::list`] does, each with its scope.
    pub fn list_all(&self) -> Vec<(Scope, SandboxInfo)> {
        self.select(None)
    }

    fn select(&self, scope: Option<&Scope>) -> Vec<(Scope, SandboxInfo)> {
        let all = self.entries();
        let listed = all
            .iter()
            .filter(|((of, _), _)| scope.is_none_or(|scope| of == scope));
        let mut listed: Vec<_> = listed
            .map(|((of, _), entry)| (of.clone(), entry.info()))
            .collect();
        listed.extend(self.containers.kept(scope));
        listed
    }

    /// Pauses a sandbox.
    ///
    /// # Errors
    /// If it does not exist, or is not running.
    pub async fn pause(&self, scope: &Scope, name: &str) -> Result<SandboxInfo, RunError> {
        let container = self.find(scope, name)?.container;
        container.pause().await?;
        self.info(scope, name)
    }

    /// Resumes a sandbox.
    ///
    /// # Errors
    /// If it does not exist, or is not paused.
    pub async fn resume(&self, scope: &Scope, name: &str) -> Result<SandboxInfo, RunError> {
        let container = self.find(scope, name)?.container;
        container.resume().await?;
        self.info(scope, name)
    }

    /// Runs a command in a sandbox.
    ///
    /// # Errors
    /// If the sandbox does not exist, or the command could not be run.
    pub async fn run(
        &self,
        scope: &Scope,
        name: &str,
        command: SandboxCommand<'_>,
    ) -> Result<RunResult, RunError> {
        let SandboxCommand { words, timeout, keep } = command;
        let found = self.find(scope, name)?;
        if matches!(found.container.life().state, State::Paused) {
            return Err(RunError::Paused(chosen(name).to_owned()));
        }
        let ran = match found.reach {
            Some(reach) => {
                let outlet = Outlet::new(&reach.policy, &self.containers.settings().egress);
                reach.run(words, timeout, keep, &outlet).await?
            }
            None => {
                let late = tokio::time::sleep(timeout.as_duration());
                found.container.run(words, late, keep).await?
            }
        };
        found.journal.add(&ran.stdout.text, &ran.stderr.text);
        Ok(ran)
    }

    /// Returns the output of a sandbox's commands from chunk number `after` on. If there is none yet, waits
    /// for at most `patience`.
    ///
    /// # Errors
    /// If the sandbox does not exist.
    pub async fn printed(
        &self,
        scope: &Scope,
        name: &str,
        after: u64,
        patience: Duration,
    ) -> Result<SandboxLog, RunError> {
        let FoundSandbox {
            container, journal, ..
        } = self.find(scope, name)?;
        let ended = async { drop(container.ended().await) };
        tokio::select! {
            () = journal.longer_than(after) => {}
            () = ended => {}
            () = tokio::time::sleep(patience) => {}
        }
        // Read before the log: the last output precedes the end.
        let ended = !container.life().state.is_alive();
        let (printed, next) = journal.after(after);
        Ok(SandboxLog { printed, next, ended })
    }

    /// Ends a sandbox and waits for its removal.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn remove(&self, scope: &Scope, name: &str) -> Result<(), RunError> {
        let key = key(scope, name)?;
        let entry = self.entries().remove(&key);
        match entry {
            Some(entry) => drop(entry.container.stop().await),
            None if self.containers.end_kept(scope, &key.1).await => {}
            None => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Ends all sandboxes. Closing the containers waits for their removal.
    pub fn end(&self) {
        self.entries().clear();
    }

    /// Checks the limit of a scope. Drops ended entries before rejecting a new one.
    fn make_room(&self, scope: &Scope) -> Result<(), RunError> {
        let mut all = self.entries();
        let count =
            |all: &BTreeMap<(Scope, Name), Entry>| all.keys().filter(|(owner, _)| owner == scope).count();
        if count(&all) >= MAX_SANDBOXES {
            all.retain(|(owner, _), entry| owner != scope || entry.container.life().state.is_alive());
        }
        if count(&all) >= MAX_SANDBOXES {
            return Err(RunError::TooMany(MAX_SANDBOXES));
        }
        Ok(())
    }

    fn find(&self, scope: &Scope, name: &str) -> Result<FoundSandbox, RunError> {
        let key = key(scope, name)?;
        let found = self.entries().get(&key).map(|entry| FoundSandbox {
            container: Arc::clone(&entry.container),
            reach: entry.reach.clone(),
            journal: Arc::clone(&entry.journal),
        });
        found.ok_or_else(|| match self.containers.keeps(scope, &key.1) {
            true => RunError::KeptForCalls(key.1.to_string()),
            false => unknown(name),
        })
    }

    fn info(&self, scope: &Scope, name: &str) -> Result<SandboxInfo, RunError> {
        let key = key(scope, name)?;
        self.entries()
            .get(&key)
            .map(Entry::info)
            .ok_or_else(|| unknown(name))
    }

    /// Locks the registry, after dropping entries that ended long ago.
    fn entries(&self) -> MutexGuard<'_, BTreeMap<(Scope, Name), Entry>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, entry| !entry.is_stale());
        all
    }
}

impl Reach {
    /// Runs a command; a timeout kills only the command.
    async fn run(
        &self,
        command: &[String],
        timeout: Timeout,
        keep: Bytes,
        outlet: &Outlet,
    ) -> Result<RunResult, RunError> {
        let (program, arguments) = command.split_first().ok_or(RunError::NoProgram)?;
        let environment = self.environment.iter();
        let start = Start {
            arguments: arguments.to_vec(),
            environment: environment
                .map(|(name, value)| (name.as_str().to_owned(), value.clone()))
                .collect(),
            ..Start::new(Program::Command(program.clone()), "/tmp", timeout.as_duration())
        };
        let init = self.warm.init();
        let finished = init
            .run_through(start, keep, Connection::none(), Some(outlet))
            .await?;
        let status = match finished.outcome {
            Outcome::TimedOut => None,
            // A command with an unknown outcome has no status to report.
            Outcome::Unknown => return Err(RunError::InitLost(InitLost::Gone)),
            Outcome::Exited
            | Outcome::Signalled
            | Outcome::MemoryExceeded
            | Outcome::Blocked
            | Outcome::Cancelled => Some(match finished.exit_code {
                // A signal, encoded as a shell does.
                ..0 => 128 - i64::from(finished.exit_code),
                0.. => finished.exit_code.into(),
            }),
        };
        Ok(RunResult {
            status,
            stdout: finished.stdout,
            stderr: finished.stderr,
            egress: Some(outlet.facts()),
            container_ended: false,
        })
    }
}

/// Returns the egress policy; `None` if no host is allowed.
fn policy(new: &NewSandbox) -> Result<Option<EgressPolicy>, RunError> {
    fn parsed<T: FromStr<Err: std::error::Error>>(texts: &[String]) -> Result<Vec<T>, RunError> {
        let parse = |text: &String| {
            text.parse::<T>()
                .map_err(|error| RunError::Reach(error.to_string()))
        };
        texts.iter().map(parse).collect()
    }
    if new.allowed_hosts.is_empty() {
        return Ok(None);
    }
    Ok(Some(EgressPolicy {
        allowed: parsed(&new.allowed_hosts)?,
        private_networks: parsed(&new.private_networks)?,
    }))
}

/// Time for which an ended sandbox stays listed.
const REMEMBERED: Duration = Duration::from_secs(600);

impl Entry {
    fn info(&self) -> SandboxInfo {
        let age = self.since.elapsed();
        SandboxInfo {
            name: self.container.name().as_str().to_owned(),
            engine: self.engine,
            template: self.template.clone(),
            state: self.container.life().state.to_string(),
            age_seconds: age.as_secs_f64(),
            left_seconds: self.max_duration.saturating_sub(age).as_secs_f64(),
        }
    }

    fn is_stale(&self) -> bool {
        !self.container.life().state.is_alive() && self.since.elapsed() > self.max_duration + REMEMBERED
    }
}

fn key(scope: &Scope, name: &str) -> Result<(Scope, Name), RunError> {
    Ok((scope.clone(), name.parse().map_err(RunError::Name)?))
}

/// Returns a sandbox's name as a user chose it.
fn chosen(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

fn unknown(name: &str) -> RunError {
    RunError::Engine(Error::NotFound {
        doing: "find the sandbox",
        what: format!("sandbox `{}` in the server", chosen(name)),
    })
}
