//! Parses image references.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// An image reference: `[HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Image(String);

/// An error returned when parsing an image reference from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an image name; write it like `ringfence-sandbox:latest`")]
pub struct ParseImageError(String);

impl Image {
    /// Returns `true` if the reference has a tag or digest.
    pub(crate) fn is_one(&self) -> bool {
        let last = self.0.rsplit('/').next().unwrap_or_default();
        last.contains([':', '@'])
    }

    /// Returns `true` if the reference is a plain digest, which can never point to another image.
    pub(crate) fn is_id(&self) -> bool {
        is_digest(&self.0)
    }

    /// Returns `true` if the reference is or ends with a digest.
    pub(crate) fn has_digest(&self) -> bool {
        is_digest(self.0.rsplit('@').next().unwrap_or_default())
    }
}

impl FromStr for Image {
    type Err = ParseImageError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_reference(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(ParseImageError(text.chars().take(80).collect()))
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_reference(text: &str) -> bool {
    if text.len() > 255 {
        return false;
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    // A colon before the last slash separates a port.
    let after_slash = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (path, tag) = match rest[after_slash..].split_once(':') {
        Some((last, tag)) => (&rest[..after_slash + last.len()], Some(tag)),
        None => (rest, None),
    };
    let mut parts = path.split('/').peekable();
    // The first part may be a registry, if another follows.
    let _ = parts.next_if(|first| path.contains('/') && is_registry(first));
    let named = parts.peek().is_some() && parts.all(is_part);
    named && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let host_like = host == "localhost" || host.contains('.') || port.is_some();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let usable = host.starts_with(|c: char| c.is_ascii_alphanumeric()) && host.chars().all(plain);
    host_like && usable && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_part(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(ends) && text.ends_with(ends) && text.chars().all(plain)
}

fn is_tag(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(plain)
}

fn is_digest(text: &str) -> bool {
    let figures = text.strip_prefix("sha256:");
    figures.is_some_and(|hex| hex.len() == 64 && hex.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_registries_write_them() {
        let digest = format!("x@sha256:{}", "0a".repeat(32));
        for good in [
            "alpine",
            "alpine:latest",
            "ringfence-sandbox:latest",
            "library/python:3.12-slim",
            "ghcr.io/a/b:v1.2",
            "localhost:5000/x",
            "localhost/x:1",
            &digest,
        ] {
            assert!(good.parse::<Image>().is_ok(), "{good}");
        }
        for (text, one) in [
            ("localhost:5000/x", false),
            ("x", false),
            ("localhost:5000/x:1", true),
            (&digest, true),
        ] {
            assert_eq!(text.parse::<Image>().unwrap().is_one(), one, "{text}");
        }
        for bad in [
            "",
            "-v",
            "--privileged",
            "A",
            "x:",
            "x y",
            "x:a b",
            "/x",
            "x/",
            "x//y",
            "../x",
            "x@sha256:0",
            "x@md5:0",
            "x\n",
            "x?y=z",
            "host.example:99999/x",
            &"x".repeat(256),
        ] {
            assert!(bad.parse::<Image>().is_err(), "{bad:?}");
        }
    }
}
