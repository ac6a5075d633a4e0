//! Digests, by which images and their parts are known.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// An error returned when parsing a digest from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a digest of the form sha256:<64 hexadecimal digits>, found {0:?}")]
pub struct ParseDigestError(String);

impl Digest {
    /// Returns the digest of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the hexadecimal digits, which can be a file name.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let digits = text.strip_prefix("sha256:")?.as_bytes();
            let mut bytes = [0; 32];
            if digits.len() != 64 {
                return None;
            }
            for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
                *byte = value(pair[0])? * 16 + value(pair[1])?;
            }
            Some(Self(bytes))
        };
        parse().ok_or_else(|| ParseDigestError(text.chars().take(80).collect()))
    }
}

/// Returns the value of a lower-case digit: a digest has one spelling.
fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A stream that computes the digest and length of the passing bytes.
pub(crate) struct Hashing<S> {
    stream: S,
    hasher: Sha256,
    length: u64,
}

impl<S> Hashing<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            hasher: Sha256::new(),
            length: 0,
        }
    }

    /// Returns the digest and length of the bytes that have passed.
    pub(crate) fn finish(self) -> (Digest, u64) {
        (Digest(self.hasher.finalize().into()), self.length)
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
    }
}

impl<S: Read> Read for Hashing<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.pass(&buffer[..read]);
        Ok(read)
    }
}

impl<S: Write> Write for Hashing<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(bytes)?;
        self.pass(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_spelling() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of(b"")));
        for other in [
            empty.to_uppercase().as_str(),
            &empty.replace("sha256", "sha512"),
            &empty[7..],
            &empty[..70],
            &format!("{empty}0"),
            "sha256:../../../../../../../../../../../../../../../../../../../../../../x",
        ] {
            assert!(other.parse::<Digest>().is_err(), "{other}");
        }
    }
}
