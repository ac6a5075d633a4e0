//! A request of a caller at this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringfence_exec::local::Fence;
use ringfence_packages::Requirement;
use ringfence_policy::{
    Bytes, Cpus, EnvName, HostPattern, Image, Language, Limits, Mount, Network, Pids, RuntimeKind, Scope,
    SessionId, Timeout,
};

/// A request of a caller who has the rights of this process: it may name paths of the host, and disable the
/// fence.
///
/// Absent options are those of its [`Runner`](crate::Runner), whose own come from the configuration. Requests
/// of other users have a type that cannot express these: [`RemoteRequest`](ringfence_policy::RemoteRequest).
///
/// ```
/// use ringfence::{Bytes, Request, Timeout};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let request = Request::bash("sort < /workspace/names > /output/sorted")
///     .file("names", "Bo\nAnn\n")
///     .output_directory("/srv/reports")
///     .timeout(Timeout::seconds(5))
///     .memory(Bytes::mib(64))
///     .mount("/usr/share/dict:/dict:ro".parse()?);
/// # drop(request);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Source code.
    pub code: String,
    /// Program name in its own error messages, such as `report.py`.
    pub name: String,
    pub language: Language,
    /// Program arguments.
    pub args: Vec<String>,
    /// Environment variables, which win over those of the configuration.
    pub env: Vec<(EnvName, String)>,
    /// Standard input.
    pub stdin: Stdin,
    /// Files in the workspace before the program runs: contents by path.
    pub files: BTreeMap<String, Vec<u8>>,
    pub runtime: Option<RuntimeKind>,
    pub limits: LimitChoices,
    pub network: Option<Network>,
    /// Hosts that the program reaches in addition to those of its network; they imply an allowlist.
    pub allowed_hosts: Vec<HostPattern>,
    /// Packages that are installed for the program, of its language. Only Python and JavaScript in the local fence have any.
    pub packages: Vec<Requirement>,
    /// Host paths that the program sees.
    pub mounts: Vec<Mount>,
    /// Host directory mounted as `/workspace`.
    pub workspace: Option<PathBuf>,
    /// Host directory that receives the files that the program writes to `/output`. It is created if missing.
    pub output_directory: Option<PathBuf>,
    /// Required strength of the fence.
    pub fence: Option<Fence>,
    /// Owner of the request.
    pub scope: Scope,
    /// Stateful interpreter to run in.
    pub session: Option<SessionId>,
    /// Image that replaces this machine's files.
    pub image: Option<Image>,
}

/// Standard input of a program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stdin {
    /// End of file at once.
    #[default]
    Empty,
    Bytes(Vec<u8>),
    /// Bytes that are written while the program runs ([`Run::stdin`](crate::Run::stdin)).
    Piped,
}

/// Limits that a caller chose; the others are left to the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LimitChoices {
    pub timeout: Option<Timeout>,
    pub max_output: Option<Bytes>,
    pub memory: Option<Bytes>,
    pub cpus: Option<Cpus>,
    pub pids: Option<Pids>,
    pub disk: Option<Bytes>,
}

impl LimitChoices {
    /// Applies the choices to `limits`.
    pub fn applied_to(&self, limits: Limits) -> Limits {
        Limits {
            timeout: self.timeout.unwrap_or(limits.timeout),
            max_output: self.max_output.unwrap_or(limits.max_output),
            memory: self.memory.unwrap_or(limits.memory),
            cpus: self.cpus.unwrap_or(limits.cpus),
            pids: self.pids.unwrap_or(limits.pids),
            disk: self.disk.unwrap_or(limits.disk),
        }
    }
}

impl Request {
    /// Returns a request to run a program, for the local user.
    pub fn new(language: Language, code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            name: "<string>".to_owned(),
            language,
            args: Vec::new(),
            env: Vec::new(),
            stdin: Stdin::Empty,
            files: BTreeMap::new(),
            runtime: None,
            limits: LimitChoices::default(),
            network: None,
            allowed_hosts: Vec::new(),
            packages: Vec::new(),
            mounts: Vec::new(),
            workspace: None,
            output_directory: None,
            fence: None,
            scope: Scope::local(),
            session: None,
            image: None,
        }
    }

    /// Returns a request to run Python code.
    pub fn python(code: impl Into<String>) -> Self {
        Self::new(Language::Python, code)
    }

    /// Returns a request to run a bash script.
    pub fn bash(code: impl Into<String>) -> Self {
        Self::new(Language::Bash, code)
    }

    /// Returns a request to run JavaScript code.
    pub fn javascript(code: impl Into<String>) -> Self {
        Self::new(Language::Javascript, code)
    }

    /// Adds a program argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: EnvName, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Sets the whole standard input.
    #[must_use]
    pub fn stdin(self, bytes: impl Into<Vec<u8>>) -> Self {
        let stdin = Stdin::Bytes(bytes.into());
        Self { stdin, ..self }
    }

    /// Opens standard input for writing while the program runs, through [`Run::stdin`](crate::Run::stdin).
    #[must_use]
    pub fn piped_stdin(self) -> Self {
        let stdin = Stdin::Piped;
        Self { stdin, ..self }
    }

    /// Adds a file of the workspace.
    #[must_use]
    pub fn file(mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        self.files.insert(path.into(), content.into());
        self
    }

    /// Sets the runtime.
    #[must_use]
    pub fn runtime(self, runtime: RuntimeKind) -> Self {
        let runtime = Some(runtime);
        Self { runtime, ..self }
    }

    /// Limits the wall-clock time.
    #[must_use]
    pub const fn timeout(mut self, timeout: Timeout) -> Self {
        self.limits.timeout = Some(timeout);
        self
    }

    /// Limits the memory of all processes together.
    #[must_use]
    pub const fn memory(mut self, memory: Bytes) -> Self {
        self.limits.memory = Some(memory);
        self
    }

    /// Limits the captured output of each stream.
    #[must_use]
    pub const fn max_output(mut self, max_output: Bytes) -> Self {
        self.limits.max_output = Some(max_output);
        self
    }

    /// Allows a host, in addition to those of the configuration. The program reaches no other.
    #[must_use]
    pub fn allow_host(mut self, host: HostPattern) -> Self {
        self.allowed_hosts.push(host);
        self
    }

    /// Sets the network.
    #[must_use]
    pub fn network(self, network: Network) -> Self {
        let network = Some(network);
        Self { network, ..self }
    }

    /// Adds a package, which is installed if it is not kept from an earlier run.
    #[must_use]
    pub fn package(mut self, package: Requirement) -> Self {
        self.packages.push(package);
        self
    }

    /// Shows a host path to the program.
    #[must_use]
    pub fn mount(mut self, mount: Mount) -> Self {
        self.mounts.push(mount);
        self
    }

    /// Lets the program work in a directory of the host, which it sees as `/workspace`.
    #[must_use]
    pub fn workspace(self, directory: impl Into<PathBuf>) -> Self {
        let workspace = Some(directory.into());
        Self { workspace, ..self }
    }

    /// Delivers the files of `/output` to a directory of the host.
    #[must_use]
    pub fn output_directory(self, directory: impl Into<PathBuf>) -> Self {
        let output_directory = Some(directory.into());
        Self {
            output_directory,
            ..self
        }
    }

    /// Sets the required strength of the fence.
    #[must_use]
    pub fn fence(self, fence: Fence) -> Self {
        let fence = Some(fence);
        Self { fence, ..self }
    }

    /// Sets the owner: requests of different scopes share no process, session or workspace.
    #[must_use]
    pub fn scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Runs the code in a Python interpreter that keeps its variables, created on first use.
    #[must_use]
    pub fn session(self, session: SessionId) -> Self {
        let session = Some(session);
        Self { session, ..self }
    }
}
