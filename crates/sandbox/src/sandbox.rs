//! A sandbox and its operations.

mod interpreters;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ringfence_container::init::InitClient;
use ringfence_exec::bridge::{MessageStream, bridge};
use ringfence_exec::local::PauseError;
use ringfence_jail::init::frames::{Program, Start};
use ringfence_packages::Ecosystem;
use ringfence_policy::timestamp::rfc3339;
use ringfence_policy::{Account, Bytes, EgressPolicy, Network};
use tokio::io::DuplexStream;
use tokio::sync::{RwLockReadGuard, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::context::{BRIDGE, Contexts};
use super::error::Error;
use super::id::{SandboxId, SandboxName};
use super::kept_output::KeptOutput;
use super::lock::lock;
use super::meter::{Consumption, Meter};
use super::output::{self, Collected};
use super::pause::Pauses;
use super::place::{MemoryKills, Place};
use super::process::{CommandLine, Described, FOR_EVER, NewProcess, Process, ProcessEnd, ProcessInfo, Stdin};
use super::spec::{NewSandbox, PausedProcesses, Resources, SandboxInfo, SandboxState};

pub use interpreters::ContextChoice;

/// Ended processes whose output is kept.
const ENDED: usize = 16;
/// Processes of a sandbox that run at a time: some calls are left for contexts and file operations.
const RUNNING: usize = ringfence_container::init::AT_ONCE - 8;

/// Maximum number of connections to the ports of a sandbox at a time: the other calls are for processes and file operations.
pub const MAX_CONNECTIONS: usize = ringfence_container::init::AT_ONCE / 2;
/// Smallest memory limit of a sandbox whose packages are imported before anybody asks for it.
const PRELOADING: Bytes = Bytes::mib(256);
/// Time for killed processes to be gone.
const ENDING: Duration = Duration::from_secs(5);
/// The variable that has the type of a terminal: term(7).
const TERM: &str = "TERM";
/// The type that a terminal has unless the client or the sandbox says another: terminals of today understand it.
const TERMINAL_TYPE: &str = "xterm-256color";

/// The place of a sandbox; `None` once it has ended.
pub(crate) type SharedPlace = Arc<Mutex<Option<Place>>>;

/// A running or paused sandbox.
#[derive(Debug)]
pub struct Sandbox {
    id: SandboxId,
    new: NewSandbox,
    /// Policy of its network, which may have been replaced since its creation.
    pub(crate) egress: Mutex<Option<EgressPolicy>>,
    created: SystemTime,
    init: InitClient,
    place: SharedPlace,
    processes: Arc<Processes>,
    pub(crate) contexts: Contexts,
    /// Permits for connections to its ports.
    pub(crate) connections: Arc<Semaphore>,
    /// Held while a default context is created.
    creating: tokio::sync::Mutex<()>,
    pauses: Pauses,
    meter: Mutex<Meter>,
    /// Set if the last pause has ended the sandbox's processes.
    is_emptied: AtomicBool,
    /// Set if the sandbox's expiry has paused it.
    pub(crate) paused_by_expiry: AtomicBool,
    /// Counters of the output that its processes keep.
    kept: KeptOutput,
    /// Time of the sandbox's expiry.
    expiry: watch::Sender<SystemTime>,
}

/// The processes of a sandbox that were started through the server.
#[derive(Debug, Default)]
struct Processes {
    all: Mutex<BTreeMap<u64, Arc<Process>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Sandbox {
    pub(crate) fn new(
        id: SandboxId,
        new: NewSandbox,
        place: Place,
        expires: SystemTime,
        kept: KeptOutput,
    ) -> Self {
        Self {
            init: place.init().clone(),
            contexts: Contexts::new(place.python().to_owned(), new.user.clone()),
            pauses: Pauses::new(place.freezer()),
            place: Arc::new(Mutex::new(Some(place))),
            egress: Mutex::new(new.egress.clone()),
            id,
            new,
            created: SystemTime::now(),
            processes: Arc::default(),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            creating: tokio::sync::Mutex::default(),
            meter: Mutex::new(Meter::new()),
            is_emptied: AtomicBool::new(false),
            paused_by_expiry: AtomicBool::new(false),
            kept,
            expiry: watch::Sender::new(expires),
        }
    }

    pub const fn id(&self) -> &SandboxId {
        &self.id
    }

    /// Returns the size of all its files together.
    pub const fn disk(&self) -> Bytes {
        self.new.limits.disk
    }

    /// Returns the default working directory of programs and interpreters.
    pub fn working_directory(&self) -> &str {
        let own = self.new.directory.as_deref();
        let home = || self.new.account.workspace_alias();
        own.or_else(home).unwrap_or("/workspace")
    }

    /// Returns the sandbox's name, or its id if it has none.
    fn name_or_id(&self) -> &str {
        let name = self.new.name.as_ref();
        name.map_or_else(|| self.id.as_str(), SandboxName::as_str)
    }

    /// Returns the account of the sandbox's programs.
    pub const fn account(&self) -> Account {
        self.new.account
    }

    /// Returns the default user of programs, if it differs from the sandbox's own.
    pub fn default_user(&self) -> Option<&str> {
        self.new.user.as_deref()
    }

    /// Returns the request that it was made by. Its hosts may have been changed since.
    pub(crate) const fn request(&self) -> &NewSandbox {
        &self.new
    }

    pub(crate) fn expiry(&self) -> watch::Receiver<SystemTime> {
        self.expiry.subscribe()
    }

    pub(crate) fn expire_at(&self, time: SystemTime) {
        self.expiry.send_replace(time);
    }

    /// Returns the time since its creation.
    pub fn age(&self) -> Duration {
        self.created.elapsed().unwrap_or_default()
    }

    pub(crate) const fn created(&self) -> SystemTime {
        self.created
    }

    /// Imports the sandbox's packages in advance, for its first Python context. Packages are untrusted code:
    /// they reach no host before the owner's own code runs.
    pub(crate) async fn preload_packages(&self) {
        let is_roomy = self.new.limits.memory >= PRELOADING;
        let has_packages = self.new.packages.of(Ecosystem::Python).is_some();
        if has_packages && self.new.network() == Network::None && is_roomy {
            let directory = self.working_directory().to_owned();
            self.contexts.preload(&self.init, directory).await;
        }
    }

    /// Stops relaying the output of all processes, and ends the streams of its readers.
    pub(crate) fn end_processes(&self) {
        self.contexts.clear();
        lock(&self.processes.tasks).abort_all();
        for process in lock(&self.processes.all).values() {
            process.output.end(ProcessEnd::unknown("the sandbox has ended"));
        }
    }

    /// Returns a description.
    pub fn info(&self) -> SandboxInfo {
        let resources = self.of_place(Place::resources).unwrap_or_default();
        let egress = lock(&self.egress).clone();
        let image = self.new.image.as_ref().map(|image| image.name());
        SandboxInfo {
            id: self.id.clone(),
            name: self.new.name.clone(),
            runtime: self.new.runtime,
            state: self.state(),
            fence: self.new.fence(),
            image: match &image {
                Some(image) => image.reference.clone(),
                None => self.of_place(Place::image).unwrap_or_default(),
            },
            image_digest: image.map(|image| image.digest),
            created_at: rfc3339(self.created),
            expires_at: rfc3339(*self.expiry.borrow()),
            on_expiry: self.new.on_expiry,
            metadata: self.new.metadata.clone(),
            resources,
            allowed_hosts: egress
                .iter()
                .flat_map(|policy| &policy.allowed)
                .map(ToString::to_string)
                .collect(),
            ports: self.new.ports,
            isolation: self.of_place(Place::isolation),
            processes: self.processes.running(),
            contexts: self.contexts.count(),
            packages: self.new.packages.names(),
            warnings: self
                .of_place(Place::warnings)
                .unwrap_or_default()
                .into_iter()
                .chain(self.new.packages.warnings.clone())
                .collect(),
        }
    }

    /// Returns a description with its resource usage, which engines of containers take some time to measure.
    pub async fn measured_info(&self) -> SandboxInfo {
        let measuring = self.of_place(Place::measure).flatten();
        let mut info = self.info();
        if let Some(measuring) = measuring
            && let Some(used) = measuring.await
        {
            info.resources = Resources {
                memory_bytes: used.memory_bytes,
                peak_memory_bytes: used.memory_peak_bytes,
                cpu_seconds: used.cpu_seconds,
                pids: used.pids,
                ..info.resources
            };
        }
        info
    }

    /// Returns the sandbox's usage since the last call, without asking a container engine.
    pub(crate) fn consumed(&self) -> Consumption {
        let now = self.of_place(Place::resources).unwrap_or_default();
        self.read_meter(now.cpu_seconds, now.memory_bytes)
    }

    /// Like [`Sandbox::consumed`], but asks the engine of a container.
    pub(crate) async fn consumed_in_container(&self) -> Consumption {
        let Some(measuring) = self.of_place(Place::measure).flatten() else {
            return self.consumed();
        };
        match measuring.await {
            Some(used) => self.read_meter(used.cpu_seconds, used.memory_bytes),
            // The bytes to and from hosts are counted here.
            None => self.read_meter(None, None),
        }
    }

    fn read_meter(&self, cpu_seconds: Option<f64>, memory_bytes: Option<u64>) -> Consumption {
        let egress = self.of_place(Place::egress_bytes);
        let mut meter = lock(&self.meter);
        Consumption {
            egress_bytes: egress.map_or(0, |now| meter.read_egress(now)),
            ..meter.read(cpu_seconds, memory_bytes)
        }
    }

    pub(crate) const fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// Stops all processes of the sandbox: they use no processor until it is resumed, and keep their memory, unless they are ended.
    /// Running calls and their time limits are suspended; the sandbox's own expiry is not. Has no effect on a
    /// paused sandbox: `false`.
    ///
    /// # Errors
    /// If this machine has no freezer, processes do not stop or end in time (those that have not ended continue then), or the
    /// sandbox has ended.
    pub async fn pause(&self, processes: PausedProcesses) -> Result<bool, Error> {
        let ending = async {
            if processes == PausedProcesses::Ended {
                self.end_programs().await?;
            }
            self.is_emptied
                .store(processes == PausedProcesses::Ended, Ordering::Release);
            Ok(())
        };
        self.pauses.pause(ending).await
    }

    /// Ends all processes of the sandbox, also those that its processes have left, and its contexts.
    ///
    /// # Errors
    /// If they do not end in time, or the sandbox has ended.
    pub async fn end_programs(&self) -> Result<(), Error> {
        self.contexts.clear();
        match timeout(ENDING, self.init.end_all()).await {
            Ok(ended) => ended.map_err(|lost| Error::Broken(lost.to_string())),
            Err(_) => Err(Error::CannotPause(PauseError::Unstoppable)),
        }
    }

    /// Returns `true` if it is paused, and the pause has ended its processes.
    pub fn is_emptied(&self) -> bool {
        self.state() == SandboxState::Paused && self.is_emptied.load(Ordering::Acquire)
    }

    /// Resumes the sandbox's processes. Has no effect unless the sandbox is paused: `false`.
    ///
    /// # Errors
    /// If the sandbox has ended.
    pub async fn resume(&self) -> Result<bool, Error> {
        self.pauses.resume().await
    }

    pub fn state(&self) -> SandboxState {
        self.pauses.state()
    }

    /// Returns a receiver of the sandbox's state.
    pub fn watch_state(&self) -> watch::Receiver<SandboxState> {
        self.pauses.watch()
    }

    /// Checks that the sandbox is not paused.
    ///
    /// # Errors
    /// If it is paused.
    pub fn check_running(&self) -> Result<(), Error> {
        match self.state() {
            SandboxState::Running => Ok(()),
            SandboxState::Paused => Err(Error::Paused(self.name_or_id().to_owned())),
        }
    }

    /// Like [`Self::check_running`]; it is not paused before the answer is dropped, or a time has passed.
    pub(crate) async fn starting(&self) -> Result<RwLockReadGuard<'_, ()>, Error> {
        let starting = self.pauses.starting().await;
        self.check_running()?;
        Ok(starting)
    }

    pub(crate) const fn init(&self) -> &InitClient {
        &self.init
    }

    /// Counts the kills for lack of memory from now on.
    pub(crate) fn memory_kills(&self) -> MemoryKills {
        MemoryKills::since_now(&self.place)
    }

    pub(crate) fn of_place<T>(&self, read: impl FnOnce(&Place) -> T) -> Option<T> {
        lock(&self.place).as_ref().map(read)
    }

    /// Takes the cell or container out of the sandbox, for the caller to close it.
    pub(crate) fn take_place(&self) -> Option<Place> {
        lock(&self.place).take()
    }

    /// Starts a process, which runs on until it ends, is killed, or the sandbox ends.
    ///
    /// # Errors
    /// If it cannot be started, or too many run.
    pub async fn start(&self, new: NewProcess) -> Result<Arc<Process>, Error> {
        self.start_on(new, None).await
    }

    /// Like [`Sandbox::start`], with a bridge: the process has its end as descriptor 3, the server this stream.
    ///
    /// # Errors
    /// As [`Sandbox::start`].
    pub async fn start_with_bridge(&self, new: NewProcess) -> Result<(Arc<Process>, MessageStream), Error> {
        let (messages, channel) = bridge();
        let (ours, theirs) = tokio::io::duplex(BRIDGE);
        let process = self.start_on(new, Some(theirs)).await?;
        self.processes.spawn(channel.carry(ours));
        Ok((process, messages))
    }

    async fn start_on(&self, new: NewProcess, bridge: Option<DuplexStream>) -> Result<Arc<Process>, Error> {
        let _starting = self.starting().await?;
        if self.processes.running() >= RUNNING {
            return Err(Error::Full {
                what: "processes at a time",
                most: RUNNING,
            });
        }
        new.check()?;
        let command = new.command.shown();
        let described = Described {
            command,
            cwd: new
                .cwd
                .clone()
                .unwrap_or_else(|| self.working_directory().to_owned()),
            terminal: new.terminal.is_some(),
            stdin: new.stdin,
        };
        let limit = new
            .timeout
            .map(|timeout| self.pauses.clock().alarm(timeout.as_duration()));
        let user = self.other_user(new.user.or_else(|| self.new.user.clone()))?;
        let (program, arguments) = self.program(new.command)?;
        let mut environment: Vec<(String, String)> = new.env.into_iter().collect();
        let has_type = environment.iter().any(|(name, _)| name == TERM)
            || self.new.env.iter().any(|(name, _)| name.as_str() == TERM);
        if new.terminal.is_some() && !has_type {
            environment.push((TERM.to_owned(), TERMINAL_TYPE.to_owned()));
        }
        let start = Start {
            user: user.clone(),
            arguments,
            environment,
            input: new.stdin == Stdin::Open,
            terminal: new.terminal,
            ..Start::new(
                Program::Command(program.clone()),
                described.cwd.clone(),
                // The server keeps its time limit, which stands still in a pause.
                FOR_EVER,
            )
        };
        let running = self.init.start(start, bridge).await;
        let running =
            running.map_err(|error| Error::not_started(error, program, &described.cwd, user.as_deref()))?;
        let (process, pump) = Process::new(running, described, self.memory_kills(), limit, self.kept.clone());
        self.processes.add(Arc::clone(&process), pump);
        Ok(process)
    }

    /// Runs a process to its end, with at most `most` bytes of each of its output streams.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn run(&self, new: NewProcess, most: Bytes) -> Result<Collected, Error> {
        let process = self.start(new).await?;
        let reader = process.output.read_from(0);
        Ok(output::collect(reader, most).await)
    }

    /// Returns the user that a process becomes; `None` for the sandbox's own, which is the only one unless that is root.
    pub(crate) fn other_user(&self, wanted: Option<String>) -> Result<Option<String>, Error> {
        let Some(wanted) = wanted else { return Ok(None) };
        if self.new.runtime.engine().is_some() {
            return Err(Error::NotSupported {
                runtime: self.new.runtime,
                what: "run a process as another user",
            });
        }
        let own = self.account();
        match own.is_root() {
            true => Ok(Some(wanted)),
            false if wanted == own.name() => Ok(None),
            false => Err(Error::OneUser {
                wanted,
                own: own.name(),
            }),
        }
    }

    /// Returns the program of a command line, with its arguments.
    fn program(&self, command: CommandLine) -> Result<(String, Vec<String>), Error> {
        match command {
            CommandLine::Words(words) => {
                let mut words = words.into_iter();
                let program = words.next().filter(|program| !program.is_empty());
                let program = program.ok_or_else(|| Error::Invalid("the command is empty".to_owned()))?;
                Ok((program, words.collect()))
            }
            CommandLine::Shell(line) => {
                let shell = self.init.ready().bash.clone();
                let shell = shell.unwrap_or_else(|| "sh".to_owned());
                Ok((shell, vec!["-c".to_owned(), line]))
            }
        }
    }

    /// Returns the user of a context; `None` for the one that programs have by default.
    fn context_user(&self, wanted: Option<String>) -> Result<Option<String>, Error> {
        let user = self.other_user(wanted)?;
        Ok(user.filter(|user| user != self.usual_user()))
    }

    /// Returns the name of the user that programs have by default.
    fn usual_user(&self) -> &str {
        self.default_user().unwrap_or(self.account().name())
    }

    /// Returns the processes that run, and the last ones that have ended.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        let all = lock(&self.processes.all);
        all.values().map(|process| process.info()).collect()
    }

    /// Returns a process by its id: the newest that had it.
    ///
    /// # Errors
    /// If there is none.
    pub fn process(&self, pid: u32) -> Result<Arc<Process>, Error> {
        let all = lock(&self.processes.all);
        let found = all.values().rev().find(|process| process.pid() == pid);
        found.cloned().ok_or(Error::NoProcess(pid))
    }
}

impl Processes {
    /// Returns the number of processes that run.
    fn running(&self) -> usize {
        lock(&self.all)
            .values()
            .filter(|process| process.is_running())
            .count()
    }

    fn add(&self, process: Arc<Process>, pump: impl Future<Output = ()> + Send + 'static) {
        let mut all = lock(&self.all);
        let next = all.last_key_value().map_or(0, |(number, _)| number + 1);
        all.insert(next, process);
        let ended: Vec<u64> = all
            .iter()
            .filter(|(_, process)| !process.is_running())
            .map(|(number, _)| *number)
            .collect();
        for number in ended.iter().take(ended.len().saturating_sub(ENDED)) {
            all.remove(number);
        }
        drop(all);
        self.spawn(pump);
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
