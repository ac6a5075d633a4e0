//! The sandboxes that a person asked for, each in its scope until its time is up.

mod journal;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_jail::agent::frames::{Program, Start};
use ringfence_policy::{Bytes, Cpus, EgressPolicy, EnvName, Outcome, Pids, Scope, Timeout};
use serde::{Deserialize, Serialize};

use super::agent::{Interpreter, Parted};
use super::backend::{Containers, RunError};
use super::exchange::OUTPUT;
use super::keeper::Order;
use super::manager::{Manager, Sandbox};
use super::places;
use super::spec::{
    Binds, Filter, Image, Init, Log, Name, Network, OciRuntime, Resources, Spec, Stdin, Volume,
};
use super::streams::RunResult;
use super::warm::{self, Warm};
use super::{Error, Flavor};
use crate::egress::Outlet;
use crate::filter::STANDARD_TCP;
use crate::local::Connection;
use journal::Journal;
pub use journal::{Printed, SandboxLog};

/// How many a scope may have.
const MAX_SANDBOXES: usize = 64;
/// How many commands may run at once in one that may reach some hosts.
const COMMANDS: u32 = 32;

/// What a sandbox is asked to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSandbox {
    /// Its name, without the common beginning. `None`: one that nobody has.
    pub name: Option<String>,
    /// The container engine.
    pub engine: Flavor,
    /// What it is made of.
    pub image: String,
    /// The template that its limits are from.
    pub template: String,
    /// Memory.
    pub memory: Bytes,
    /// Cores' worth of processor time.
    pub cpus: Cpus,
    /// Processes and threads at once.
    pub pids: Pids,
    /// Bytes in `/tmp`, and in `/output`.
    pub disk: Bytes,
    /// How long it may live.
    pub max_duration_ms: u64,
    /// The filter of its system calls, by name.
    pub filter: String,
    /// What makes the container.
    pub oci_runtime: OciRuntime,
    /// The hosts that its commands may reach. None: it has no network.
    pub allowed_hosts: Vec<String>,
    /// Ranges of addresses that may be reached though they are not public.
    pub private_networks: Vec<String>,
}

/// What is told of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxInfo {
    /// Its name.
    pub name: String,
    /// The container engine.
    pub engine: Flavor,
    /// The template that its limits are from.
    pub template: String,
    /// Where it is in its life.
    pub state: String,
    /// Seconds since it was made.
    pub age_seconds: f64,
    /// Seconds until its time is up.
    pub left_seconds: f64,
}

/// A sandbox with what is told of it.
#[derive(Debug)]
struct Entry {
    sandbox: Arc<Sandbox>,
    reach: Option<Arc<Reach>>,
    journal: Arc<Journal>,
    engine: Flavor,
    template: String,
    since: Instant,
    max_duration: Duration,
}

/// A sandbox as one asks for it.
#[derive(Debug)]
struct Found {
    sandbox: Arc<Sandbox>,
    reach: Option<Arc<Reach>>,
    journal: Arc<Journal>,
}

/// What runs commands in a sandbox that may reach some hosts, and leads them there.
#[derive(Debug)]
struct Reach {
    warm: Warm,
    policy: EgressPolicy,
    environment: Vec<(EnvName, String)>,
}

/// The sandboxes of all scopes.
#[derive(Debug)]
pub struct Sandboxes {
    containers: Containers,
    all: Mutex<BTreeMap<(Scope, Name), Entry>>,
}

impl Sandboxes {
    /// None so far.
    pub fn new(containers: Containers) -> Self {
        Self {
            containers,
            all: Mutex::default(),
        }
    }

    /// Where their containers are made.
    pub fn containers(&self) -> &Containers {
        &self.containers
    }

    /// Removes what dead processes left in the container engines that are here.
    pub async fn sweep(&self) {
        for engine in [Flavor::Docker, Flavor::Podman] {
            // One that is not here has nothing of ours, and says so when it is asked for.
            let _ = self.containers.manager(engine).await;
        }
    }

    /// Makes one.
    ///
    /// # Errors
    /// If it cannot be made, or there are too many.
    pub async fn create(&self, scope: &Scope, new: NewSandbox) -> Result<SandboxInfo, RunError> {
        let manager = self.containers.manager(new.engine).await?;
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
            image: self.containers.pinned(new.engine, &image)?,
            command: vec!["sleep".to_owned(), "infinity".to_owned()],
            env: places::fixed(false),
            directory: "/tmp".to_owned(),
            user: places::user(&self.containers, manager),
            resources,
            network: Network::None,
            filter: Filter::named(&new.filter).map_err(RunError::Filter)?,
            binds: Binds::default(),
            oci_runtime: new.oci_runtime,
            init: Init::Engine,
            stdin: Stdin::Empty,
            log: Log::File,
            scope: scope.as_str().to_owned(),
            owner: manager.owner().clone(),
        };
        let order = Order {
            spec,
            max_duration,
            attach: false,
            belongings: None,
        };
        let (sandbox, reach) = match policy(&new)? {
            None => (Arc::new(manager.sandbox(order).await?.0), None),
            Some(policy) => {
                let reach = self.reach(manager, order, policy).await?;
                (reach.warm.shared(), Some(Arc::new(reach)))
            }
        };
        let entry = Entry {
            sandbox,
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

    /// Makes one whose commands may reach some hosts.
    async fn reach(&self, manager: &Manager, order: Order, policy: EgressPolicy) -> Result<Reach, RunError> {
        let image = manager.engine().image_environment(&order.spec.image).await?;
        let environment = places::with(image, &order.spec.env);
        let mut spec = order.spec;
        if !spec.filter.lets_fork() {
            return Err(RunError::ReachUnder(spec.filter.name().to_owned()));
        }
        if spec.filter.name() == "standard" {
            spec.filter = Filter::named(STANDARD_TCP).map_err(RunError::Filter)?;
        }
        let spec = warm::agented(
            spec,
            &self.containers.agent_program()?,
            (COMMANDS, Interpreter::None),
        )?;
        match warm::start(manager, Order { spec, ..order }, Interpreter::None).await {
            Ok(warm) => Ok(Reach {
                warm,
                policy,
                environment,
            }),
            Err(RunError::Parted(parted)) => Err(RunError::NoAgent(parted)),
            Err(error) => Err(error),
        }
    }

    /// Those of a scope, the oldest ones that have ended forgotten, and the containers that are kept for its calls.
    pub fn list(&self, scope: &Scope) -> Vec<SandboxInfo> {
        let all = self.entries();
        let own = all.iter().filter(|((owner, _), _)| owner == scope);
        let mut told: Vec<SandboxInfo> = own.map(|(_, entry)| entry.info()).collect();
        told.extend(self.containers.kept(scope));
        told
    }

    /// Pauses one.
    ///
    /// # Errors
    /// If there is none, or it does not run.
    pub async fn pause(&self, scope: &Scope, name: &str) -> Result<SandboxInfo, RunError> {
        let sandbox = self.find(scope, name)?.sandbox;
        sandbox.pause().await?;
        self.info(scope, name)
    }

    /// Lets one go on.
    ///
    /// # Errors
    /// If there is none, or it is not paused.
    pub async fn resume(&self, scope: &Scope, name: &str) -> Result<SandboxInfo, RunError> {
        let sandbox = self.find(scope, name)?.sandbox;
        sandbox.resume().await?;
        self.info(scope, name)
    }

    /// Runs a command in one, for at most `timeout`.
    ///
    /// # Errors
    /// If there is none, or the command could not be run.
    pub async fn run(
        &self,
        (scope, name): (&Scope, &str),
        command: &[String],
        timeout: Timeout,
        keep: Bytes,
    ) -> Result<RunResult, RunError> {
        let found = self.find(scope, name)?;
        let ran = match found.reach {
            Some(reach) => {
                let outlet = Outlet::new(&reach.policy, &self.containers.settings().egress);
                reach.run(command, timeout, keep, &outlet).await?
            }
            None => {
                let deadline = tokio::time::Instant::now() + timeout.as_duration();
                found.sandbox.run(command, deadline, keep).await?
            }
        };
        found.journal.add(&ran.stdout.text, &ran.stderr.text);
        Ok(ran)
    }

    /// What commands have printed in one, from the piece `after` on; if `patience` is given, what they print until then, where
    /// there is nothing yet.
    ///
    /// # Errors
    /// If there is none.
    pub async fn printed(
        &self,
        (scope, name): (&Scope, &str),
        after: u64,
        patience: Duration,
    ) -> Result<SandboxLog, RunError> {
        let Found { sandbox, journal, .. } = self.find(scope, name)?;
        let ended = async { drop(sandbox.ended().await) };
        tokio::select! {
            () = journal.longer_than(after) => {}
            () = ended => {}
            () = tokio::time::sleep(patience) => {}
        }
        // Looked up first: what is printed last is printed before the end.
        let ended = !sandbox.life().state.is_alive();
        let (printed, next) = journal.after(after);
        Ok(SandboxLog { printed, next, ended })
    }

    /// Ends one and waits until nothing is left of it.
    ///
    /// # Errors
    /// If there is none.
    pub async fn remove(&self, scope: &Scope, name: &str) -> Result<(), RunError> {
        let key = key(scope, name)?;
        let entry = self.entries().remove(&key);
        match entry {
            Some(entry) => drop(entry.sandbox.stop().await),
            None if self.containers.end_kept(scope, &key.1).await => {}
            None => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Ends all, and waits until nothing is left.
    pub async fn close(self) {
        drop(self.all);
        self.containers.close().await;
    }

    /// Those that have ended are forgotten before one that lives is refused.
    fn make_room(&self, scope: &Scope) -> Result<(), RunError> {
        let mut all = self.entries();
        let count =
            |all: &BTreeMap<(Scope, Name), Entry>| all.keys().filter(|(owner, _)| owner == scope).count();
        if count(&all) >= MAX_SANDBOXES {
            all.retain(|(owner, _), entry| owner != scope || entry.sandbox.life().state.is_alive());
        }
        if count(&all) >= MAX_SANDBOXES {
            return Err(RunError::TooMany(MAX_SANDBOXES));
        }
        Ok(())
    }

    fn find(&self, scope: &Scope, name: &str) -> Result<Found, RunError> {
        let key = key(scope, name)?;
        let found = self.entries().get(&key).map(|entry| Found {
            sandbox: Arc::clone(&entry.sandbox),
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

    /// One that has been gone for a while is forgotten.
    fn entries(&self) -> MutexGuard<'_, BTreeMap<(Scope, Name), Entry>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, entry| !entry.is_stale());
        all
    }
}

impl Reach {
    /// Runs a command, which alone is ended at its deadline.
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
            program: Program::Command(program.clone()),
            arguments: arguments.to_vec(),
            environment: environment
                .map(|(name, value)| (name.as_str().to_owned(), value.clone()))
                .collect(),
            directory: "/tmp".to_owned(),
            input: false,
            timeout: timeout.as_duration(),
            proxy: Vec::new(),
            bridge: false,
        };
        let agent = self.warm.agent();
        let finished = agent
            .run_through(start, keep, Connection::none(), Some(outlet))
            .await?;
        let status = match finished.outcome {
            Outcome::TimedOut => None,
            // Of a command that nothing is known of, there is no status to tell.
            Outcome::Unknown => return Err(RunError::Parted(Parted::Gone)),
            // As shells tell of signals.
            _ if finished.exit_code < 0 => Some(128 - i64::from(finished.exit_code)),
            _ => Some(finished.exit_code.into()),
        };
        Ok(RunResult {
            status,
            stdout: finished.stdout,
            stderr: finished.stderr,
            egress: Some(outlet.facts()),
            sandbox_ended: false,
        })
    }
}

/// What commands may reach; nothing where no host is named.
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

/// How long one that has ended is still told of.
const REMEMBERED: Duration = Duration::from_secs(600);

impl Entry {
    fn info(&self) -> SandboxInfo {
        let age = self.since.elapsed();
        SandboxInfo {
            name: self.sandbox.name().as_str().to_owned(),
            engine: self.engine,
            template: self.template.clone(),
            state: self.sandbox.life().state.to_string(),
            age_seconds: age.as_secs_f64(),
            left_seconds: self.max_duration.saturating_sub(age).as_secs_f64(),
        }
    }

    fn is_stale(&self) -> bool {
        !self.sandbox.life().state.is_alive() && self.since.elapsed() > self.max_duration + REMEMBERED
    }
}

fn key(scope: &Scope, name: &str) -> Result<(Scope, Name), RunError> {
    Ok((scope.clone(), name.parse().map_err(RunError::Name)?))
}

fn unknown(name: &str) -> RunError {
    RunError::Engine(Error::NotFound {
        doing: "find the sandbox",
        what: format!("sandbox `{name}` in the engine"),
    })
}
