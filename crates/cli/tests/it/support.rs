//! A temporary home directory, and the binary run in it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A temporary world: `work` is the working directory; `state`, `run` and `config` are the XDG ones.
pub(crate) struct Dir(tempfile::TempDir);

/// Output and exit status of a command.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The exit status; 128 + N if signal N killed it.
    pub(crate) status: i32,
    /// The process id.
    pub(crate) pid: u32,
}

impl Dir {
    pub(crate) fn new() -> Self {
        let dir = Self(tempfile::tempdir().unwrap());
        for name in ["work", "state", "run", "config/ringfence", "home", "tmp"] {
            fs::create_dir_all(dir.0.path().join(name)).unwrap();
        }
        fs::set_permissions(dir.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
        dir
    }

    /// Returns a path below the temporary directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file below the temporary directory.
    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).unwrap();
        path
    }

    /// Returns the command `ringfence ARGS…` in `work`, with only PATH and the XDG directories in its
    /// environment.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_ringfence"));
        command.args(args);
        command
    }

    /// Returns the command of any program in the same directory and environment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the tests start the binary and what they compare it with"
    )]
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("TMPDIR", self.path("tmp"))
            .current_dir(self.path("work"));
        command
    }

    /// Runs `ringfence ARGS…` with empty standard input.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        finish(&mut self.command(args), b"")
    }
}

/// Starts a command with all three streams piped to the test.
pub(crate) fn start(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a command to completion, with `stdin` on standard input.
pub(crate) fn finish(command: &mut Command, stdin: &[u8]) -> Output {
    let mut child = start(command);
    let pid = child.id();
    let mut pipe = child.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    // A child that reads nothing closes the pipe, which is no failure.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Output {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        status: output
            .status
            .code()
            .unwrap_or_else(|| 128 + output.status.signal().unwrap_or_default()),
        pid,
    }
}

impl Output {
    /// Asserts a failure with `status`, with one error line and one hint.
    #[track_caller]
    pub(crate) fn refused(&self, status: i32, what: &str) {
        let lines: Vec<_> = self.stderr.lines().collect();
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert_eq!(lines.len(), 2, "{self:?}");
        assert!(
            lines[0].starts_with("error: ") && lines[0].contains(what),
            "{self:?}"
        );
        assert!(lines[1].starts_with("hint: "), "{self:?}");
    }

    /// Asserts success, and returns standard output.
    #[track_caller]
    pub(crate) fn ok(&self) -> &str {
        assert_eq!(self.status, 0, "{self:?}");
        &self.stdout
    }
}

/// Returns the names in a directory, to assert that nothing was left behind.
pub(crate) fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Waits, with a timeout, until a condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    eventually_none(what, || if holds() { Vec::new() } else { vec!["not yet"] });
}

/// Waits, with a timeout, until nothing is found.
#[track_caller]
pub(crate) fn eventually_none<T: std::fmt::Debug>(what: &str, find: impl FnMut() -> Vec<T>) {
    none_within(Duration::from_secs(60), what, find);
}

/// Waits until nothing is found, with a given timeout.
#[track_caller]
pub(crate) fn none_within<T: std::fmt::Debug>(
    patience: Duration,
    what: &str,
    mut find: impl FnMut() -> Vec<T>,
) {
    let deadline = Instant::now() + patience;
    loop {
        let found = find();
        if found.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {found:#?}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
