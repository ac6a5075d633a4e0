//! Value types specific to the configuration.

use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use ringfence_exec::local::Fence;
use ringfence_policy::{Access, Cpus, EnvName, Mount, Timeout};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declares an enum of words, with its JSON Schema.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$word_meta:meta])* $variant:ident),+ $(,)? }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        $(#[$meta])*
        pub enum $name { $($(#[$word_meta])* $variant),+ }
    };
}

words! {
    /// Reaction to a layer of the fence that this machine lacks: refuse the run or report it.
    #[serde(rename_all = "kebab-case")]
    IsolationChoice {
        /// Refuse the run if any layer but control groups is missing and the machine has namespaces; best
        /// effort elsewhere.
        Auto,
        /// Refuse the run if a layer is missing, control groups included.
        Required,
        /// Report a missing layer.
        #[serde(alias = "best_effort")]
        BestEffort,
    }
}

impl IsolationChoice {
    /// Returns the fence of programs.
    pub fn fence(self) -> Fence {
        match self {
            Self::Required => Fence::Required,
            Self::BestEffort => Fence::BestEffort,
            Self::Auto => Fence::Default,
        }
    }
}

words! {
    /// Runner of the tool `shell`.
    #[serde(rename_all = "lowercase")]
    ShellRunner { Host, Container, Fenced }
}
words! {
    /// Action at a tool's time limit.
    #[serde(rename_all = "lowercase")]
    AtLimit { Deny, Extend, Ask }
}
words! {
    /// The container engine.
    #[serde(rename_all = "lowercase")]
    ContainerRuntime { Docker, Podman }
}
words! {
    /// Fallback if the container engine is unavailable.
    #[serde(rename_all = "lowercase")]
    Fallback { None, Local }
}
words! {
    /// Fallback for a container command if the container engine is unavailable.
    #[serde(rename_all = "lowercase")]
    ShellFallback { None, Fenced, Host }
}
words! {
    /// Fence of an MCP server.
    #[serde(rename_all = "lowercase")]
    ServerFence { Fenced, Host }
}
#[expect(clippy::derivable_impls, reason = "the enumeration is made by a macro")]
impl Default for ServerFence {
    fn default() -> Self {
        Self::Fenced
    }
}
words! {
    /// Owner of a root directory of the file tools.
    #[serde(rename_all = "lowercase")]
    UserScope { None, User, Session }
}
words! {
    /// Network access of a program.
    #[serde(rename_all = "lowercase")]
    NetworkKind { None, Allowlist }
}
words! {
    /// Network access of a container.
    #[serde(rename_all = "lowercase")]
    NetworkMode { None, Restricted }
}
words! {
    /// System-call filter of a container.
    #[serde(rename_all = "kebab-case")]
    SeccompProfile {
        Strict,
        Standard,
        #[serde(alias = "standard_net")]
        StandardNet,
    }
}

words! {
    /// OCI runtime of a container.
    #[serde(rename_all = "lowercase")]
    OciRuntime {
        /// The container engine's choice.
        Default,
        /// runc.
        Runc,
        /// crun.
        Crun,
        /// gVisor: a kernel of its own between the program and the host's.
        Runsc,
    }
}

/// A risk between 0 (reads only) and 10 (destroys irrecoverably).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Risk(u8);

impl Risk {
    /// Neither harmless nor dangerous.
    pub const MIDDLE: Self = Self(5);

    pub fn get(self) -> u8 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Risk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            risk @ 0..=10 => Ok(Self(risk as u8)),
            risk => Err(serde::de::Error::custom(format!(
                "risk `{risk}` is out of range; it must be between 0 and 10"
            ))),
        }
    }
}

impl JsonSchema for Risk {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Risk".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": 0, "maximum": 10})
    }
}

/// Deserialises a duration whose bare number has the unit `unit`.
fn duration<'de, D: Deserializer<'de>>(deserializer: D, unit: &str) -> Result<Timeout, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a whole number, or a text with a unit")]
    enum Form {
        Number(u64),
        Text(String),
    }
    let text = match Form::deserialize(deserializer)? {
        Form::Number(number) => format!("{number}{unit}"),
        Form::Text(text) => text,
    };
    text.parse().map_err(serde::de::Error::custom)
}

/// A duration whose bare number means milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Milliseconds(pub Timeout);

impl<'de> Deserialize<'de> for Milliseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        duration(deserializer, "ms").map(Self)
    }
}

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        shown(&self.0, serializer)
    }
}

impl JsonSchema for Milliseconds {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Milliseconds".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "milliseconds, or a text such as `500ms`, `5s` or `2m`",
            "type": ["integer", "string"],
        })
    }
}

/// A duration whose bare number means minutes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Minutes(pub Timeout);

impl<'de> Deserialize<'de> for Minutes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        duration(deserializer, "m").map(Self)
    }
}

impl Serialize for Minutes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        shown(&self.0, serializer)
    }
}

impl JsonSchema for Minutes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Minutes".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "minutes, or a text such as `30s`, `5m` or `2h`, up to 24h",
            "type": ["integer", "string"],
        })
    }
}

/// A loopback address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Listen(pub SocketAddr);

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let address: SocketAddr = text.parse().map_err(|_| {
            serde::de::Error::custom(format!(
                "`{text}` is not an address with a port, such as `127.0.0.1:8737` or `[::1]:8737`"
            ))
        })?;
        if address.ip().is_loopback() {
            return Ok(Self(address));
        }
        Err(serde::de::Error::custom(format!(
            "other machines could reach `{text}`; listen at 127.0.0.1 or [::1], and come from afar through \
             `ssh -L {port}:127.0.0.1:{port} THIS_MACHINE`",
            port = address.port()
        )))
    }
}

/// A mount of the configuration: `HOST:GUEST[:ro|rw]`, or an object.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeMount(pub Mount);

/// A mount as the configuration may write it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected `HOST:GUEST[:ro|rw]`, or an object with `hostPath` and `containerPath`"
)]
pub enum MountForm {
    Text(String),
    Object(MountObject),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct MountObject {
    #[serde(alias = "host_path")]
    host_path: String,
    #[serde(alias = "container_path")]
    container_path: String,
    /// Defaults to `true`, as in the text form.
    #[serde(alias = "read_only", default = "read_only")]
    read_only: bool,
}

fn read_only() -> bool {
    true
}

impl<'de> Deserialize<'de> for VolumeMount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "expected `HOST:GUEST[:ro|rw]`, or `hostPath`, `containerPath` and perhaps `readOnly`";
        let form = MountForm::deserialize(deserializer).map_err(|_| serde::de::Error::custom(expected))?;
        let mount = match form {
            MountForm::Text(text) => text.parse(),
            MountForm::Object(object) => {
                let access = match object.read_only {
                    true => Access::ReadOnly,
                    false => Access::ReadWrite,
                };
                Mount::new(object.host_path.into(), &object.container_path, access)
            }
        };
        mount.map(Self).map_err(serde::de::Error::custom)
    }
}

impl Serialize for VolumeMount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        shown(&self.0, serializer)
    }
}

/// The name of an environment variable.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct VariableName(pub EnvName);

impl<'de> Deserialize<'de> for VariableName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// Declares a stand-in for a policy type in the JSON Schema, since `policy` has no schemas.
macro_rules! schema_of {
    ($name:ident, $($json:tt)+) => {
        #[derive(Debug)]
        pub struct $name;
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($($json)+)
            }
        }
    };
}

schema_of!(StoreName, {"type": "string", "enum": ["always", "on_error", "never"]});
schema_of!(Size, {"description": "bytes, or a text such as `10KiB` or `256MiB`", "type": ["integer", "string"]});
schema_of!(Duration, {"description": "seconds, or a text such as `500ms`, `5s` or `2m`", "type": ["number", "string"]});

/// Serialises a quantity by its `Display` form.
pub fn shown<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[expect(
    clippy::expect_used,
    reason = "called with constants alone, and the tests build every default"
)]
pub fn cpus(text: &str) -> Cpus {
    text.parse().expect("a number of cpus")
}

#[expect(
    clippy::expect_used,
    reason = "called with constants alone, and the tests build every default"
)]
pub fn milliseconds(text: &str) -> Milliseconds {
    Milliseconds(text.parse().expect("a duration"))
}

#[expect(
    clippy::expect_used,
    reason = "called with constants alone, and the tests build every default"
)]
pub fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a number above 0")
}

pub fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
