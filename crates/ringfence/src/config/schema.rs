//! Every key of the configuration, its type, its default and its meaning.
//!
//! This is the only schema: the loader takes the known keys from the serialised default, `config schema` and
//! the reference page come from the derived JSON Schema. Keys may be written in `camelCase` or `snake_case`;
//! the spelling here is the one in messages.

mod engine;
mod permissions;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use ringfence_exec::artifact::{Keep, StorePolicy};
use ringfence_policy::{Bytes, Cpus, Limits, Pids, RuntimeKind, Timeout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::gateways::Gateway;
pub use super::packages::Packages;
use super::values;
pub use engine::Engine;
pub use permissions::{Filesystem, HostExecution, Permissions, PreValidation, Shell, ToolLimits};

/// Configuration of Ringfence.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Defaults of runs: runtime, limits and fence.
    pub sandbox: Sandbox,
    /// Permissions of the tools.
    pub permissions: Permissions,
    /// The container that the tool `sandbox_exec` runs code in.
    #[serde(rename = "codeExecution")]
    pub code_execution: CodeExecution,
    /// Commands on the host itself, through the tool `host_exec`.
    #[serde(rename = "hostExecution")]
    pub host_execution: HostExecution,
    /// Host functions that sandboxed code may call.
    pub skills: Skills,
    /// Named sets of limits for containers; you may add further names.
    #[schemars(with = "BTreeMap<String, Template>")]
    pub templates: Templates,
    /// Hosts that the tool `http_fetch`, and programs with `sandbox.network = "allowlist"`, may reach.
    pub egress: Egress,
    /// Packages that are installed for runs (`run --with`).
    pub packages: Packages,
    /// Records of runs.
    pub artifacts: Artifacts,
    /// The log of every tool call.
    pub audit: Audit,
    /// The server (`ringfence serve`), which keeps workers ready.
    pub engine: Engine,
    /// Gateways that ask people for approval.
    pub gateway: Gateway,
}

/// Defaults of runs: runtime, limits and fence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sandbox {
    /// Runtime: `local`, `docker`, `podman`, `pyodide` or `e2b`.
    #[serde(rename = "type")]
    pub runtime: RuntimeKind,
    /// Wall-clock limit of a run.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub timeout: Timeout,
    /// Bytes kept of stdout, and of stderr.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Size")]
    pub max_output: Bytes,
    /// Memory limit of all processes of a run together.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::memory::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub memory: Bytes,
    /// CPU limit in cores.
    #[schemars(with = "f64")]
    pub cpus: Cpus,
    /// Maximum number of processes and threads.
    #[schemars(with = "u32")]
    pub pids: Pids,
    /// Disk limit of the writable directories together.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::disk::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub disk: Bytes,
    /// Python interpreter; that of a virtual environment includes its packages. Unset: `python3` on the PATH.
    pub python: Option<PathBuf>,
    /// Node.js or Deno. Unset: the first one on the PATH.
    pub javascript: Option<PathBuf>,
    /// Modules that the warm Python imports in advance, such as `numpy`.
    pub preload: Vec<String>,
    /// Timeout of each import. A module that fails or times out is skipped and reported.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub preload_timeout: Timeout,
    /// Reaction to a layer of the fence that this machine lacks: refuse the run or report it.
    pub isolation: values::IsolationChoice,
    /// Reject programs that import one of `blocked_imports`, before they run.
    pub block_dangerous_imports: bool,
    /// Modules that `block_dangerous_imports` rejects.
    pub blocked_imports: Vec<String>,
    /// Names of the caller's environment variables that programs may see.
    #[schemars(with = "Vec<String>")]
    pub pass_env: Vec<values::VariableName>,
    /// Network access of programs: none, or the hosts of `egress`.
    pub network: values::NetworkKind,
    /// Containers of the `docker` and `podman` runtimes.
    pub docker: Docker,
    /// The service of the `e2b` runtime, to which code and files are sent.
    pub e2b: E2b,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            runtime: RuntimeKind::Local,
            timeout: Limits::DEFAULT.timeout,
            max_output: Limits::DEFAULT.max_output,
            memory: Limits::DEFAULT.memory,
            cpus: Limits::DEFAULT.cpus,
            pids: Limits::DEFAULT.pids,
            disk: Limits::DEFAULT.disk,
            python: None,
            javascript: None,
            preload: Vec::new(),
            preload_timeout: Timeout::seconds(60),
            isolation: values::IsolationChoice::Auto,
            block_dangerous_imports: false,
            blocked_imports: values::texts(&["os", "subprocess", "shutil", "socket"]),
            pass_env: Vec::new(),
            network: values::NetworkKind::None,
            docker: Docker::default(),
            e2b: E2b::default(),
        }
    }
}

/// Containers of the `docker` and `podman` runtimes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Docker {
    /// Image of the container.
    pub image: String,
    /// Give the container a network.
    pub network_enabled: bool,
    /// CPU limit in cores.
    #[schemars(with = "f64")]
    pub cpu_limit: Cpus,
    /// Memory limit of the container.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::memory::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub memory_limit: Bytes,
    /// OCI runtime: `runc`, `crun`, `runsc` (gVisor), or `default`, the container engine's choice.
    pub oci_runtime: values::OciRuntime,
    /// Fallback if the container engine is unavailable: `local`, this machine's fence, or `none`.
    pub fallback: values::Fallback,
}

impl Default for Docker {
    fn default() -> Self {
        Self {
            image: "ringfence-sandbox:latest".to_owned(),
            network_enabled: false,
            cpu_limit: values::cpus("0.5"),
            memory_limit: Bytes::mib(256),
            oci_runtime: values::OciRuntime::Default,
            fallback: values::Fallback::None,
        }
    }
}

/// The service of the `e2b` runtime, to which code and files are sent. Its key is in E2B_API_KEY.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct E2b {
    /// Base URL of the control plane. Unset: `https://api.` and the domain.
    pub api_url: Option<String>,
    /// Base URL of all sandboxes. Unset: a host each, below the domain.
    pub sandbox_url: Option<String>,
    /// Domain of the service.
    pub domain: String,
    /// Template of sandboxes.
    pub template: String,
    /// File with the key, instead of the variable E2B_API_KEY.
    pub api_key_file: Option<PathBuf>,
}

impl Default for E2b {
    fn default() -> Self {
        Self {
            api_url: None,
            sandbox_url: None,
            domain: ringfence_cloud::HOSTED.to_owned(),
            template: "code-interpreter-v1".to_owned(),
            api_key_file: None,
        }
    }
}

/// The container that the tool `sandbox_exec` runs code in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct CodeExecution {
    /// Container engine: `docker` or `podman`.
    pub container_runtime: values::ContainerRuntime,
    /// Fallback if the container engine is unavailable: `none` (an error), or `local`, this machine's fence.
    pub fallback: values::Fallback,
    /// Image of the container.
    pub docker_image: String,
    /// Wall-clock limit of a call.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub timeout: Timeout,
    /// Give programs a network: the hosts of `egress.allowed_hosts`, or the engine's bridge if the list is
    /// empty.
    pub allow_network: bool,
    /// Memory limit of the container.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::memory::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub max_memory: Bytes,
    /// Disk limit of each directory that its programs may write: `/workspace`, unless that is the caller's,
    /// `/output` and `/tmp`.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::disk::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub max_disk: Bytes,
    /// CPU limit in cores.
    #[schemars(with = "f64")]
    pub max_cpus: Cpus,
    /// Reuse one container for many calls.
    pub keep_alive: bool,
    /// Idle minutes after which that container is removed.
    #[schemars(with = "values::Minutes")]
    pub keep_alive_idle_timeout_min: values::Minutes,
    /// Number of calls after which that container is replaced, at least 1.
    pub keep_alive_max_executions: NonZeroU32,
    /// Mounts of the container, as `HOST:GUEST[:ro|rw]`, or as `hostPath`, `containerPath` and `readOnly`
    /// (true).
    #[schemars(with = "Vec<values::MountForm>")]
    pub volume_mounts: Vec<values::VolumeMount>,
}

impl Default for CodeExecution {
    fn default() -> Self {
        Self {
            container_runtime: values::ContainerRuntime::Docker,
            fallback: values::Fallback::None,
            docker_image: "ringfence-sandbox:latest".to_owned(),
            timeout: Timeout::seconds(30),
            allow_network: false,
            max_memory: Bytes::mib(256),
            max_disk: Limits::DEFAULT.disk,
            max_cpus: Cpus::ONE,
            keep_alive: true,
            keep_alive_idle_timeout_min: values::Minutes(Timeout::seconds(10 * 60)),
            keep_alive_max_executions: values::count(50),
            volume_mounts: Vec::new(),
        }
    }
}

/// Host functions that sandboxed code may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Skills {
    /// Directory of skill files. Unset: no skills.
    pub path: Option<PathBuf>,
    /// Functions that may be called: `Skill.function`, `Skill.*` or `*`. The prefix `USER:` restricts an
    /// element to that user, who may then call only what such elements name.
    pub allow: Vec<String>,
    /// Functions that notify you of every call.
    pub notify: Vec<String>,
    /// Functions that need your approval for every call.
    pub ask: Vec<String>,
    /// Maximum number of calls of one run.
    pub max_calls: NonZeroU32,
    /// Maximum rate of calls of one run, per second on average; further calls wait.
    pub calls_per_second: NonZeroU32,
    /// Timeout of one call, not counting your answer. The run's own timeout continues meanwhile.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub call_timeout: Timeout,
    /// Timeout of your answer.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub ask_timeout: Timeout,
    /// MCP servers whose tools may be called, by name: `get-day` of the server `calendar` is
    /// `calendar.get_day`.
    pub servers: BTreeMap<String, Server>,
    /// Timeout of loading a file of skills, or of an MCP server's handshake and list of tools.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub start_timeout: Timeout,
    /// Memory limit of a process that serves a file of skills, and of an MCP server's.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::memory::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub memory: Bytes,
    /// Pyodide, for every program that runs there.
    pub sandbox: Pyodide,
}

impl Default for Skills {
    fn default() -> Self {
        let number = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self {
            path: None,
            allow: values::texts(&["*"]),
            notify: Vec::new(),
            ask: Vec::new(),
            max_calls: number(1000),
            calls_per_second: number(1000),
            call_timeout: Timeout::seconds(10),
            ask_timeout: Timeout::seconds(300),
            servers: BTreeMap::new(),
            start_timeout: Timeout::seconds(20),
            memory: Limits::DEFAULT.memory,
            sandbox: Pyodide::default(),
        }
    }
}

/// An MCP server: a program started at its first use, or a URL.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// The program with its arguments. It communicates over standard input and output.
    pub command: Vec<String>,
    /// URL of the server, instead of a program, such as `https://mcp.example.com/mcp`.
    pub url: Option<String>,
    /// HTTP headers of requests to the URL.
    pub headers: Vec<ServerHeader>,
    /// Mounts of the program, as `HOST:GUEST[:ro|rw]`; it sees no other files of this machine.
    pub mounts: Vec<String>,
    /// Hosts that the program may reach, such as `api.example.com:443`.
    pub hosts: Vec<String>,
    /// Environment of the program: `NAME` passes on this variable, `NAME=value` sets it.
    pub env: Vec<String>,
    /// `fenced` like a skill; on the `host` it may do whatever you may, and no program may write where its
    /// command or environment names a path.
    pub fence: values::ServerFence,
    /// Absolute paths in the command or environment of a server on the `host` that are data, which programs may
    /// write.
    pub data: Vec<PathBuf>,
}

/// An HTTP header for an MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerHeader {
    /// Name of the header, such as `Authorization`.
    pub header: String,
    /// Text before the value, such as `Bearer` and a space. Unset: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Environment variable that holds the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_env: Option<String>,
    /// File that holds the value, instead of a variable; only its owner may have permissions on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_file: Option<PathBuf>,
}

/// Pyodide: its interpreter, the limits of its programs, and their packages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pyodide {
    /// Run Pyodide programs in Pyodide; `false` runs them in the local fence, and reports it in each result:
    /// for development only.
    pub enabled: bool,
    /// Timeout of a program in Pyodide, in seconds.
    #[schemars(with = "values::Duration")]
    pub timeout_seconds: Timeout,
    /// Memory limit of a program in Pyodide, in mebibytes.
    pub memory_limit_mb: u32,
    /// The Deno program. `deno`: the one of `ringfence setup deno`.
    pub deno_path: PathBuf,
    /// Modules that programs may not import in Pyodide: they do nothing, or expose JavaScript.
    pub blocked_imports: Vec<String>,
    /// Installation directory of `ringfence setup deno` (default: in the state directory).
    pub directory: Option<PathBuf>,
    /// Directory of wheels that programs can import: pure Python ones, and compiled ones for this Pyodide.
    /// Those of its distribution are verified by their digests.
    pub packages: Option<PathBuf>,
    /// Idle interpreters kept for the next program, in a server or for an MCP client, for ten minutes after
    /// the last one. Each takes about 130 MiB.
    pub pool_size: u32,
}

impl Default for Pyodide {
    fn default() -> Self {
        Self {
            enabled: true,
            timeout_seconds: Timeout::seconds(5),
            memory_limit_mb: 128,
            deno_path: PathBuf::from("deno"),
            blocked_imports: values::texts(ringfence_imports::PYODIDE_BLOCKLIST),
            directory: None,
            packages: None,
            pool_size: 1,
        }
    }
}

/// Limits of containers by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Templates(pub BTreeMap<String, Template>);

/// A named set of limits for a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Template {
    /// Purpose of its sandboxes, as free text. It has no effect.
    pub plugin_name: Option<String>,
    /// Image of the container. Unset: that of `codeExecution.dockerImage`.
    pub image: Option<String>,
    /// Network access: `none`, or `restricted` to `allowed_hosts`.
    pub network_mode: values::NetworkMode,
    /// Hosts that `restricted` allows.
    pub allowed_hosts: Vec<String>,
    /// Memory limit of the container.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::memory::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub memory_limit: Bytes,
    /// CPU limit in cores.
    #[schemars(with = "f64")]
    pub cpu_limit: Cpus,
    /// Maximum number of processes and threads.
    #[schemars(with = "u32")]
    pub max_pids: Pids,
    /// Milliseconds, or a duration with its unit, until the container is killed.
    pub max_duration: values::Milliseconds,
    /// Name of the system-call filter.
    pub seccomp_profile: values::SeccompProfile,
    /// OCI runtime: `runc`, `crun`, `runsc` (gVisor), or `default`, the container engine's choice.
    pub oci_runtime: values::OciRuntime,
}

/// Hosts that the tool `http_fetch`, and programs with `sandbox.network = "allowlist"`, may reach.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Egress {
    /// Hosts, `*.suffix` patterns and `host:port`; `*` matches every public host. Empty: no host.
    pub allowed_hosts: Vec<String>,
    /// Address ranges that may be reached although they are not public, such as `127.0.0.0/8`.
    pub private_networks: Vec<String>,
    /// PEM file with further certificate authorities to trust.
    pub ca_file: Option<PathBuf>,
    /// Credentials added to requests on the way out, so that programs use them and never see them.
    pub inject: Vec<Inject>,
}

/// A credential for one host. A program requests `http://` and the host; the host is contacted over TLS, with
/// the header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inject {
    /// The host, such as `api.example.com`; with a port other than 443, `api.example.com:8443`.
    pub host: String,
    /// Name of the header, such as `Authorization`.
    pub header: String,
    /// Text before the value, such as `Bearer` and a space. Unset: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Environment variable that holds the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_env: Option<String>,
    /// File that holds the value, instead of a variable; only its owner may have permissions on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_file: Option<PathBuf>,
}

/// Records of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Artifacts {
    /// Runs to store: `always`, `on_error` or `never`.
    #[schemars(with = "values::StoreName")]
    pub store: StorePolicy,
    /// Directory of the records. Unset: `artifacts` in the state directory.
    pub dir: Option<PathBuf>,
    /// Maximum number of records; the oldest of the user with the most are removed first.
    pub keep: usize,
    /// Maximum total size of the records; the oldest of the user with the most are removed first.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Size")]
    pub max_total: Bytes,
    /// Days for which a record is kept; 0: until others need its place.
    pub keep_days: u32,
}

impl Artifacts {
    /// Returns the retention limits.
    pub fn kept(&self) -> Keep {
        Keep {
            records: self.keep,
            bytes: self.max_total.0,
            days: self.keep_days,
        }
    }
}

impl Default for Artifacts {
    fn default() -> Self {
        Self {
            store: StorePolicy::OnError,
            dir: None,
            keep: Keep::DEFAULT.records,
            max_total: Bytes(Keep::DEFAULT.bytes),
            keep_days: Keep::DEFAULT.days,
        }
    }
}

/// The log of every tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// Directory of the log. Unset: `audit` in the state directory.
    pub dir: Option<PathBuf>,
    /// Size at which a new file is started.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Size")]
    pub max_file: Bytes,
    /// Maximum number of files, between 2 and 500; the oldest are removed first. The log of commands on the
    /// host has as many.
    pub max_files: u32,
    /// Days for which the log of commands on the host keeps its records in any case: if it is full, no
    /// command starts.
    pub keep_host_days: u32,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            dir: None,
            max_file: Bytes::mib(16),
            max_files: 16,
            keep_host_days: 7,
        }
    }
}
