//! Every key of the configuration, its type, its default and its meaning.
//!
//! This is the one schema: the loader takes the known keys from the serialised default, `config schema`
//! and the reference page come from the derived JSON Schema. Keys may be written in `camelCase` or
//! `snake_case`; the spelling here is the one that we print.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use ringfence_policy::{Bytes, Cpus, Limits, Pids, RuntimeKind, Timeout};
use ringfence_runtime::artifact::{Keep, StorePolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use super::gateways::Gateway;
use super::values;

/// Configuration of Ringfence.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// How code is run, and within which limits.
    pub(crate) sandbox: Sandbox,
    /// What the tools may do.
    pub(crate) permissions: Permissions,
    /// The container that the tool `sandbox_exec` runs code in.
    #[serde(rename = "codeExecution")]
    pub(crate) code_execution: CodeExecution,
    /// Commands on the host itself, through the tool `host_exec`.
    #[serde(rename = "hostExecution")]
    pub(crate) host_execution: HostExecution,
    /// Host functions that sandboxed code may call.
    pub(crate) skills: Skills,
    /// Named sets of limits for containers; further names may be added.
    #[schemars(with = "BTreeMap<String, Template>")]
    pub(crate) templates: Templates,
    /// What the tool `http_fetch`, and programs with `sandbox.network = "allowlist"`, may reach.
    pub(crate) egress: Egress,
    /// What is kept of each run.
    pub(crate) artifacts: Artifacts,
    /// The log of every use of a tool.
    pub(crate) audit: Audit,
    /// The engine that keeps workers warm.
    pub(crate) engine: Engine,
    /// Where people are asked for approval.
    pub(crate) gateway: Gateway,
}

/// How code is run, and within which limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Sandbox {
    /// The runtime: `local`, `docker`, `podman`, `pyodide` or `e2b`.
    #[serde(rename = "type")]
    #[schemars(with = "values::RuntimeName")]
    pub(crate) runtime: RuntimeKind,
    /// Wall time until a run is killed.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub(crate) timeout: Timeout,
    /// How much of stdout, and how much of stderr, is kept.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Size")]
    pub(crate) max_output: Bytes,
    /// Memory of all processes of a run together.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::memory::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub(crate) memory: Bytes,
    /// Cores' worth of processor time.
    #[schemars(with = "f64")]
    pub(crate) cpus: Cpus,
    /// Processes and threads at once.
    #[schemars(with = "u32")]
    pub(crate) pids: Pids,
    /// Bytes in the writable directories together.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::disk::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub(crate) disk: Bytes,
    /// The Python interpreter; a virtual environment's brings its packages. Unset: `python3` of the PATH.
    pub(crate) python: Option<PathBuf>,
    /// Node or Deno. Unset: the first one on the PATH.
    pub(crate) javascript: Option<PathBuf>,
    /// Modules imported by the warm Python beforehand, such as `numpy`.
    pub(crate) preload: Vec<String>,
    /// How long the import of one of them may take. One that fails or takes longer is left out, and reported.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub(crate) preload_timeout: Timeout,
    /// Whether a layer of the fence that this machine lacks refuses the run.
    pub(crate) isolation: values::IsolationChoice,
    /// Refuse programs that import one of `blocked_imports`, before they run.
    pub(crate) block_dangerous_imports: bool,
    /// The modules that `block_dangerous_imports` refuses.
    pub(crate) blocked_imports: Vec<String>,
    /// Names of environment variables of the caller that programs may see.
    #[schemars(with = "Vec<String>")]
    pub(crate) pass_env: Vec<values::VariableName>,
    /// What programs may reach: nothing, or the hosts of `egress`.
    pub(crate) network: values::NetworkKind,
    /// The container of the `docker` and `podman` runtimes.
    pub(crate) docker: Docker,
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
        }
    }
}

/// The container of the `docker` and `podman` runtimes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Docker {
    /// The image.
    pub(crate) image: String,
    /// Give the container a network.
    pub(crate) network_enabled: bool,
    /// Cores' worth of processor time.
    #[schemars(with = "f64")]
    pub(crate) cpu_limit: Cpus,
    /// Memory of the container.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::memory::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub(crate) memory_limit: Bytes,
    /// What makes the container: `runc`, `crun`, `runsc` (gVisor), or `default`, the container engine's choice.
    pub(crate) oci_runtime: values::OciRuntime,
    /// What runs programs where there is no container engine: `local`, the fence of this machine, or `none`.
    pub(crate) fallback: values::Fallback,
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

/// What the tools may do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Permissions {
    /// Tools that nobody may use.
    pub(crate) denied_tools: Vec<String>,
    /// How long a tool may take and how much it may print.
    pub(crate) tool_limits: ToolLimits,
    /// How the tool `shell` runs its commands.
    pub(crate) shell: Shell,
    /// Which files the file tools see.
    pub(crate) filesystem: Filesystem,
}

/// How long a tool may take and how much it may print; `<tool>_timeout_secs` sets one tool's limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ToolLimits {
    /// Seconds for a tool without a limit of its own.
    #[schemars(with = "values::Duration")]
    pub(crate) default_timeout_secs: Timeout,
    /// Bytes of a tool's output that are kept.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Size")]
    pub(crate) max_output_bytes: Bytes,
    /// Seconds for `shell`.
    #[schemars(with = "values::Duration")]
    pub(crate) shell_timeout_secs: Timeout,
    /// Seconds for `http_fetch`.
    #[schemars(with = "values::Duration")]
    pub(crate) http_timeout_secs: Timeout,
    /// Seconds for tools that handle images and sound.
    #[schemars(with = "values::Duration")]
    pub(crate) multimodal_timeout_secs: Timeout,
    /// What happens at a tool's limit: `deny` ends it, `extend` lets it go on, `ask` asks a person while it goes on
    /// and ends it without a yes, at once where no gateway is connected.
    pub(crate) at_limit: values::AtLimit,
    /// Seconds that a person has to answer whether a tool may go on.
    #[schemars(with = "values::Duration")]
    pub(crate) ask_timeout_secs: Timeout,
    /// Seconds that an extended limit ends at, in any case.
    #[schemars(with = "values::Duration")]
    pub(crate) hard_timeout_secs: Timeout,
    /// Seconds for further tools, by `<tool>_timeout_secs`.
    #[serde(flatten)]
    #[schemars(with = "BTreeMap<String, values::Duration>")]
    pub(crate) others: BTreeMap<String, Timeout>,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self {
            default_timeout_secs: Timeout::seconds(60),
            max_output_bytes: Bytes::mib(1),
            shell_timeout_secs: Timeout::seconds(120),
            http_timeout_secs: Timeout::seconds(30),
            multimodal_timeout_secs: Timeout::seconds(120),
            at_limit: values::AtLimit::Deny,
            ask_timeout_secs: Timeout::seconds(60),
            hard_timeout_secs: Timeout::seconds(600),
            others: BTreeMap::new(),
        }
    }
}

/// How the tool `shell` runs its commands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Shell {
    /// `fenced`, `container`, or `host`: on this machine itself, with your rights and without a fence.
    pub(crate) runner: values::ShellRunner,
    /// `docker` or `podman`.
    pub(crate) container_runtime: values::ContainerRuntime,
    /// The image of the container runner.
    pub(crate) container_image: String,
    /// What runs commands where there is no container engine: `none` is an error, or `fenced`, or `host`.
    pub(crate) container_fallback: values::ShellFallback,
}

impl Default for Shell {
    fn default() -> Self {
        Self {
            runner: values::ShellRunner::Fenced,
            container_runtime: values::ContainerRuntime::Docker,
            container_image: "alpine:latest".to_owned(),
            container_fallback: values::ShellFallback::None,
        }
    }
}

/// Which files the file tools see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Filesystem {
    /// Whether each user, or each session, has a root of its own.
    pub(crate) user_scope: values::UserScope,
    /// That root; `{user_id}` and `{session_id}` are filled in.
    pub(crate) user_root: String,
    /// What file tools may read and never change, at any depth: programs of the host would execute it.
    pub(crate) protected: Vec<String>,
}

impl Default for Filesystem {
    fn default() -> Self {
        Self {
            user_scope: values::UserScope::None,
            user_root: "data/users/{user_id}".to_owned(),
            protected: values::texts(ringfence_runtime::files::PROTECTED),
        }
    }
}

/// The container that the tool `sandbox_exec` runs code in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CodeExecution {
    /// `docker` or `podman`.
    pub(crate) container_runtime: values::ContainerRuntime,
    /// What happens without it: `none` is an error, `local` the fence of this machine.
    pub(crate) fallback: values::Fallback,
    /// The image.
    pub(crate) docker_image: String,
    /// Wall time until a call is killed.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub(crate) timeout: Timeout,
    /// Give programs a network: the hosts of `egress.allowed_hosts`, or the engine's bridge where none is named.
    pub(crate) allow_network: bool,
    /// Memory of the container.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::memory::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub(crate) max_memory: Bytes,
    /// Bytes in each directory that its programs may write: `/workspace`, unless that is the caller's, `/output` and `/tmp`.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::disk::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub(crate) max_disk: Bytes,
    /// Cores' worth of processor time.
    #[schemars(with = "f64")]
    pub(crate) max_cpus: Cpus,
    /// One container serves many calls.
    pub(crate) keep_alive: bool,
    /// Idle minutes after which that container is removed.
    #[schemars(with = "values::Minutes")]
    pub(crate) keep_alive_idle_timeout_min: values::Minutes,
    /// Calls after which that container is replaced, at least 1.
    pub(crate) keep_alive_max_executions: NonZeroU32,
    /// Host paths that the container sees, as `HOST:GUEST[:ro|rw]`, or as `hostPath`, `containerPath` and `readOnly` (true).
    #[schemars(with = "Vec<values::MountForm>")]
    pub(crate) volume_mounts: Vec<values::VolumeMount>,
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

/// Commands on the host itself, through the tool `host_exec`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct HostExecution {
    /// Offer the tool at all.
    pub(crate) enabled: bool,
    /// Patterns of commands that run at once.
    pub(crate) allow_list: Vec<String>,
    /// Patterns of commands that run and notify.
    pub(crate) notify_list: Vec<String>,
    /// The model's opinion of commands that match neither list.
    pub(crate) pre_validation: PreValidation,
    /// The lowest risk (0 to 10) of a command that is not in the table; below `riskThreshold`, the model may let it run.
    pub(crate) unknown_floor: values::Risk,
    /// Minutes until an unanswered question counts as a refusal.
    #[schemars(with = "values::Minutes")]
    pub(crate) ask_timeout_min: values::Minutes,
}

impl Default for HostExecution {
    fn default() -> Self {
        Self {
            enabled: false,
            allow_list: Vec::new(),
            notify_list: Vec::new(),
            pre_validation: PreValidation::default(),
            unknown_floor: values::Risk::MIDDLE,
            ask_timeout_min: values::Minutes(Timeout::seconds(5 * 60)),
        }
    }
}

/// The model's opinion of commands that match neither list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PreValidation {
    /// Ask the model; otherwise a person is always asked.
    pub(crate) enabled: bool,
    /// The model, as `anthropic/MODEL` or `openai/MODEL`. Unset: a person is always asked.
    pub(crate) model: Option<String>,
    /// The server, as `https://models.example.com/v1`; plain http on this machine alone. Unset: the provider's own.
    pub(crate) base_url: Option<String>,
    /// The environment variable that holds the key; empty if the server wants none. Unset: `ANTHROPIC_API_KEY` or
    /// `OPENAI_API_KEY`.
    pub(crate) api_key_env: Option<String>,
    /// A file that holds the key, instead of a variable; nobody but its owner may have rights to it.
    pub(crate) api_key_file: Option<PathBuf>,
    /// A PEM file with certificate authorities to trust for the server besides those of the system.
    pub(crate) ca_file: Option<PathBuf>,
    /// Commands of a lower risk (0 to 10) run; the others are asked about.
    pub(crate) risk_threshold: values::Risk,
    /// Milliseconds until the model counts as unreachable, 1 to 60000.
    #[schemars(with = "values::Milliseconds")]
    pub(crate) timeout_ms: values::Milliseconds,
}

impl Default for PreValidation {
    fn default() -> Self {
        Self {
            enabled: true,
            model: None,
            base_url: None,
            api_key_env: None,
            api_key_file: None,
            ca_file: None,
            risk_threshold: values::Risk::MIDDLE,
            timeout_ms: values::Milliseconds(Timeout::seconds(5)),
        }
    }
}

/// Host functions that sandboxed code may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Skills {
    /// The directory of skill files. Unset: no skills.
    pub(crate) path: Option<PathBuf>,
    /// The functions that may be called: `Skill.function`, `Skill.*` or `*`. With `USER:` before it, an element is for that
    /// user, who then may call nothing that is not named so.
    pub(crate) allow: Vec<String>,
    /// Functions whose every call you are told of.
    pub(crate) notify: Vec<String>,
    /// Functions whose every call you are asked about.
    pub(crate) ask: Vec<String>,
    /// Calls of one run.
    pub(crate) max_calls: NonZeroU32,
    /// Calls of one run in a second, on average; more have to wait.
    pub(crate) calls_per_second: NonZeroU32,
    /// How long one call may take, your answer not counted. The run's own time goes on meanwhile.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub(crate) call_timeout: Timeout,
    /// How long you have to answer.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub(crate) ask_timeout: Timeout,
    /// MCP servers whose tools can be called, by name: `get-day` of the server `calendar` is `calendar.get_day`.
    pub(crate) servers: BTreeMap<String, Server>,
    /// How long a file of skills may take until it is loaded, or an MCP server until it has said what it offers.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Duration")]
    pub(crate) start_timeout: Timeout,
    /// Memory of the process that serves one file of skills, and of that of an MCP server.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::memory::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub(crate) memory: Bytes,
    /// The Pyodide sandbox that calls them.
    pub(crate) sandbox: SkillSandbox,
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
            sandbox: SkillSandbox::default(),
        }
    }
}

/// An MCP server: a program that is started at its first use, or one that is there already.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    /// The program with its arguments. It speaks on its standard streams.
    pub(crate) command: Vec<String>,
    /// Instead of a program: where the server is, such as `https://mcp.example.com/mcp`.
    pub(crate) url: Option<String>,
    /// Headers that it wants to see.
    pub(crate) headers: Vec<ServerHeader>,
    /// Paths that the program sees, as `HOST:GUEST[:ro|rw]`; it sees nothing else of this machine's files.
    pub(crate) mounts: Vec<String>,
    /// Hosts that it may reach, such as `api.example.com:443`.
    pub(crate) hosts: Vec<String>,
    /// Its environment: `NAME` has the value that it has here, `NAME=value` this one.
    pub(crate) env: Vec<String>,
    /// `fenced` like a skill; on the `host` it may do whatever you may.
    pub(crate) fence: values::ServerFence,
}

/// A header for an MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerHeader {
    /// The header, such as `Authorization`.
    pub(crate) header: String,
    /// What stands before the value in it, such as `Bearer` and a space. Unset: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<String>,
    /// The environment variable that holds the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value_env: Option<String>,
    /// A file that holds the value, instead of a variable; nobody but its owner may have rights to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value_file: Option<PathBuf>,
}

/// The Pyodide sandbox that calls skills.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SkillSandbox {
    /// `false` runs what is meant for Pyodide in the local fence, and says so in each result: for development only.
    pub(crate) enabled: bool,
    /// Seconds until a call is killed.
    #[schemars(with = "values::Duration")]
    pub(crate) timeout_seconds: Timeout,
    /// Memory in mebibytes.
    pub(crate) memory_limit_mb: u32,
    /// The Deno program. `deno`: that of `ringfence setup deno`.
    pub(crate) deno_path: PathBuf,
    /// Modules that programs may not import there: they do nothing, or lead to JavaScript.
    pub(crate) blocked_imports: Vec<String>,
    /// Where `ringfence setup deno` puts Deno and Pyodide (default: in the state directory).
    pub(crate) directory: Option<PathBuf>,
    /// A directory of wheels that programs can import: pure Python ones, and compiled ones for this Pyodide. Those of its
    /// distribution are checked by their digests.
    pub(crate) packages: Option<PathBuf>,
    /// Interpreters that wait for the next program in an engine, or for the next of an MCP client, for ten minutes after one. Each
    /// takes about 130 MiB.
    pub(crate) pool_size: u32,
}

impl Default for SkillSandbox {
    fn default() -> Self {
        Self {
            enabled: true,
            timeout_seconds: Timeout::seconds(5),
            memory_limit_mb: 128,
            deno_path: PathBuf::from("deno"),
            blocked_imports: values::texts(ringfence_runtime::imports::PYODIDE_BLOCKLIST),
            directory: None,
            packages: None,
            pool_size: 1,
        }
    }
}

/// Containers' limits by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Templates(pub(crate) BTreeMap<String, Template>);

/// A named set of limits for a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Template {
    /// What its sandboxes are for, in the reader's words. Nothing depends on it.
    pub(crate) plugin_name: Option<String>,
    /// The image. Unset: that of `codeExecution.dockerImage`.
    pub(crate) image: Option<String>,
    /// `none`, or `restricted` to `allowed_hosts`.
    pub(crate) network_mode: values::NetworkMode,
    /// Hosts that `restricted` lets through.
    pub(crate) allowed_hosts: Vec<String>,
    /// Memory of the container.
    #[serde(
        serialize_with = "values::shown",
        deserialize_with = "ringfence_policy::memory::deserialize"
    )]
    #[schemars(with = "values::Size")]
    pub(crate) memory_limit: Bytes,
    /// Cores' worth of processor time.
    #[schemars(with = "f64")]
    pub(crate) cpu_limit: Cpus,
    /// Processes and threads at once.
    #[schemars(with = "u32")]
    pub(crate) max_pids: Pids,
    /// Milliseconds, or a duration with its unit, until the container is killed.
    pub(crate) max_duration: values::Milliseconds,
    /// The system-call filter.
    pub(crate) seccomp_profile: values::SeccompProfile,
    /// What makes the container: `runc`, `crun`, `runsc` (gVisor), or `default`, the container engine's choice.
    pub(crate) oci_runtime: values::OciRuntime,
}

/// What the tool `http_fetch`, and programs with `sandbox.network = "allowlist"`, may reach.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Egress {
    /// Hosts, `*.suffix` patterns and `host:port`; `*` is every public host. None: nothing is reached.
    pub(crate) allowed_hosts: Vec<String>,
    /// Ranges of addresses that may be reached though they are not public, such as `127.0.0.0/8`.
    pub(crate) private_networks: Vec<String>,
    /// A PEM file with further certificate authorities to believe.
    pub(crate) ca_file: Option<PathBuf>,
    /// Credentials that are added on the way out, so that programs use them and never see them.
    pub(crate) inject: Vec<Inject>,
}

/// A credential for one host. A program asks for `http://` and the host; the host is asked over TLS, with the header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inject {
    /// The host, such as `api.example.com`; with a port other than 443, `api.example.com:8443`.
    pub(crate) host: String,
    /// The header, such as `Authorization`.
    pub(crate) header: String,
    /// What stands before the value in it, such as `Bearer` and a space. Unset: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<String>,
    /// The environment variable that holds the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value_env: Option<String>,
    /// A file that holds the value, instead of a variable; nobody but its owner may have rights to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value_file: Option<PathBuf>,
}

/// What is kept of each run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Artifacts {
    /// Which runs are stored: `always`, `on_error` or `never`.
    #[schemars(with = "values::StoreName")]
    pub(crate) store: StorePolicy,
    /// Where. Unset: `artifacts` in the state directory.
    pub(crate) dir: Option<PathBuf>,
    /// How many are kept; the oldest go first, of the user who has the most.
    pub(crate) keep: usize,
    /// How much they are together; the oldest go first, of the user who has the most.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Size")]
    pub(crate) max_total: Bytes,
}

impl Artifacts {
    /// How much is kept.
    pub(crate) fn kept(&self) -> Keep {
        Keep {
            records: self.keep,
            bytes: self.max_total.0,
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
        }
    }
}

/// The log of every use of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Audit {
    /// Where. Unset: `audit` in the state directory.
    pub(crate) dir: Option<PathBuf>,
    /// The length at which a file is closed and the next one begun.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Size")]
    pub(crate) max_file: Bytes,
    /// Files that are kept, between 2 and 500; the oldest go first. The log of commands on the host has as many.
    pub(crate) max_files: u32,
    /// Days for which the log of commands on the host keeps its records whatever comes: where it has no more room, no
    /// command begins.
    pub(crate) keep_host_days: u32,
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

/// The engine that keeps workers warm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Engine {
    /// Warm workers kept ready.
    pub(crate) pool_size: u32,
    /// Containers kept ready for runs, those of Docker and Podman together; up to four times as many while runs come faster
    /// than containers are made; 0: none.
    pub(crate) container_pool_size: u32,
    /// Runs at once.
    pub(crate) max_concurrent: u32,
    /// Requests that may wait; further ones are told "busy".
    pub(crate) queue: u32,
    /// Runs after which a warm Python is replaced.
    pub(crate) rotate_after_runs: u32,
    /// Minutes after which a warm Python is replaced.
    pub(crate) rotate_after_minutes: u32,
    /// Sessions at once, those of all users together.
    pub(crate) max_sessions: u32,
    /// Minutes, or a duration with its unit, after which a session that nobody uses is ended.
    pub(crate) session_idle_minutes: values::Minutes,
    /// Minutes, or a duration with its unit, after which any session is ended.
    pub(crate) session_lifetime_minutes: values::Minutes,
    /// Serve the web console, on which a person answers questions.
    pub(crate) console: bool,
    /// The console's address on this machine, such as `127.0.0.1:8737`. Unset, or with port 0: 127.0.0.1 at another port
    /// for each start.
    #[schemars(with = "Option<String>")]
    pub(crate) listen: Option<values::Listen>,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            pool_size: 8,
            container_pool_size: 2,
            max_concurrent: 16,
            queue: 256,
            rotate_after_runs: 1_000,
            rotate_after_minutes: 30,
            max_sessions: 16,
            session_idle_minutes: values::Minutes(Timeout::seconds(30 * 60)),
            session_lifetime_minutes: values::Minutes(Timeout::seconds(480 * 60)),
            console: true,
            listen: None,
        }
    }
}
