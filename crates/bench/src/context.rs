//! The bench's own directories, so that no existing server, state or configuration plays a part.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use ringfence_container::backend::Settings as ContainerSettings;
use ringfence_exec::local as backend;
use ringfence_exec::pyodide::Settings as PyodideSettings;
use ringfence_exec::trust::Ledger;
use ringfence_policy::Language;
use ringfence_policy::cascade::Rules;
use ringfence_server::client::Client;
use tokio::runtime::Runtime;

use super::engine::Engine;
use super::process::program;

/// State shared by the rows.
#[derive(Debug)]
pub struct BenchContext {
    /// First, so that it is dropped before its directory is removed.
    engine: Option<Engine>,
    pub(super) runtime: Runtime,
    pub(super) flood_bytes: u64,
    binary: PathBuf,
    directory: Directory,
    search_path: Option<std::ffi::OsString>,
    /// Locked while the servers are used: they end with this process, however it ends.
    _used: File,
    pub(super) machine: Machine,
}

/// The settings of runs on this machine.
#[derive(Debug)]
pub struct Machine {
    pub local: backend::Settings,
    pub containers: ContainerSettings,
    pub pyodide: PyodideSettings,
    /// Command policy.
    pub rules: Rules,
    /// Directories that programs could write.
    pub ledger: Ledger,
    /// Rejects a program that lies in one: peers have no fence.
    pub check_program: fn(&Path, &Ledger) -> anyhow::Result<()>,
}

impl Machine {
    fn check(&self, program: &Path) -> anyhow::Result<()> {
        (self.check_program)(program, &self.ledger)
    }
}

/// A directory, removed when dropped.
#[derive(Debug)]
struct Directory(PathBuf);

const PREFIX: &str = "ringfence-bench.";
const LOCK: &str = "used.lock";

impl Directory {
    /// Creates a directory for us alone, and removes the leftovers of killed measurements.
    fn create(parent: &Path) -> anyhow::Result<Self> {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                // The removal fails on a directory of another user, who can remove it.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // It holds only our own harmless files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl BenchContext {
    /// Creates a context and its directories. With `full`, rows that move much data move ten times as much.
    ///
    /// # Errors
    /// If the directories cannot be created.
    pub fn new(machine: Machine, full: bool) -> anyhow::Result<Self> {
        let directory = Directory::create(&std::env::temp_dir())?;
        let used = File::create(directory.0.join(LOCK)).context("making a lock for the servers")?;
        used.lock_shared().context("locking for the servers")?;
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?,
            flood_bytes: if full { 10 << 30 } else { 1 << 30 },
            binary: std::env::current_exe().context("finding this program")?,
            directory,
            _used: used,
            search_path: machine.local.path.clone(),
            machine,
            engine: None,
        })
    }

    /// Returns the command of a program without Ringfence.
    pub(super) fn plain(&self, path: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
        let mut command = program(path, self.search_path.as_deref());
        command.args(args).current_dir(&self.directory.0);
        command
    }

    /// Returns the command `ringfence ARGS…` with the state and sockets of the named world; only a world with
    /// a server finds one.
    pub(super) fn ringfence(&self, world: &str, args: &[&str]) -> Command {
        let mut command = self.plain(&self.binary, args);
        let below = |name: &str| self.directory.0.join(world).join(name);
        command
            .env("HOME", below("home"))
            .env("XDG_STATE_HOME", below("state"))
            .env("XDG_CONFIG_HOME", below("config"))
            .env("XDG_RUNTIME_DIR", below("run"));
        command
    }

    /// Returns the path of a row's own directory; it need not exist.
    pub(super) fn directory(&self, name: &str) -> PathBuf {
        self.directory.0.join(name)
    }

    /// Returns the socket of a world's server.
    pub(super) fn socket(&self, world: &str) -> PathBuf {
        self.directory.0.join(world).join("run/ringfence/engine.sock")
    }

    /// Starts a server with a state of its own.
    pub(super) fn start_engine(&self, world: &str, env: &[(&str, &str)]) -> anyhow::Result<Engine> {
        let mut command = self.ringfence(world, &["serve", "--while-used"]);
        command.arg(self.directory.0.join(LOCK)).envs(env.iter().copied());
        Engine::start(command, self.socket(world))
    }

    /// Returns the server with the settings of a fresh installation, started at the first call.
    pub(super) fn engine(&mut self) -> anyhow::Result<&Engine> {
        if self.engine.is_none() {
            let engine = self.start_engine(super::engine::WORLD, &[])?;
            engine.warm_up(&self.runtime)?;
            self.engine = Some(engine);
        }
        self.engine.as_ref().context("the server was just started")
    }

    /// Connects to the shared server.
    pub(super) fn connect(&mut self) -> anyhow::Result<Client> {
        self.engine()?;
        let engine = self.engine.as_ref().context("the server was just started")?;
        self.runtime.block_on(engine.connect())
    }

    /// Returns the interpreter of runs, which is also the peer.
    pub(super) fn interpreter(&self, language: Language) -> anyhow::Result<PathBuf> {
        let found = backend::interpreter(&self.machine.local, language)
            .with_context(|| format!("no interpreter for {language} was found"))?;
        self.machine.check(&found)?;
        Ok(found)
    }

    /// Finds a program on the search path.
    pub(super) fn find(&self, name: &str) -> anyhow::Result<Option<PathBuf>> {
        let path = self.search_path.as_deref();
        let directories = path.map(std::env::split_paths).into_iter().flatten();
        let mut programs = directories.map(|directory| directory.join(name));
        let found = programs.find(|program| program.is_file());
        found
            .as_deref()
            .map_or(Ok(()), |program| self.machine.check(program))?;
        Ok(found)
    }
}
