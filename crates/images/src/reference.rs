//! References of images, with Docker's short forms.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::digest::{Digest, ParseDigestError};

/// Default registry of references, as with Docker.
pub(crate) const DEFAULT_REGISTRY: &str = "docker.io";
/// Another name of the default registry.
pub(crate) const DEFAULT_ALIAS: &str = "index.docker.io";
/// The host that serves the default registry.
pub(crate) const DEFAULT_HOST: &str = "registry-1.docker.io";
/// Folder of the default registry's images whose names have one part.
const DEFAULT_FOLDER: &str = "library";
const DEFAULT_TAG: &str = "latest";

/// Maximum length of a registry and a name together, as registries have it.
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// A reference in full: registry, name, and a tag or digest or both.
///
/// The digest decides if both are there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    registry: String,
    name: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// An error returned when parsing a reference from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseReferenceError {
    #[error(
        "expected a reference such as `python:3.12` or `registry.example.com:5000/team/app:1`, found {0:?}: {1}"
    )]
    Invalid(String, &'static str),
    #[error(transparent)]
    Digest(#[from] ParseDigestError),
}

impl Reference {
    /// Returns the registry, by which its credentials are known.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the host and optional port that serve the registry.
    pub fn host(&self) -> &str {
        match self.registry.as_str() {
            DEFAULT_REGISTRY => DEFAULT_HOST,
            other => other,
        }
    }

    /// Returns the name of the image within its registry.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tag or the digest, by which registries know the manifest.
    pub fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }

    /// Returns the digest of the manifest, if the reference has one.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }
}

impl FromStr for Reference {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |why| ParseReferenceError::Invalid(text.chars().take(300).collect(), why);
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse()?)),
            None => (text, None),
        };
        // A colon before a slash belongs to a port.
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag.to_owned())),
            _ => (rest, None),
        };
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid(
                "its tag has other characters than letters, digits, `.`, `_`, `-`",
            ));
        }
        let (registry, name) = match path.split_once('/') {
            Some((first, name)) if is_registry_like(first) => (first.to_owned(), name.to_owned()),
            _ => (DEFAULT_REGISTRY.to_owned(), path.to_owned()),
        };
        let (registry, name) = normalized(registry, name);
        if !is_registry(&registry) {
            return Err(invalid("its registry is not a host with an optional port"));
        }
        if registry.len() + name.len() > MAX_NAME || !name.split('/').all(is_part) {
            return Err(invalid(
                "a part of its name is not made of lower-case letters and digits, with `.`, `_` or `-` between them",
            ));
        }
        let tag = match (&digest, tag) {
            (None, None) => Some(DEFAULT_TAG.to_owned()),
            (_, tag) => tag,
        };
        Ok(Self {
            registry,
            name,
            tag,
            digest,
        })
    }
}

/// Replaces the short forms of the default registry.
fn normalized(registry: String, name: String) -> (String, String) {
    if registry != DEFAULT_REGISTRY && registry != DEFAULT_ALIAS {
        return (registry, name);
    }
    let name = match name.contains('/') {
        true => name,
        false => format!("{DEFAULT_FOLDER}/{name}"),
    };
    (DEFAULT_REGISTRY.to_owned(), name)
}

/// Returns `true` for a first part that is a registry and no folder of the default one.
fn is_registry_like(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.chars().any(|c| c.is_ascii_uppercase())
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
                ("", Some(port).filter(|port| !port.is_empty()))
            }
            _ => return false,
        },
        None => match text.find(':') {
            Some(at) => (&text[..at], Some(&text[at..])),
            None => (text, None),
        },
    };
    let port = port.is_none_or(|port| {
        let digits = port.strip_prefix(':').unwrap_or_default();
        digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok_and(|port| port > 0)
    });
    let label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    port && (text.starts_with('[') || host.split('.').all(label))
}

/// Returns `true` for a part of a name: runs of letters and digits, joined by `.`, `_`, `__` or hyphens.
fn is_part(part: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    let mut between = bytes.split(|byte| is_plain(*byte)).filter(|run| !run.is_empty());
    is_plain(*first)
        && is_plain(*last)
        && between.all(|run| matches!(run, b"." | b"_" | b"__") || run.iter().all(|byte| *byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = tag.bytes();
    tag.len() <= MAX_TAG
        && bytes.next().is_some_and(is_word)
        && bytes.all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.name)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A choice of an image in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    Reference(Reference),
    /// Digest of the image's configuration, as `ringfence image ls` prints it.
    Digest(Digest),
}

impl FromStr for Selector {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(digest) => Ok(Self::Digest(digest)),
            Err(_) => text.parse().map(Self::Reference),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reference(reference) => reference.fmt(f),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_become_full_ones() {
        let digest = Digest::of(b"");
        let by_digest = format!("a@{digest}");
        let by_both = format!("a:1@{digest}");
        let full_digest = format!("docker.io/library/a@{digest}");
        let full_both = format!("docker.io/library/a:1@{digest}");
        for (short, full) in [
            ("python", "docker.io/library/python:latest"),
            ("python:3.12", "docker.io/library/python:3.12"),
            ("team/app", "docker.io/team/app:latest"),
            ("docker.io/python:3", "docker.io/library/python:3"),
            ("index.docker.io/a/b:1", "docker.io/a/b:1"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a:x", "localhost:5000/a:x"),
            ("127.0.0.1:5000/a/b-c", "127.0.0.1:5000/a/b-c:latest"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            ("registry.test/a__b/c.d:V1_x", "registry.test/a__b/c.d:V1_x"),
            (by_digest.as_str(), full_digest.as_str()),
            (by_both.as_str(), full_both.as_str()),
        ] {
            let reference: Reference = short.parse().unwrap();
            assert_eq!(reference.to_string(), full);
            assert_eq!(full.parse(), Ok(reference));
        }
        let python: Reference = "python".parse().unwrap();
        assert_eq!((python.host(), python.name()), (DEFAULT_HOST, "library/python"));
        assert_eq!(
            by_both.parse::<Reference>().unwrap().version(),
            digest.to_string()
        );
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for text in [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            "A",
            "a:",
            "a:-x",
            "a b",
            "a/../b",
            "a/.b",
            "a._b",
            "reg.test:0/a",
            "reg.test:99999/a",
            "reg.test:5x/a",
            "reg..test/a",
            "user@reg.test/a",
            "http://reg.test/a",
            "[::x]:1/a",
            "reg.test/a\nb",
            "a@sha512:00",
            &"a".repeat(300),
            &format!("a:{}", "t".repeat(129)),
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text:?}");
        }
    }
}
