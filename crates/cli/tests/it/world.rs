//! The places of scenarios: this machine, an ordinary user or a container; in one shot or through a server.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::leftovers;
use crate::support::{Dir, Output, eventually, finish, start};

/// The way runs are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In the process of `ringfence run`.
    OneShot,
    /// By the scenario's own server.
    Engine,
}

/// The user and the machine of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The user of the tests, on this machine.
    Here,
    /// A user without any privileges.
    User,
    /// Root of a default Docker container, where namespaces are forbidden.
    Container,
    /// An unprivileged user in such a container.
    ContainerUser,
}

/// A temporary directory, and the means to run the binary in its place.
pub(crate) struct World {
    pub(crate) dir: Dir,
    pub(crate) mode: Mode,
    pub(crate) place: Place,
    uid: u32,
    container: Option<String>,
    engine: Mutex<Option<Child>>,
    started: Mutex<Vec<u32>>,
}

/// A call of `ringfence run` with arguments, an environment and an input.
pub(crate) struct Call<'a> {
    world: &'a World,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
}

/// The JSON output of a command, and its exit status.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) output: Output,
    pub(crate) result: Value,
}

const IMAGE: &str = "ringfence-test:latest";

/// Makes a built program a file beside `binary`.
fn place_beside(binary: &Path, name: &str) {
    let built = Path::new(env!("CARGO_BIN_EXE_ringfence")).with_file_name(name);
    let file = binary.with_file_name(name);
    if fs::hard_link(&built, &file).is_err() {
        fs::copy(&built, &file).unwrap();
    }
}

/// A server that was told to end.
pub(crate) struct EndingEngine<'a> {
    world: &'a World,
    process: Child,
}

impl EndingEngine<'_> {
    pub(crate) fn signal(&self, signal: &str) {
        self.world.signal(&self.process, signal);
    }

    /// Waits for its exit, and returns its status.
    pub(crate) fn wait(mut self) -> Option<i32> {
        Some(self.process.wait().unwrap().code().unwrap_or(-1))
    }
}

impl World {
    /// Creates a world; `None`, after a message, if a prerequisite is missing, which in CI is a failure.
    pub(crate) fn new(mode: Mode, place: Place) -> Option<Self> {
        let world = Self::prepare(mode, place)?;
        if mode == Mode::Engine {
            world.start_engine();
        }
        Some(world)
    }

    /// Returns `true` if the server has a worker pool: it cannot where namespaces are forbidden.
    fn keeps_warm(&self) -> bool {
        matches!(self.place, Place::Here | Place::User)
    }

    fn prepare(mode: Mode, place: Place) -> Option<Self> {
        if let Some(missing) = missing(place) {
            return skip(&missing);
        }
        let dir = Dir::new();
        let binary = dir.path("ringfence");
        // A unique file name identifies the processes of this world by their executable.
        place_beside(&binary, "ringfence");
        place_beside(&binary, "ringfence-gateway");
        let uid = match place {
            Place::Here | Place::Container => own_uid(),
            Place::User | Place::ContainerUser => ordinary_uid(),
        };
        if uid != own_uid() {
            fs::set_permissions(dir.path(""), fs::Permissions::from_mode(0o755)).unwrap();
            for name in [
                "work",
                "state",
                "run",
                "config",
                "config/ringfence",
                "home",
                "tmp",
            ] {
                chown(dir.path(name), Some(uid), Some(uid)).unwrap();
            }
        }
        let mut world = Self {
            dir,
            mode,
            place,
            uid,
            container: None,
            engine: Mutex::default(),
            started: Mutex::default(),
        };
        if matches!(place, Place::Container | Place::ContainerUser) {
            world.container = Some(world.start_container());
        }
        Some(world)
    }

    /// Creates a world here whose runs would use a server; none is running yet.
    pub(crate) fn before_engine() -> Self {
        Self::prepare(Mode::Engine, Place::Here).unwrap()
    }

    /// Returns the call `ringfence run ARGS…`.
    pub(crate) fn call<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Call<'_> {
        Call {
            world: self,
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            env: Vec::new(),
            stdin: Vec::new(),
        }
    }

    /// Runs `ringfence run ARGS…` to completion.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        self.call(args).output()
    }

    /// Runs `ringfence run --json ARGS…` to completion.
    #[track_caller]
    pub(crate) fn json<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Run {
        self.call(args).json()
    }

    /// Runs Python code, which must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn python(&self, code: &str) -> String {
        let output = self.run(["-c", code]);
        assert_eq!(
            (output.status, &output.stderr),
            (0, &self.warning()),
            "{output:?}"
        );
        output.stdout
    }

    /// Returns the uid of commands.
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }

    /// Starts a server in this world.
    pub(crate) fn with_engine(mut self) -> Self {
        self.mode = Mode::Engine;
        self.start_engine();
        self
    }

    /// Returns `true` if the world is in a container.
    pub(crate) fn container(&self) -> bool {
        self.container.is_some()
    }

    /// Creates a world here, without a server.
    pub(crate) fn here() -> Self {
        Self::new(Mode::OneShot, Place::Here).unwrap()
    }

    /// Returns the warning of every run in this place.
    pub(crate) fn warning(&self) -> String {
        let step = match self.place {
            Place::Here | Place::User => return String::new(),
            Place::Container => "make a mount namespace",
            Place::ContainerUser => "make a user namespace",
        };
        format!(
            "warning: this machine forbids namespaces ({step}: Operation not permitted (os error 1)); the \
             run was confined by the other layers\n"
        )
    }

    /// Returns any `ringfence` command in this world.
    pub(crate) fn command<A: AsRef<OsStr>>(
        &self,
        env: &[(OsString, OsString)],
        args: impl IntoIterator<Item = A>,
    ) -> Command {
        let binary = self.dir.path("ringfence");
        let mut command = match (&self.container, self.place) {
            (Some(container), _) => {
                let mut command = self.dir.program("docker");
                command.args(["exec", "-i", "-w"]).arg(self.dir.path("work"));
                for (name, value) in self.container_env().iter().chain(env) {
                    let mut pair = name.clone();
                    pair.push("=");
                    pair.push(value);
                    command.arg("-e").arg(pair);
                }
                command.arg(container).arg(binary);
                command
            }
            (None, Place::User) => {
                let mut command = self.dir.program("setpriv");
                let uid = self.uid.to_string();
                command
                    .args(["--reuid", &uid, "--regid", &uid, "--clear-groups"])
                    .arg(binary);
                command
            }
            (None, _) => self.dir.program(binary),
        };
        if self.container.is_none() {
            command.envs(env.iter().map(|(name, value)| (name, value)));
        }
        command.args(args);
        command
    }

    fn container_env(&self) -> Vec<(OsString, OsString)> {
        [
            ("HOME", "home"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_RUNTIME_DIR", "run"),
            ("XDG_CONFIG_HOME", "config"),
        ]
        .map(|(name, below)| (name.into(), self.dir.path(below).into()))
        .into()
    }

    fn start_container(&self) -> String {
        let root = self.dir.path("");
        let mount = format!("{0}:{0}", root.display());
        let user = format!("{0}:{0}", self.uid);
        let output = finish(
            self.dir.program("docker").args([
                "run", "--detach", "--rm", "--user", &user, "--volume", &mount, IMAGE, "sleep", "600",
            ]),
            b"",
        );
        output.ok().trim().to_owned()
    }

    /// Starts a server and waits until it answers.
    pub(crate) fn start_engine(&self) {
        self.start_engine_with(&[], &[]);
    }

    /// Starts a server with further variables and options, and waits until it answers.
    pub(crate) fn start_engine_with(&self, env: &[(&str, &str)], options: &[&str]) {
        let env: Vec<_> = env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let mut command = self.command(&env, [&["serve"], options].concat());
        let log = fs::File::create(self.dir.path("engine.log")).unwrap();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.started.lock().unwrap().push(child.id());
        *self.engine.lock().unwrap() = Some(child);
        eventually("the server answers", || {
            let ended = self.engine.lock().unwrap().as_mut().unwrap().try_wait().unwrap();
            assert_eq!(ended, None, "the server ended: {}", self.engine_log());
            UnixStream::connect(self.socket()).is_ok()
        });
        if self.keeps_warm() {
            eventually("the server is warm", || {
                self.json(["-c", ""]).get("meta.warm") == true
            });
        }
    }

    /// Runs `ringfence tool OPTIONS NAME` with these arguments; returns the result, or `{"error": …}`.
    #[track_caller]
    pub(crate) fn tool(&self, options: &[&str], name: &str, arguments: &Value) -> Value {
        let mut args = vec!["tool", name, "-", "--json"];
        if self.mode == Mode::OneShot {
            args.push("--no-engine");
        }
        args.extend(options);
        let output = finish(&mut self.command(&[], args), arguments.to_string().as_bytes());
        self.watch(output.pid);
        let printed: Result<Value, _> = serde_json::from_str(&output.stdout);
        assert!(printed.is_ok(), "no answer: {output:?}");
        printed.unwrap()
    }

    /// Returns the output of the server.
    pub(crate) fn engine_log(&self) -> String {
        fs::read_to_string(self.dir.path("engine.log")).unwrap_or_default()
    }

    /// Returns the address, token and link of the engine's console.
    pub(crate) fn console(&self) -> Value {
        serde_json::from_str(self.dir.run(["console", "--json"]).ok()).unwrap()
    }

    /// Returns the server's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path("run/ringfence/engine.sock")
    }

    /// Returns the server's process id, if one is running.
    pub(crate) fn engine_pid(&self) -> Option<u32> {
        self.engine.lock().unwrap().as_ref().map(Child::id)
    }

    /// Sends the server a signal, waits for its exit, and returns its status.
    pub(crate) fn stop_engine(&self, signal: &str) -> Option<i32> {
        self.engine_pid()?;
        self.ask_engine(signal).wait()
    }

    /// Sends the server a signal that ends it, and returns it while it ends.
    pub(crate) fn ask_engine(&self, signal: &str) -> EndingEngine<'_> {
        let process = self.engine.lock().unwrap().take().unwrap();
        self.signal(&process, signal);
        EndingEngine { world: self, process }
    }

    /// Asks the server to end, and starts the next one at once, with this key.
    pub(crate) fn exchange_engine(&self, key: &str) {
        let mut former = self.engine.lock().unwrap().take().unwrap();
        self.signal(&former, "TERM");
        self.start_engine_with(&[("RINGFENCE_API_KEY", key)], &[]);
        assert_eq!(former.wait().unwrap().code(), Some(0));
    }

    /// Sends a process of this world a signal.
    pub(crate) fn signal(&self, process: &Child, signal: &str) {
        let mut command = match &self.container {
            // Our own child is the client that waits for the process in the container.
            Some(container) => {
                let mut command = self.dir.program("docker");
                let script = format!("pkill -{signal} -x ringfence");
                command.args(["exec", container, "bash", "-c", &script]);
                command
            }
            None => {
                let mut command = self.dir.program("kill");
                command.arg(format!("-{signal}")).arg(process.id().to_string());
                command
            }
        };
        finish(&mut command, b"").ok();
    }

    /// Registers a process that a test started by hand, so that its leftovers are checked.
    pub(crate) fn watch(&self, pid: u32) {
        self.started.lock().unwrap().push(pid);
    }

    /// Stops the server, if any, and asserts that nothing is left of all processes.
    #[track_caller]
    pub(crate) fn close(self) {
        if let Some(status) = self.stop_engine("TERM") {
            assert_eq!(status, 0, "the server ended badly: {}", self.engine_log());
        }
        match &self.container {
            None => leftovers::none(&self.dir, &self.started.lock().unwrap(), self.uid),
            Some(container) => leftovers::none_in_container(&self.dir, container),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut engine) = self.engine.lock().unwrap().take() {
            drop(engine.kill());
            drop(engine.wait());
        }
        if let Some(container) = &self.container {
            let mut command = self.dir.program("docker");
            drop(
                command
                    .args(["rm", "--force", container])
                    .stdout(Stdio::null())
                    .status(),
            );
        }
    }
}

impl Call<'_> {
    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets the standard input of the command.
    pub(crate) fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.stdin = bytes.as_ref().to_owned();
        self
    }

    fn command(&self, json: bool) -> Command {
        let mut args: Vec<OsString> = vec!["run".into()];
        if self.world.mode == Mode::OneShot {
            args.push("--no-engine".into());
        }
        if json {
            args.push("--json".into());
        }
        args.extend(self.args.iter().cloned());
        self.world.command(&self.env, args)
    }

    /// Runs it to completion.
    pub(crate) fn output(self) -> Output {
        let output = finish(&mut self.command(false), &self.stdin);
        self.world.watch(output.pid);
        output
    }

    /// Runs it to completion with `--json`.
    #[track_caller]
    pub(crate) fn json(self) -> Run {
        let output = finish(&mut self.command(true), &self.stdin);
        self.world.watch(output.pid);
        Run::of(output)
    }

    /// Starts it in its own process group, with all three streams piped to the test.
    pub(crate) fn start(self) -> Child {
        let mut command = self.command(false);
        let child = start(command.process_group(0));
        self.world.watch(child.id());
        child
    }
}

impl Run {
    /// Parses the output of `--json`.
    #[track_caller]
    pub(crate) fn of(output: Output) -> Self {
        let result: Result<Value, _> = serde_json::from_str(&output.stdout);
        assert!(result.is_ok(), "no result: {output:?}");
        Self {
            output,
            result: result.unwrap(),
        }
    }

    /// Returns a value of the result, such as `meta.outcome`.
    pub(crate) fn get(&self, path: &str) -> &Value {
        path.split('.').fold(&self.result, |value, key| &value[key])
    }

    pub(crate) fn stdout(&self) -> &str {
        self.get("stdout").as_str().unwrap()
    }

    pub(crate) fn stderr(&self) -> &str {
        self.get("stderr").as_str().unwrap()
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.get("duration").as_f64().unwrap()
    }

    /// Asserts the outcome, the exit code, and the exit status of the command.
    #[track_caller]
    pub(crate) fn ended(&self, outcome: &str, exit_code: i64, status: i32) -> &Self {
        let found = (
            self.get("meta.outcome").as_str().unwrap(),
            self.get("exit_code").as_i64().unwrap(),
        );
        assert_eq!(
            (found, self.output.status),
            ((outcome, exit_code), status),
            "{self:?}"
        );
        self
    }
}

/// Returns the first missing prerequisite.
fn missing(place: Place) -> Option<String> {
    let root = || (own_uid() != 0).then(|| "not root, so no other user can be taken on".to_owned());
    match place {
        Place::Here => None,
        Place::User => root(),
        Place::Container | Place::ContainerUser => {
            let dir = Dir::new();
            let inspected = finish(dir.program("docker").args(["image", "inspect", IMAGE]), b"");
            let missing = || format!("no Docker image {IMAGE} (`cargo xtask setup` makes it)");
            root().or_else(|| (inspected.status != 0).then(missing))
        }
    }
}

/// Reports that a test is skipped. In CI that is a failure.
pub(crate) fn skip<T>(why: &str) -> Option<T> {
    assert_eq!(std::env::var_os("CI"), None, "skipped: {why}");
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIPPED: {why}").unwrap();
    None
}

pub(crate) fn own_uid() -> u32 {
    fs::metadata("/proc/self").unwrap().uid()
}

/// Returns a uid unique to this world, so that its processes can be told from those of concurrent tests.
fn ordinary_uid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    1_000_000 + std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns a file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the Python of `cargo xtask setup`, with numpy, pandas and matplotlib.
pub(crate) fn venv() -> Option<String> {
    // The directory is resolved, the interpreter is not: its link is what makes it an environment.
    match repository("target/test-venv").canonicalize() {
        Ok(directory) => Some(directory.join("bin/python").display().to_string()),
        Err(_) => skip("no target/test-venv (`cargo xtask setup` makes it)"),
    }
}

/// Generates a test of each function here, in one shot and with a server.
macro_rules! here {
    ($($name:ident),+ $(,)?) => {
        crate::world::tests!(one_shot, OneShot, Here, $($name),+);
        crate::world::tests!(with_engine, Engine, Here, $($name),+);
    };
}

/// Generates a test of each function in every place.
macro_rules! everywhere {
    ($($name:ident),+ $(,)?) => {
        crate::world::here!($($name),+);
        crate::world::tests!(as_user, OneShot, User, $($name),+);
        crate::world::tests!(as_user_with_engine, Engine, User, $($name),+);
        crate::world::tests!(in_container, OneShot, Container, $($name),+);
        crate::world::tests!(in_container_with_engine, Engine, Container, $($name),+);
    };
}

macro_rules! tests {
    ($module:ident, $mode:ident, $place:ident, $($name:ident),+) => {
        mod $module {
            use crate::world::{Mode, Place, World, play};
            $(#[test] fn $name() { play(World::new(Mode::$mode, Place::$place), super::$name); })+
        }
    };
}

pub(crate) use tests;
pub(crate) use {everywhere, here};

/// Runs a scenario in a world, and asserts that nothing is left of it.
#[track_caller]
pub(crate) fn play(world: Option<World>, scenario: impl Fn(&World)) {
    let Some(world) = world else { return };
    scenario(&world);
    world.close();
}

/// A file system in memory, only for its owner, unmounted when dropped.
pub(crate) struct SmallDisk {
    unmount: Command,
}

impl SmallDisk {
    /// Makes the directory `name`, and mounts a disk of this size there. Returns `None` if the caller is not root.
    pub(crate) fn mount(dir: &Dir, name: &str, size: &str) -> Option<Self> {
        if own_uid() != 0 {
            return skip("a disk is mounted by root alone");
        }
        let path = dir.path(name);
        fs::create_dir(&path).unwrap();
        let (mut mount, mut unmount) = (dir.program("mount"), dir.program("umount"));
        mount
            .args(["-t", "tmpfs", "-o", &format!("mode=700,size={size}"), "tmpfs"])
            .arg(&path);
        finish(&mut mount, b"").ok();
        unmount.arg("--lazy").arg(&path);
        Some(Self { unmount })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        finish(&mut self.unmount, b"");
    }
}
