//! The types of single values that only the configuration knows.

use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use ringfence_policy::{Access, Cpus, EnvName, Mount, Timeout};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A closed set of words, with the JSON Schema that names them.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$word_meta:meta])* $variant:ident),+ $(,)? }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        $(#[$meta])*
        pub(crate) enum $name { $($(#[$word_meta])* $variant),+ }
    };
}

words! {
    /// Whether a layer of the fence that this machine lacks refuses the run.
    #[serde(rename_all = "kebab-case")]
    IsolationChoice {
        /// A missing layer but control groups refuses the run wherever the machine has namespaces; best effort elsewhere.
        Auto,
        /// A missing layer refuses the run, control groups included.
        Required,
        /// A missing layer is reported.
        #[serde(alias = "best_effort")]
        BestEffort,
    }
}
words! {
    /// How the tool `shell` runs its commands.
    #[serde(rename_all = "lowercase")]
    ShellRunner { Host, Container, Fenced }
}
words! {
    /// What happens at a tool's time limit.
    #[serde(rename_all = "lowercase")]
    AtLimit { Deny, Extend, Ask }
}
words! {
    /// The container engine.
    #[serde(rename_all = "lowercase")]
    ContainerRuntime { Docker, Podman }
}
words! {
    /// What happens where a container is asked for, and there is no container engine.
    #[serde(rename_all = "lowercase")]
    Fallback { None, Local }
}
words! {
    /// What runs a command that a container should run, where there is no container engine.
    #[serde(rename_all = "lowercase")]
    ShellFallback { None, Fenced, Host }
}
words! {
    /// How strongly an MCP server is fenced.
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
    /// Who has a file root of its own.
    #[serde(rename_all = "lowercase")]
    UserScope { None, User, Session }
}
words! {
    /// The network of a program.
    #[serde(rename_all = "lowercase")]
    NetworkKind { None, Allowlist }
}
words! {
    /// A container's network.
    #[serde(rename_all = "lowercase")]
    NetworkMode { None, Restricted }
}
words! {
    /// A container's system-call filter.
    #[serde(rename_all = "kebab-case")]
    SeccompProfile {
        Strict,
        Standard,
        #[serde(alias = "standard_net")]
        StandardNet,
    }
}

words! {
    /// What makes a container.
    #[derive(clap::ValueEnum)]
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

/// A risk between 0 (reads only) and 10 (destroys for good).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Risk(u8);

impl Risk {
    /// Neither harmless nor dangerous.
    pub(crate) const MIDDLE: Self = Self(5);

    /// The number.
    pub(crate) fn get(self) -> u8 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Risk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            risk @ 0..=10 => Ok(Self(risk as u8)),
            risk => Err(serde::de::Error::custom(format!(
                "risk `{risk}` is out of range; it must lie between 0 and 10"
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

/// A duration whose bare number has the unit `unit`.
fn duration<'de, D: Deserializer<'de>>(deserializer: D, unit: &str) -> Result<Timeout, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
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
pub(crate) struct Milliseconds(pub(crate) Timeout);

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
pub(crate) struct Minutes(pub(crate) Timeout);

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

/// An address that only this machine reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let address: SocketAddr = text.parse().map_err(|_| {
            serde::de::Error::custom(format!(
                "`{text}` is no address with a port, such as `127.0.0.1:8737` or `[::1]:8737`"
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
pub(crate) struct VolumeMount(pub(crate) Mount);

/// A mount as the configuration may write it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum MountForm {
    Text(String),
    Object(MountObject),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct MountObject {
    #[serde(alias = "host_path")]
    host_path: String,
    #[serde(alias = "container_path")]
    container_path: String,
    /// Read-only unless this is `false`, as in a text.
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
pub(crate) struct VariableName(pub(crate) EnvName);

impl<'de> Deserialize<'de> for VariableName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// Stands for a policy type in the JSON Schema, since `policy` knows no schemas.
macro_rules! schema_of {
    ($name:ident, $($json:tt)+) => {
        #[derive(Debug)]
        pub(crate) struct $name;
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

schema_of!(RuntimeName, {"type": "string", "enum": ["local", "docker", "podman", "pyodide", "e2b"]});
schema_of!(StoreName, {"type": "string", "enum": ["always", "on_error", "never"]});
schema_of!(Size, {"description": "bytes, or a text such as `10KiB` or `256MiB`", "type": ["integer", "string"]});
schema_of!(Duration, {"description": "seconds, or a text such as `500ms`, `5s` or `2m`", "type": ["number", "string"]});

/// Serialises a quantity the way a person writes it.
pub(crate) fn shown<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[expect(
    clippy::expect_used,
    reason = "called with constants alone, and the tests build every default"
)]
pub(crate) fn cpus(text: &str) -> Cpus {
    text.parse().expect("a number of cpus")
}

#[expect(
    clippy::expect_used,
    reason = "called with constants alone, and the tests build every default"
)]
pub(crate) fn milliseconds(text: &str) -> Milliseconds {
    Milliseconds(text.parse().expect("a duration"))
}

#[expect(
    clippy::expect_used,
    reason = "called with constants alone, and the tests build every default"
)]
pub(crate) fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a number above 0")
}

pub(crate) fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
