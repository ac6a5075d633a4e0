//! One line of the log: serialization, hashing, parsing.

use std::fmt;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::ser::Formatter;
use sha2::{Digest as _, Sha256};

use super::entry::Removed;
use super::error::Error;

/// Maximum length of a line, newline included.
pub(super) const MAX_LINE: usize = 64 * 1024;

/// Separator between the hashed bytes and the hash.
const BEFORE_HASH: &[u8] = b",\"hash\":\"";
/// Bytes behind the hash.
const BEHIND_HASH: &[u8] = b"\"}";
/// Length of a hash in hexadecimal digits.
const HEX: usize = 64;

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

/// The fields of a record that matter to the chain.
#[derive(Debug, Deserialize)]
pub(super) struct Record {
    pub(super) sequence: u64,
    pub(super) previous: Digest,
    #[serde(default)]
    pub(super) time: String,
    /// Present if a torn line was truncated before this record.
    pub(super) repair: Option<serde::de::IgnoredAny>,
    /// Present if the oldest records were removed.
    pub(super) removed: Option<Removed>,
    /// Present if the record counts refused uses.
    pub(super) refused: Option<Refused>,
    pub(super) hash: Digest,
}

/// A count of refused uses.
#[derive(Debug, Deserialize)]
pub(super) struct Refused {
    pub(super) count: u64,
}

/// A record without its hash.
#[derive(Serialize)]
struct Body<'a, C> {
    sequence: u64,
    previous: &'a Digest,
    #[serde(flatten)]
    content: &'a C,
}

impl Digest {
    /// Previous hash of the very first record.
    pub(super) const ZERO: Self = Self([0; 32]);

    /// Hashes these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    fn hex(&self) -> [u8; HEX] {
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

/// Serializes the record that follows `before` into `line`, newline included.
pub(super) fn seal<C: Serialize>(line: &mut Vec<u8>, before: &Link, content: &C) -> Result<Link, Error> {
    line.clear();
    let body = Body {
        sequence: before.sequence + 1,
        previous: &before.hash,
        content,
    };
    let mut serializer = serde_json::Serializer::with_formatter(&mut *line, Plain);
    body.serialize(&mut serializer).map_err(Error::Encode)?;
    // The closing brace of the object comes behind the hash.
    line.pop();
    let hash = Digest::of(line);
    line.extend_from_slice(BEFORE_HASH);
    line.extend_from_slice(&hash.hex());
    line.extend_from_slice(BEHIND_HASH);
    line.push(b'\n');
    if line.len() > MAX_LINE {
        return Err(Error::TooLong);
    }
    Ok(Link {
        sequence: body.sequence,
        hash,
    })
}

/// Parses a line, without its newline, and checks its hash. The error says what is wrong.
pub(super) fn open(line: &[u8]) -> Result<Record, &'static str> {
    let no_record = "it holds no record";
    let split = line
        .len()
        .checked_sub(BEFORE_HASH.len() + HEX + BEHIND_HASH.len());
    let (body, seal) = line.split_at_checked(split.ok_or(no_record)?).ok_or(no_record)?;
    let hash = seal
        .strip_prefix(BEFORE_HASH)
        .and_then(|rest| rest.strip_suffix(BEHIND_HASH));
    if hash.ok_or(no_record)? != Digest::of(body).hex() {
        return Err("it was modified: its hash does not match its content");
    }
    serde_json::from_slice(line).map_err(|_| no_record)
}

impl Record {
    /// Returns the record's place in the chain.
    pub(super) fn link(&self) -> Link {
        Link {
            sequence: self.sequence,
            hash: self.hash,
        }
    }
}

/// A JSON formatter that also escapes invisible and bidirectional characters, so that a line cannot control a
/// terminal.
struct Plain;

impl Formatter for Plain {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        if text.bytes().all(|byte| byte < 0x7f) {
            return writer.write_all(text.as_bytes());
        }
        let mut shown = 0;
        for (at, c) in text.char_indices().filter(|(_, c)| is_hidden(*c)) {
            writer.write_all(&text.as_bytes()[shown..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            shown = at + c.len_utf8();
        }
        writer.write_all(&text.as_bytes()[shown..])
    }
}

/// Returns `true` for control, invisible and bidirectional characters.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns the number of bytes that `c` takes within a line.
pub(super) fn width(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if is_hidden(c) => 6 * c.len_utf16(),
        c => c.len_utf8(),
    }
}
