//! A record's identity: its SHA-256, or its place in the chain.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Length of a hash in hexadecimal digits.
pub(super) const HEX: usize = 64;

/// A SHA-256, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

/// A record's place in the chain, written as `SEQUENCE:HASH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Sequence number; the first is 1.
    pub sequence: u64,
    pub hash: Digest,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not of the form SEQUENCE:HASH; `ringfence audit verify` prints one as the head")]
pub struct ParseLinkError(String);

impl Digest {
    /// Previous hash of the very first record.
    pub(super) const ZERO: Self = Self([0; 32]);

    /// Hashes these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(super) fn hex(&self) -> [u8; HEX] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; HEX];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        hex
    }

    /// Rejects upper-case digits: a hash has one spelling.
    fn parse(hex: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut digest = [0; 32];
        if hex.len() != HEX {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(digest))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(text.as_bytes()).ok_or_else(|| serde::de::Error::custom("not a SHA-256 in lower case"))
    }
}

impl Link {
    /// Position before the first record.
    pub(super) const START: Self = Self {
        sequence: 0,
        hash: Digest::ZERO,
    };
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.sequence, self.hash)
    }
}

impl FromStr for Link {
    type Err = ParseLinkError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (sequence, hash) = text.split_once(':')?;
            Some(Self {
                sequence: sequence.parse().ok()?,
                hash: Digest::parse(hash.as_bytes())?,
            })
        };
        parse().ok_or_else(|| ParseLinkError(text.chars().take(80).collect()))
    }
}
