//! The JSON documents of images: indexes, manifests, configurations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest::Digest;
use crate::platform;

/// Maximum number of variables of an image, and of their bytes.
const MAX_VARIABLES: usize = 256;
const MAX_VARIABLE_BYTES: usize = 64 * 1024;

/// Layers that registries must not pass on: their content is at another address.
const ELSEWHERE: &[&str] = &["nondistributable", "foreign"];

/// An error in a document of an image.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("{what} is not valid")]
    Malformed {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("{0}")]
    Invalid(String),
    #[error("the manifest has schema version 1, which is not supported")]
    Schema1,
    #[error("the image has no variant for linux/{wanted}, only for {found}")]
    Platform { wanted: &'static str, found: String },
    #[error("the layer type `{0}` is not supported")]
    Layer(String),
    #[error("{what} has more than {most}")]
    TooMany { what: &'static str, most: String },
}

impl DocumentError {
    /// Returns a hint for the user.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Schema1 => "push the image again with a current tool, which writes schema version 2",
            Self::Platform { .. } => "choose an image that is built for this machine",
            Self::Layer(_) => "build the image with layers that are tar archives",
            Self::Malformed { .. } | Self::Invalid(_) | Self::TooMany { .. } => {
                "the image is invalid: rebuild it; nothing was stored"
            }
        }
    }
}

/// A reference from one document to another blob.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) platform: Option<Platform>,
    #[serde(default)]
    pub(crate) annotations: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// A manifest, or an index of several.
#[derive(Debug)]
pub(crate) enum Document {
    Index(Vec<Descriptor>),
    Manifest(Manifest),
}

#[derive(Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

impl Document {
    /// Reads a document by its fields, since the media type is unverified.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DocumentError> {
        const WHAT: &str = "the manifest";
        let malformed = |source| DocumentError::Malformed { what: WHAT, source };
        let value: Value = serde_json::from_slice(bytes).map_err(malformed)?;
        if value.get("schemaVersion").and_then(Value::as_u64) == Some(1) {
            return Err(DocumentError::Schema1);
        }
        match (value.get("manifests"), value.get("layers")) {
            (Some(manifests), None) => Vec::deserialize(manifests).map(Self::Index),
            (None, Some(_)) => Manifest::deserialize(&value).map(Self::Manifest),
            // Two readers could see two images in it.
            (Some(_), Some(_)) | (None, None) => {
                let message = format!("{WHAT} has neither layers nor manifests, or both");
                return Err(DocumentError::Invalid(message));
            }
        }
        .map_err(malformed)
    }
}

impl Manifest {
    /// Rejects layers that are not tar archives here.
    pub(crate) fn check(&self, most: usize) -> Result<(), DocumentError> {
        if self.layers.len() > most {
            return Err(too_many_layers(most));
        }
        for layer in &self.layers {
            let kind = &layer.media_type;
            let is_tar = kind.is_empty() || kind.contains(".tar") || kind.ends_with("tar.gzip");
            if !is_tar || ELSEWHERE.iter().any(|word| kind.contains(word)) {
                return Err(DocumentError::Layer(kind.chars().take(100).collect()));
            }
        }
        Ok(())
    }
}

/// Returns the manifest for this machine in an index.
pub(crate) fn choose(manifests: &[Descriptor]) -> Result<&Descriptor, DocumentError> {
    let wanted = platform::architecture();
    let suits = |descriptor: &&Descriptor| {
        let platform = descriptor.platform.as_ref();
        platform.is_some_and(|platform| platform.os == platform::OS && platform.architecture == wanted)
    };
    if let Some(found) = manifests.iter().find(suits) {
        return Ok(found);
    }
    // A single manifest may leave its platform to its configuration.
    if let [only @ Descriptor { platform: None, .. }] = manifests {
        return Ok(only);
    }
    let platforms = manifests
        .iter()
        .filter_map(|descriptor| descriptor.platform.as_ref());
    let names = platforms
        .take(20)
        .map(|platform| format!("{}/{}", platform.os, platform.architecture));
    Err(DocumentError::Platform {
        wanted,
        found: listed(names.collect()),
    })
}

fn listed(names: Vec<String>) -> String {
    match names.is_empty() {
        true => "no platform".to_owned(),
        false => names.join(", "),
    }
}

/// The configuration of an image.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Configuration {
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) config: Option<Process>,
    pub(crate) rootfs: RootLayers,
}

/// The digests of the layers after decompression, from the lowest.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RootLayers {
    pub(crate) diff_ids: Vec<Digest>,
}

/// The process that the image is made for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Process {
    #[serde(default, deserialize_with = "nullable")]
    pub env: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub working_dir: String,
    #[serde(default, deserialize_with = "nullable")]
    pub user: String,
    #[serde(default, deserialize_with = "nullable")]
    pub entrypoint: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub cmd: Vec<String>,
}

/// Reads `null` as the default: Go writes it for an empty list.
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Configuration {
    /// Reads a configuration, and checks that the image is for this machine.
    pub(crate) fn read(bytes: &[u8], most_layers: usize) -> Result<Self, DocumentError> {
        let what = "the configuration of the image";
        let read: Self =
            serde_json::from_slice(bytes).map_err(|source| DocumentError::Malformed { what, source })?;
        let wanted = platform::architecture();
        if read.os != platform::OS || read.architecture != wanted {
            let found = format!("{}/{}", read.os, read.architecture);
            return Err(DocumentError::Platform { wanted, found });
        }
        if read.rootfs.diff_ids.len() > most_layers {
            return Err(too_many_layers(most_layers));
        }
        let variables = read.config.iter().flat_map(|process| &process.env);
        let bytes: usize = variables.clone().map(String::len).sum();
        if variables.count() > MAX_VARIABLES || bytes > MAX_VARIABLE_BYTES {
            return Err(DocumentError::TooMany {
                what: "the environment of the image",
                most: format!("{MAX_VARIABLES} variables or {MAX_VARIABLE_BYTES} bytes"),
            });
        }
        Ok(read)
    }

    /// Returns the configuration of a root file system without one.
    pub(crate) fn of_root(layer: Digest) -> Vec<u8> {
        let document = serde_json::json!({
            "architecture": platform::architecture(),
            "os": platform::OS,
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer]},
        });
        document.to_string().into_bytes()
    }
}

fn too_many_layers(most: usize) -> DocumentError {
    DocumentError::TooMany {
        what: "the image",
        most: format!("{most} layers"),
    }
}
