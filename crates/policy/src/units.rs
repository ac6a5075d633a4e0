//! Quantities with units: parsed once, then carried as types.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// An error returned when parsing a quantity from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseUnitError {
    /// The text is not a number followed by a known unit.
    #[error("`{text}` is not a {what}; write it like {example}")]
    Malformed {
        /// The given text.
        text: String,
        /// The expected quantity.
        what: &'static str,
        /// An accepted text.
        example: &'static str,
    },
    /// The value is out of range.
    #[error("{what} `{text}` is out of range; it must be between {min} and {max}")]
    OutOfRange {
        /// The given text.
        text: String,
        /// The expected quantity.
        what: &'static str,
        /// The smallest accepted value.
        min: &'static str,
        /// The largest accepted value.
        max: &'static str,
    },
    /// A bare number, which counts bytes, and would be a valid size with a unit.
    #[error(
        "expected {what} between {min} and {max}, found `{text}`, which is {text} bytes; did you mean `{text}m`?"
    )]
    NoUnit {
        /// The given text.
        text: String,
        /// The expected quantity.
        what: &'static str,
        /// The smallest accepted value.
        min: &'static str,
        /// The largest accepted value.
        max: &'static str,
    },
}

/// A number of bytes, written `10KiB`, `256MiB`, `1GiB` or, as Docker writes it, `256m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Returns `n` kibibytes.
    pub const fn kib(n: u64) -> Self {
        Self(n * 1024)
    }
    /// Returns `n` mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n * 1024 * 1024)
    }
}

impl FromStr for Bytes {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseUnitError::Malformed {
            text: text.to_owned(),
            what: "size",
            example: "`10KiB` or `256MiB`",
        };
        let (number, unit) = split_unit(text);
        let scale: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(malformed()),
        };
        scale_decimal(number, scale).map(Self).ok_or_else(malformed)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1 << 40 && n.is_multiple_of(1 << 40) => write!(f, "{}TiB", n >> 40),
            n if n >= 1 << 30 && n.is_multiple_of(1 << 30) => write!(f, "{}GiB", n >> 30),
            n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => write!(f, "{}MiB", n >> 20),
            n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => write!(f, "{}KiB", n >> 10),
            n => write!(f, "{n}B"),
        }
    }
}

/// A timeout: `500ms`, `5s`, `2m`, `1h`; a bare number is seconds.
///
/// Between one millisecond and one day: neither zero nor infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timeout(Duration);

impl Timeout {
    /// The shortest timeout.
    pub const MIN: Duration = Duration::from_millis(1);
    /// The longest timeout.
    pub const MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Returns a timeout of `seconds`, for constants.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
    /// Returns the timeout as a [`Duration`].
    pub const fn as_duration(self) -> Duration {
        self.0
    }
    fn from_millis(millis: u64, text: &str) -> Result<Self, ParseUnitError> {
        let duration = Duration::from_millis(millis);
        if duration < Self::MIN || duration > Self::MAX {
            return Err(ParseUnitError::OutOfRange {
                text: text.to_owned(),
                what: "timeout",
                min: "1ms",
                max: "24h",
            });
        }
        Ok(Self(duration))
    }
}

/// A timeout that a caller asks for, within a limit of its own: beyond the longest [`Timeout`] it is the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedTimeout(pub Timeout);

impl TryFrom<f64> for Timeout {
    type Error = ParseUnitError;
    /// Converts seconds, the unit of tools and configuration files.
    fn try_from(seconds: f64) -> Result<Self, Self::Error> {
        let text = seconds.to_string();
        if !seconds.is_finite() || seconds < 0.0 {
            return Err(ParseUnitError::OutOfRange {
                text,
                what: "timeout",
                min: "1ms",
                max: "24h",
            });
        }
        // Saturating float-to-integer conversion: a huge value stays out of range.
        let millis = (seconds * 1000.0).ceil() as u64;
        Self::from_millis(millis, &text)
    }
}

/// Returns the milliseconds in a unit of time.
fn millis_of(unit: &str) -> Option<u64> {
    match unit {
        "ms" => Some(1),
        "" | "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    }
}

impl FromStr for Timeout {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseUnitError::Malformed {
            text: text.to_owned(),
            what: "duration",
            example: "`500ms`, `5s` or `2m`",
        };
        let (number, unit) = split_unit(text);
        let millis_per_unit = millis_of(unit).ok_or_else(malformed)?;
        let millis = scale_decimal(number, millis_per_unit).ok_or_else(malformed)?;
        Self::from_millis(millis, text)
    }
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(60_000) {
            write!(f, "{}m", millis / 60_000)
        } else if millis.is_multiple_of(1_000) {
            write!(f, "{}s", millis / 1_000)
        } else {
            write!(f, "{millis}ms")
        }
    }
}

/// A share of processor time: `1` is one core, `0.5` half of one.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Cpus(f64);

impl Cpus {
    /// One whole core.
    pub const ONE: Self = Self(1.0);
    /// Returns the number of cores.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Cpus {
    type Error = ParseUnitError;
    fn try_from(cores: f64) -> Result<Self, Self::Error> {
        if (0.01..=1024.0).contains(&cores) {
            return Ok(Self(cores));
        }
        Err(ParseUnitError::OutOfRange {
            text: cores.to_string(),
            what: "cpus",
            min: "0.01",
            max: "1024",
        })
    }
}

impl FromStr for Cpus {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let cores: f64 = text.parse().map_err(|_| ParseUnitError::Malformed {
            text: text.to_owned(),
            what: "number of cpus",
            example: "`1` or `0.5`",
        })?;
        Self::try_from(cores)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Limit on concurrent processes and threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Pids(u32);

impl Pids {
    /// The default: room for a thread pool and a few children, none for a fork bomb.
    pub const DEFAULT: Self = Self(64);
    /// Returns the limit.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u64> for Pids {
    type Error = ParseUnitError;
    fn try_from(count: u64) -> Result<Self, Self::Error> {
        match u32::try_from(count) {
            Ok(count @ 1..=32_768) => Ok(Self(count)),
            _ => Err(ParseUnitError::OutOfRange {
                text: count.to_string(),
                what: "pids",
                min: "1",
                max: "32768",
            }),
        }
    }
}

impl FromStr for Pids {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let count: u64 = text.parse().map_err(|_| ParseUnitError::Malformed {
            text: text.to_owned(),
            what: "number of processes",
            example: "`64`",
        })?;
        Self::try_from(count)
    }
}

impl fmt::Display for Pids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A quantity in a configuration file: a number in the base unit, or a text with a unit.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number, or a text with a unit")]
pub(crate) enum NumberOrText {
    Integer(u64),
    Float(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = size_text(NumberOrText::deserialize(deserializer)?)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Converts a configured size to text; a number counts bytes.
pub(crate) fn size_text<E: serde::de::Error>(given: NumberOrText) -> Result<String, E> {
    match given {
        NumberOrText::Integer(bytes) => Ok(bytes.to_string()),
        NumberOrText::Float(bytes) => Err(E::custom(format!("`{bytes}` is not a whole number of bytes"))),
        NumberOrText::Text(text) => Ok(text),
    }
}

impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Integer(seconds) => Self::try_from(seconds as f64),
            NumberOrText::Float(seconds) => Self::try_from(seconds),
            NumberOrText::Text(text) => text.parse(),
        }
        .map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for AskedTimeout {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let longest = Timeout::MAX.as_secs_f64();
        let asked = match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Integer(seconds) => Timeout::try_from((seconds as f64).min(longest)),
            NumberOrText::Float(seconds) => Timeout::try_from(seconds.min(longest)),
            NumberOrText::Text(text) => match text.parse() {
                Err(_) if is_beyond(&text) => Ok(Timeout(Timeout::MAX)),
                asked => asked,
            },
        };
        asked.map(Self).map_err(serde::de::Error::custom)
    }
}

/// Returns `true` for the text of a duration beyond the longest timeout, whatever its size.
fn is_beyond(text: &str) -> bool {
    let (number, unit) = split_unit(text);
    let number: Option<f64> = number.parse().ok();
    let millis = number.zip(millis_of(unit));
    millis.is_some_and(|(number, each)| number * each as f64 > Timeout::MAX.as_millis() as f64)
}

impl JsonSchema for AskedTimeout {
    fn schema_name() -> Cow<'static, str> {
        "AskedTimeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)?$"},
            ]
        })
    }

    fn inline_schema() -> bool {
        true
    }
}

impl JsonSchema for Timeout {
    fn schema_name() -> Cow<'static, str> {
        "Timeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400},
                {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)?$"},
            ]
        })
    }

    fn inline_schema() -> bool {
        true
    }
}

impl Serialize for Timeout {
    /// Serializes as seconds, like the results.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.as_secs_f64())
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Integer(cores) => Self::try_from(cores as f64),
            NumberOrText::Float(cores) => Self::try_from(cores),
            NumberOrText::Text(text) => text.parse(),
        }
        .map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Pids {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Integer(count) => Self::try_from(count),
            NumberOrText::Float(count) => {
                return Err(serde::de::Error::custom(format!(
                    "`{count}` is not a whole number of processes"
                )));
            }
            NumberOrText::Text(text) => text.parse(),
        }
        .map_err(serde::de::Error::custom)
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Returns `number * scale`, exactly, for `number` like `12` or `1.5`; `None` on overflow or malformed input.
fn scale_decimal(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    if fraction.is_empty() {
        return if number.ends_with('.') { None } else { Some(whole) };
    }
    let denominator = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale) / denominator;
    whole.checked_add(u64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        text.parse::<Bytes>().ok().map(|b| b.0)
    }
    fn millis(text: &str) -> Option<u128> {
        text.parse::<Timeout>().ok().map(|t| t.as_duration().as_millis())
    }

    #[test]
    fn an_asked_timeout_is_cut_to_the_longest() {
        let check = |json: &str, expected: Option<&str>| {
            let asked = serde_json::from_str::<AskedTimeout>(json).ok();
            let asked = asked.map(|asked| asked.0.to_string());
            assert_eq!(asked.as_deref(), expected, "{json}");
        };
        check("5", Some("5s"));
        check("0.5", Some("500ms"));
        check("86400", Some("1440m"));
        for beyond in [
            "86401",
            "1e300",
            "\"25h\"",
            "\"99999999999999999999h\"",
            "1000000000",
        ] {
            check(beyond, Some("1440m"));
        }
        for wrong in ["0", "-1", "\"0s\"", "\"5x\"", "\"\"", "true", "[5]"] {
            check(wrong, None);
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("10KiB"), Some(10_240));
        assert_eq!(bytes("256m"), Some(268_435_456));
        assert_eq!(bytes("512MiB"), Some(536_870_912));
        assert_eq!(bytes("1.5g"), Some(1_610_612_736));
        assert_eq!(bytes("7"), Some(7));
        for bad in [
            "",
            "KiB",
            "-1",
            "1.2.3MiB",
            "10 parsecs",
            "99999999999999999999",
            "1.",
            "20000000000g",
        ] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn timeouts() {
        assert_eq!(millis("500ms"), Some(500));
        assert_eq!(millis("5s"), Some(5_000));
        assert_eq!(millis("2m"), Some(120_000));
        assert_eq!(millis("0.5"), Some(500));
        for bad in ["0", "0s", "1000000000", "25h", "-5s", "soon", "5 s s"] {
            assert_eq!(millis(bad), None, "{bad}");
        }
    }

    #[test]
    fn display_is_parsed_back() {
        for text in ["1ms", "5s", "2m", "90s"] {
            let timeout: Timeout = text.parse().unwrap();
            assert_eq!(timeout.to_string().parse::<Timeout>().unwrap(), timeout);
        }
        for text in ["1B", "10KiB", "3MiB", "2GiB", "1TiB"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
    }
}
