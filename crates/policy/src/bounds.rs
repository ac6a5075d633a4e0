//! Ranges of the size limits: below the minimum nothing starts, above the maximum no machine goes.

use serde::{Deserialize, Deserializer};

use crate::units::{NumberOrText, size_text};
use crate::{Bytes, ParseUnitError};

/// A limit's smallest and largest value, each with its text.
struct Bounds {
    what: &'static str,
    min: (Bytes, &'static str),
    max: (Bytes, &'static str),
}

const LARGEST: (Bytes, &str) = (Bytes::mib(64 << 20), "64TiB");

/// Python starts in 16 MiB, and so does a sandbox whose files fill half of them.
const MEMORY: Bounds = Bounds {
    what: "memory",
    min: (Bytes::mib(16), "16MiB"),
    max: LARGEST,
};

/// Room for the directories themselves and a few small files.
const DISK: Bounds = Bounds {
    what: "disk",
    min: (Bytes::kib(64), "64KiB"),
    max: LARGEST,
};

impl Bounds {
    fn check(&self, size: Bytes, text: &str) -> Result<Bytes, ParseUnitError> {
        if (self.min.0..=self.max.0).contains(&size) {
            return Ok(size);
        }
        let in_mebibytes = size.0.checked_mul(1 << 20).map(Bytes);
        let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_bare && in_mebibytes.is_some_and(|size| (self.min.0..=self.max.0).contains(&size)) {
            return Err(ParseUnitError::NoUnit {
                text: text.to_owned(),
                what: self.what,
                min: self.min.1,
                max: self.max.1,
            });
        }
        Err(ParseUnitError::OutOfRange {
            text: text.to_owned(),
            what: self.what,
            min: self.min.1,
            max: self.max.1,
        })
    }

    fn parse(&self, text: &str) -> Result<Bytes, ParseUnitError> {
        self.check(text.parse()?, text)
    }

    fn deserialize<'de, D: Deserializer<'de>>(&self, deserializer: D) -> Result<Bytes, D::Error> {
        let text: String = size_text(NumberOrText::deserialize(deserializer)?)?;
        self.parse(&text).map_err(serde::de::Error::custom)
    }
}

/// The memory limit.
pub mod memory {
    use super::{Bytes, Deserializer, MEMORY, ParseUnitError};

    /// The smallest limit.
    pub const MIN: Bytes = MEMORY.min.0;

    /// Checks a size.
    ///
    /// # Errors
    /// If it is outside the limit's range.
    pub fn check(size: Bytes) -> Result<Bytes, ParseUnitError> {
        MEMORY.check(size, &size.to_string())
    }

    /// Parses a size such as `256MiB`.
    ///
    /// # Errors
    /// If it is not a size, or outside the limit's range.
    pub fn parse(text: &str) -> Result<Bytes, ParseUnitError> {
        MEMORY.parse(text)
    }

    /// Deserializes the limit from a configuration file or a message.
    ///
    /// # Errors
    /// If it is not a size, or outside the limit's range.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        MEMORY.deserialize(deserializer)
    }
}

/// The limit on the writable directories.
pub mod disk {
    use super::{Bytes, DISK, Deserializer, ParseUnitError};

    /// Parses a size such as `64MiB`.
    ///
    /// # Errors
    /// If it is not a size, or outside the limit's range.
    pub fn parse(text: &str) -> Result<Bytes, ParseUnitError> {
        DISK.parse(text)
    }

    /// Deserializes the limit from a configuration file or a message.
    ///
    /// # Errors
    /// If it is not a size, or outside the limit's range.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        DISK.deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_bounds() {
        for bounds in [MEMORY, DISK] {
            for (size, text) in [bounds.min, bounds.max] {
                assert_eq!(bounds.parse(text), Ok(size));
            }
        }
    }

    #[test]
    fn what_lies_outside_is_refused() {
        for text in ["0", "1KiB", "16383KiB", "65537GiB", "65TiB"] {
            let message = memory::parse(text).unwrap_err().to_string();
            assert!(
                message.ends_with("is out of range; it must be between 16MiB and 64TiB"),
                "{message}"
            );
        }
        assert_eq!(DISK.parse("64KiB"), Ok(Bytes::kib(64)));
        assert_eq!(
            memory::parse("256").unwrap_err().to_string(),
            "expected memory between 16MiB and 64TiB, found `256`, which is 256 bytes; did you mean `256m`?"
        );
        assert!(DISK.parse("63KiB").is_err());
    }
}
