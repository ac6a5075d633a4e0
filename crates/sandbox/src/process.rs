//! Processes of a sandbox.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ringfence_container::init::{Process as Running, ProcessControl, ProcessEvent};
pub use ringfence_jail::init::frames::TerminalSize;
use ringfence_jail::init::frames::{Cut, End, Fate, Recipient};
use ringfence_policy::timestamp::rfc3339;
use ringfence_policy::{Outcome, Timeout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::error::Error;
use super::kept_output::KeptOutput;
use super::lock::lock;
use super::output::Output;
pub use super::output::ProcessEnd;
use super::pause::Alarm;
use super::place::MemoryKills;

/// A program to start in a sandbox.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewProcess {
    pub command: CommandLine,
    /// Working directory; the sandbox's by default.
    pub cwd: Option<String>,
    /// Variables beside the sandbox's own.
    pub env: BTreeMap<String, String>,
    pub stdin: Stdin,
    /// Size of the terminal that it gets instead of pipes.
    pub terminal: Option<TerminalSize>,
    /// Wall time after which it is killed with its descendants.
    pub timeout: Option<Timeout>,
    /// Name or number of its user, in a sandbox that has several; root by default.
    pub user: Option<String>,
}

impl NewProcess {
    /// Refuses texts with a NUL character, which ends the arguments of execve(2).
    pub(crate) fn check(&self) -> Result<(), Error> {
        let has_nul = |text: &String| text.contains('\0');
        let command = match &self.command {
            CommandLine::Words(words) => words.iter().any(has_nul),
            CommandLine::Shell(line) => has_nul(line),
        };
        let env = self
            .env
            .iter()
            .any(|(name, value)| has_nul(name) || has_nul(value));
        for (is_wrong, name) in [
            (command, "command"),
            (env, "env"),
            (self.cwd.as_ref().is_some_and(has_nul), "cwd"),
        ] {
            if is_wrong {
                return Err(Error::Invalid(format!(
                    "`{name}` has a NUL character, which no argument or variable of a program can have"
                )));
            }
        }
        Ok(())
    }
}

/// The program of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLine {
    /// A program and its arguments.
    Words(Vec<String>),
    /// A line for the shell: bash, where the sandbox has it, else sh.
    Shell(String),
}

/// Bytes of a command line that are kept to be shown.
pub const SHOWN: usize = 16 * 1024;

impl CommandLine {
    /// Returns the words to show, cut where they are many or long: each process keeps its own.
    pub(crate) fn shown(&self) -> Vec<String> {
        let words = match self {
            Self::Words(words) => words.as_slice(),
            Self::Shell(line) => std::slice::from_ref(line),
        };
        shortened(words, SHOWN)
    }
}

/// Returns as many words as have this number of bytes; the last may be cut, and then ends with `…`.
pub fn shortened(words: &[String], most: usize) -> Vec<String> {
    let mut left = most;
    let mut shown = Vec::new();
    for word in words {
        if word.len() >= left {
            shown.push(format!("{}…", &word[..word.floor_char_boundary(left)]));
            break;
        }
        // Words without a letter take memory, too.
        left -= word.len() + 1;
        shown.push(word.clone());
    }
    shown
}

impl Default for CommandLine {
    fn default() -> Self {
        Self::Words(Vec::new())
    }
}

/// The standard input of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stdin {
    /// End of file.
    #[default]
    Empty,
    /// Bytes that are sent to it, until it is closed.
    Open,
}

/// A description of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessInfo {
    /// Process id in the sandbox.
    pub pid: u32,
    /// Program and arguments, or the line of a shell.
    pub command: Vec<String>,
    pub cwd: String,
    /// Set if it runs in a terminal.
    pub terminal: bool,
    /// Time of its start (RFC 3339).
    pub started_at: String,
    /// Its end; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<ProcessEnd>,
}

impl ProcessEnd {
    /// Converts the end that an init reports. `memory_kills`: the kernel killed a process for lack of memory meanwhile.
    /// `late`: the process was killed at its time limit, unless it had ended before.
    pub(crate) fn of(end: &End, memory_kills: bool, late: bool) -> Self {
        let status = match &end.fate {
            Fate::Ended(status) => *status,
            Fate::NotStarted { step, errno } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                return Self::unknown(&format!("cannot {step}: {error}"));
            }
            // Killed with its supervisor, as everything in the sandbox.
            Fate::Lost if end.cut == Cut::Ordered => -SIGKILL,
            Fate::Lost => {
                return Self::unknown(
                    "the supervisor of the process in the sandbox was killed, most likely by a program there",
                );
            }
        };
        let killed = status == -SIGKILL;
        let (outcome, exit_code) = match end.cut {
            Cut::Deadline => (Outcome::TimedOut, -1),
            Cut::Ordered if late => (Outcome::TimedOut, -1),
            Cut::Ordered => (Outcome::Cancelled, status),
            Cut::No if killed && (memory_kills || end.out_of_memory) => (Outcome::MemoryExceeded, status),
            Cut::No if status < 0 => (Outcome::Signalled, status),
            Cut::No => (Outcome::Exited, status),
        };
        Self {
            exit_code,
            outcome,
            cpu_seconds: Some(end.cpu_micros as f64 / 1e6),
            peak_memory_bytes: Some(end.max_rss),
            error: None,
        }
    }
}

/// Of signal(7).
pub(crate) const SIGKILL: i32 = 9;

/// A process that was started in a sandbox, running or ended.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    command: Vec<String>,
    cwd: String,
    terminal: bool,
    started: SystemTime,
    /// Output of the process, kept for a while after its end.
    pub output: Arc<Output>,
    control: ProcessControl,
    stdin: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
}

/// The part of a process's description that the start determines.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) command: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) terminal: bool,
    pub(crate) stdin: Stdin,
}

impl Process {
    /// Wraps a process that was started, and is killed at its limit. The second part, which must be driven, passes its events on.
    pub(crate) fn new(
        running: Running,
        described: Described,
        memory_kills: MemoryKills,
        limit: Option<Alarm>,
        kept: KeptOutput,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        let Running {
            pid,
            mut events,
            stdin,
            control,
            task,
        } = running;
        let output = Arc::new(Output::counted(kept));
        let process = Arc::new(Self {
            pid,
            command: described.command,
            cwd: described.cwd,
            terminal: described.terminal,
            started: SystemTime::now(),
            output: Arc::clone(&output),
            control: control.clone(),
            stdin: Mutex::new((described.stdin == Stdin::Open).then_some(stdin)),
        });
        let late = Arc::new(AtomicBool::new(false));
        let (is_late, kept) = (Arc::clone(&late), Arc::clone(&output));
        let passing = async move {
            // Aborted with the pump.
            let _task = task;
            while let Some(event) = events.recv().await {
                match event {
                    ProcessEvent::Output(chunk) => output.push(chunk).await,
                    ProcessEvent::Drained => {}
                    ProcessEvent::Ended(end) => {
                        let late = is_late.load(Ordering::Acquire);
                        output.end(ProcessEnd::of(&end, memory_kills.any(), late));
                    }
                    ProcessEvent::Lost(lost) => output.end(ProcessEnd::unknown(&lost.to_string())),
                }
            }
            output.end(ProcessEnd::unknown("the sandbox has ended"));
        };
        let limiting = async move {
            match limit {
                Some(mut limit) => limit.reached().await,
                None => std::future::pending().await,
            }
            late.store(true, Ordering::Release);
            control.kill();
            // Its end must not wait for a reader.
            kept.release();
            std::future::pending().await
        };
        let pump = async move {
            tokio::select! {
                () = passing => {}
                () = limiting => {}
            }
        };
        (process, pump)
    }

    pub const fn pid(&self) -> u32 {
        self.pid
    }

    pub fn info(&self) -> ProcessInfo {
        ProcessInfo {
            pid: self.pid,
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            terminal: self.terminal,
            started_at: rfc3339(self.started),
            end: self.output.ended(),
        }
    }

    /// Returns `true` while the process runs.
    pub fn is_running(&self) -> bool {
        self.output.ended().is_none()
    }

    /// Returns `true` while the process's standard input is open.
    pub fn takes_input(&self) -> bool {
        lock(&self.stdin).is_some()
    }

    /// Sends bytes to its standard input, as fast as it reads. `false` if that is closed.
    pub async fn write(&self, bytes: Vec<u8>) -> bool {
        let stdin = lock(&self.stdin).clone();
        match stdin {
            Some(stdin) => stdin.send(bytes).await.is_ok(),
            None => false,
        }
    }

    /// Closes the process's standard input. Has no effect in a terminal: send the character EOT (Ctrl-D)
    /// instead.
    pub fn close_stdin(&self) {
        lock(&self.stdin).take();
    }

    /// Sends the process a signal; see signal(7).
    pub fn signal(&self, signal: u32) {
        self.control.signal(signal, Recipient::Process);
    }

    /// Kills the process with its descendants.
    pub fn kill(&self) {
        self.control.kill();
        // Its end must not wait for a reader.
        self.output.release();
    }

    /// Changes the size of the process's terminal.
    pub fn resize(&self, size: TerminalSize) {
        self.control.resize(size);
    }
}

/// Time that no process reaches: ten years.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
