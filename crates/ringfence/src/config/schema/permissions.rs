//! Tools: their permissions and limits, and commands on the host.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringfence_policy::{Bytes, Timeout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::values;

/// Permissions of the tools.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Permissions {
    /// Tools that nobody may use.
    pub denied_tools: Vec<String>,
    /// Limits on the time and the output of a tool.
    pub tool_limits: ToolLimits,
    /// Runner of the tool `shell`.
    pub shell: Shell,
    /// Files that the file tools see.
    pub filesystem: Filesystem,
}

/// Limits on the time and the output of a tool; `<tool>_timeout_secs` sets one tool's timeout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolLimits {
    /// Timeout of a tool without its own, in seconds.
    #[schemars(with = "values::Duration")]
    pub default_timeout_secs: Timeout,
    /// Bytes kept of a tool's output.
    #[serde(serialize_with = "values::shown")]
    #[schemars(with = "values::Size")]
    pub max_output_bytes: Bytes,
    /// Timeout of `shell`, in seconds.
    #[schemars(with = "values::Duration")]
    pub shell_timeout_secs: Timeout,
    /// Timeout of `http_fetch`, in seconds.
    #[schemars(with = "values::Duration")]
    pub http_timeout_secs: Timeout,
    /// Timeout of tools that handle images and sound, in seconds.
    #[schemars(with = "values::Duration")]
    pub multimodal_timeout_secs: Timeout,
    /// Action at a tool's timeout: `deny` ends it, `extend` lets it continue, `ask` asks a person while it
    /// continues and ends it without approval, at once if no gateway is connected.
    pub at_limit: values::AtLimit,
    /// Seconds that a person has to decide whether a tool may continue.
    #[schemars(with = "values::Duration")]
    pub ask_timeout_secs: Timeout,
    /// Upper bound of an extended timeout, in seconds.
    #[schemars(with = "values::Duration")]
    pub hard_timeout_secs: Timeout,
    /// Timeouts of further tools, by `<tool>_timeout_secs`, in seconds.
    #[serde(flatten)]
    #[schemars(with = "BTreeMap<String, values::Duration>")]
    pub others: BTreeMap<String, Timeout>,
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

/// Runner of the tool `shell`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shell {
    /// Runner of commands: `fenced`, `container`, or `host`: on this machine itself, with your rights and
    /// without a fence; every command of the agent runs at once, without list, risk score or approval.
    pub runner: values::ShellRunner,
    /// Container engine: `docker` or `podman`.
    pub container_runtime: values::ContainerRuntime,
    /// Image of the container runner.
    pub container_image: String,
    /// Fallback if the container engine is unavailable: `none` (an error), `fenced` or `host`.
    pub container_fallback: values::ShellFallback,
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

/// Files that the file tools see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filesystem {
    /// Owner of a root directory: `none` (one root for all), each `user`, or each `session`.
    pub user_scope: values::UserScope,
    /// The root directory of a user or session; `{user_id}` and `{session_id}` are filled in.
    pub user_root: String,
    /// Names that file tools may read and never change, at any depth: programs of the host would execute
    /// them.
    pub protected: Vec<String>,
}

impl Default for Filesystem {
    fn default() -> Self {
        Self {
            user_scope: values::UserScope::None,
            user_root: "data/users/{user_id}".to_owned(),
            protected: values::texts(ringfence_exec::protected::PROTECTED),
        }
    }
}

/// Commands on the host itself, through the tool `host_exec`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct HostExecution {
    /// Offer the tool.
    pub enabled: bool,
    /// Patterns of commands that run without approval.
    pub allow_list: Vec<String>,
    /// Patterns of commands that run with a notification.
    pub notify_list: Vec<String>,
    /// Risk score by a model, for commands that match neither list.
    pub pre_validation: PreValidation,
    /// Minimum risk (0 to 10) of a command that is not in the table; below `riskThreshold`, the model may let
    /// it run.
    pub unknown_floor: values::Risk,
    /// Minutes until an unanswered question counts as denied.
    #[schemars(with = "values::Minutes")]
    pub ask_timeout_min: values::Minutes,
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

/// Risk score by a model, for commands that match neither list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct PreValidation {
    /// Ask the model; otherwise always ask a person.
    pub enabled: bool,
    /// The model, as `anthropic/MODEL` or `openai/MODEL`. Unset: always ask a person.
    pub model: Option<String>,
    /// API address, as `https://models.example.com/v1`; plain http on this machine alone. Unset: the
    /// provider's own.
    pub base_url: Option<String>,
    /// Environment variable that holds the key; empty if the API needs none. Unset: `ANTHROPIC_API_KEY` or
    /// `OPENAI_API_KEY`.
    pub api_key_env: Option<String>,
    /// File that holds the key, instead of a variable; only its owner may have permissions on it.
    pub api_key_file: Option<PathBuf>,
    /// PEM file with certificate authorities to trust for the API, in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Risk (0 to 10) at which a person is asked; commands of a lower risk run.
    pub risk_threshold: values::Risk,
    /// Timeout of the model in milliseconds, 1 to 60000.
    #[schemars(with = "values::Milliseconds")]
    pub timeout_ms: values::Milliseconds,
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
