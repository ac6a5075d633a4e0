//! Situations in which probes run: as root, as an ordinary user, or in a container where namespaces are
//! forbidden.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::support::{Dir, Output, finish};

/// The interpreter inside and outside.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// The uid of an ordinary user, unused on any machine.
pub(super) const USER: u32 = 1234;

/// A situation of the fence, with its own directories.
pub(super) struct Fence {
    pub(super) dir: Dir,
    ringfence: PathBuf,
    /// The command prefix that enters the situation.
    wrapper: Vec<String>,
    container: Option<Container>,
    engine: Option<Engine>,
}

/// A server, stopped with its test.
struct Engine(Child);

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = signal("TERM", self.0.id());
        let ended = self.0.wait();
        assert!(std::thread::panicking() || ended.is_ok_and(|status| status.success()));
    }
}

/// A container, removed with its test.
struct Container(String);

impl Drop for Container {
    fn drop(&mut self) {
        let mut remove = docker(&["rm", "--force", "--volumes", &self.0]);
        let removed = remove.stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(std::thread::panicking() || removed.unwrap().success());
    }
}

/// The image of `cargo xtask setup`.
const IMAGE: &str = "ringfence-test:latest";

impl Fence {
    /// Returns the situation of the machine's root; `None`, after a message, if we are not root.
    pub(super) fn root() -> Option<Self> {
        if !is_root() {
            return skip("these denials are shown as root");
        }
        Some(Self {
            dir: Dir::new(),
            ringfence: PathBuf::from(env!("CARGO_BIN_EXE_ringfence")),
            wrapper: Vec::new(),
            container: None,
            engine: None,
        })
    }

    /// Returns the situation of a user without any privilege, with a copy of the binary that this user can
    /// run.
    pub(super) fn ordinary_user() -> Option<Self> {
        if !is_root() {
            return skip("only root can become another user");
        }
        let dir = Dir::new();
        let ringfence = dir.path("ringfence");
        fs::copy(env!("CARGO_BIN_EXE_ringfence"), &ringfence).unwrap();
        give_away(&dir.path("."), USER);
        let user = USER.to_string();
        let wrapper = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
        Some(Self {
            dir,
            ringfence,
            wrapper: wrapper.map(str::to_owned).into(),
            container: None,
            engine: None,
        })
    }

    /// Returns the situation of a user in a default Docker container, which forbids namespaces. Paths are the
    /// same there.
    pub(super) fn container(user: u32) -> Option<Self> {
        let image = docker(&["image", "inspect", IMAGE]).output();
        if !image.is_ok_and(|output| output.status.success()) {
            return skip(&format!(
                "there is no Docker with the image {IMAGE}; `cargo xtask setup` makes it"
            ));
        }
        let dir = Dir::new();
        give_away(&dir.path("."), user);
        let ringfence = dir.path("ringfence");
        let place = dir.path(".").canonicalize().unwrap();
        let shared = format!("{0}:{0}", place.display());
        let binary = format!("{}:{}:ro", env!("CARGO_BIN_EXE_ringfence"), ringfence.display());
        let volumes = ["--volume", &shared, "--volume", &binary];
        let run = [
            &["run", "--detach", "--rm", "--network", "none"],
            &volumes[..],
            &[IMAGE, "sleep", "600"],
        ];
        let started = docker(&run.concat()).output().unwrap();
        assert!(started.status.success(), "{started:?}");
        let name = String::from_utf8(started.stdout).unwrap().trim().to_owned();
        let mut wrapper = vec!["docker".to_owned(), "exec".to_owned(), "--interactive".to_owned()];
        wrapper.extend(["--user".to_owned(), format!("{user}:{user}")]);
        wrapper.extend(["--workdir".to_owned(), dir.path("work").display().to_string()]);
        // Its own /tmp serves for temporary files: guests of root could not enter a directory of ours.
        for (variable, value) in environment(&dir)
            .into_iter()
            .filter(|(name, _)| *name != "TMPDIR")
        {
            wrapper.extend(["--env".to_owned(), format!("{variable}={value}")]);
        }
        wrapper.push(name.clone());
        Some(Self {
            dir,
            ringfence,
            wrapper,
            container: Some(Container(name)),
            engine: None,
        })
    }

    /// Adds a server with a worker pool, started with a variable that no guest may see.
    pub(super) fn with_engine(self) -> Self {
        self.with_engine_of(&format!("python = '{PYTHON}'"))
    }

    /// Adds a server with these keys of `[sandbox]` in its configuration.
    pub(super) fn with_engine_of(mut self, sandbox: &str) -> Self {
        self.dir.write(
            "config/ringfence/ringfence.toml",
            format!("[sandbox]\n{sandbox}\n"),
        );
        let mut command = self.command(&self.ringfence);
        let mut engine = command
            .arg("serve")
            .env("API_KEY", "s3cret")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(engine.stderr.take().unwrap());
        // Before it listens it may report that the console's port is taken.
        let begun = log.by_ref().lines().map(Result::unwrap);
        let heard: Vec<String> = begun
            .take_while(|line| !line.starts_with("listening at"))
            .collect();
        assert!(
            heard.iter().all(|line| line.starts_with("warning: ")),
            "{heard:?}"
        );
        // Its later output must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        self.engine = Some(Engine(engine));
        let warm = |_: &i32| self.result(&[], "")["meta"]["warm"] == true;
        assert!((0..200).any(|run| warm(&run)), "no worker has become warm");
        self
    }

    /// Returns `true` if the surroundings deny much already, so that not every act works outside.
    pub(super) const fn is_contained(&self) -> bool {
        self.container.is_some()
    }

    /// Returns the command of a program in this situation, outside the fence.
    #[expect(clippy::disallowed_methods, reason = "the tests start programs")]
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut words = self.wrapper.iter().map(String::as_str).chain(program.to_str());
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .env_clear()
            .envs(environment(&self.dir))
            .current_dir(self.dir.path("work"));
        command
    }

    /// Returns the command `ringfence ARGS…` with a variable such as `NAME=value`.
    pub(super) fn product(&self, variable: &str, args: &[&str]) -> Command {
        let mut command = self.command(Path::new("/usr/bin/env"));
        command.arg(variable).arg(&self.ringfence).args(args);
        command
    }

    /// Sends a request to the server's private socket, and returns the answer.
    pub(super) fn ask(&self, line: &str, body: &str) -> String {
        let socket = self.dir.path("run/ringfence/engine.sock");
        let mut stream = UnixStream::connect(socket).unwrap();
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns the command `ringfence run OPTIONS`.
    pub(super) fn ringfence(&self, options: &[&str]) -> Command {
        let mut command = self.command(&self.ringfence);
        command.arg("run");
        // An image has its own Python.
        if self.engine.is_none() && !options.contains(&"--image") {
            command.args(["--no-engine", "--python", PYTHON]);
        }
        command.args(options);
        command
    }

    /// Runs Python outside the fence.
    pub(super) fn outside(&self, code: &str, args: &[&str]) -> Output {
        let mut command = self.command(Path::new(PYTHON));
        finish(command.args(["-I", "-c", code]).args(args), b"")
    }

    /// Runs Python inside the fence.
    pub(super) fn inside(&self, options: &[&str], code: &str, args: &[&str]) -> Output {
        let mut command = self.ringfence(options);
        finish(command.args(["-c", code, "--"]).args(args), b"")
    }

    /// Runs the Python of a sandbox in it.
    pub(super) fn inside_sandbox(&self, name: &str, code: &str, args: &[&str]) -> Output {
        let exec = ["sandbox", "exec", name, "--", "python3", "-I", "-c", code];
        finish(&mut self.product("A=b", &[&exec, args].concat()), b"")
    }

    /// Returns the output of a successful Python program inside the fence.
    #[track_caller]
    pub(super) fn printed(&self, options: &[&str], code: &str) -> String {
        self.inside(options, code, &[]).ok().to_owned()
    }

    /// Returns the result of a Python program inside the fence.
    #[track_caller]
    pub(super) fn result(&self, options: &[&str], code: &str) -> serde_json::Value {
        let output = self.inside(&[options, &["--json"]].concat(), code, &[]);
        serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("no result: {output:?}"))
    }
}

/// Returns the initial environment variables of a program.
fn environment(dir: &Dir) -> [(&'static str, String); 6] {
    let path = |name| dir.path(name).display().to_string();
    [
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned()),
        ("HOME", path("home")),
        ("TMPDIR", path("tmp")),
        ("XDG_STATE_HOME", path("state")),
        ("XDG_RUNTIME_DIR", path("run")),
        ("XDG_CONFIG_HOME", path("config")),
    ]
}

/// Sends a process of this machine a signal.
#[expect(clippy::disallowed_methods, reason = "the tests start programs")]
pub(super) fn signal(name: &str, pid: u32) -> std::io::Result<ExitStatus> {
    Command::new("kill").args(["-s", name, &pid.to_string()]).status()
}

#[expect(clippy::disallowed_methods, reason = "the tests start programs")]
fn docker(args: &[&str]) -> Command {
    let mut command = Command::new("docker");
    command.args(args);
    command
}

/// Changes the owner of a directory tree; links are not followed.
fn give_away(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_away(&entry.unwrap().path(), user);
        }
    }
}

/// Returns `true` if we are root.
pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Reports a missing prerequisite. In CI, where all must exist, it is a failure.
pub(super) fn skip<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("CI").is_none(), "cannot be skipped in CI: {why}");
    eprintln!("skipped: {why}");
    None
}
