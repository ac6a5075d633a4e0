//! Quotas of keys.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bytes;

/// The most that a key may use a day (UTC), and have at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Processor time, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<u64>,
    /// Memory times the duration of its use, in GiB-seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gib_seconds: Option<u64>,
    /// Bytes sent to hosts and received from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_bytes: Option<u64>,
    /// Sandboxes at a time, those of all keys of the tenant together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u64>,
}

/// Processor time, parsed from seconds or a text such as `90s`, `30m` or `48h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    pub seconds: u64,
}

/// An error returned when parsing a [`CpuTime`] from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected seconds, or a time such as 90s, 30m or 48h, got `{0}`")]
pub struct ParseCpuTimeError(String);

impl FromStr for CpuTime {
    type Err = ParseCpuTimeError;

    fn from_str(text: &str) -> Result<Self, ParseCpuTimeError> {
        let unit = |unit: char| text.strip_suffix(unit);
        let (number, each) = match (unit('s'), unit('m'), unit('h')) {
            (Some(number), ..) => (number, 1),
            (_, Some(number), _) => (number, 60),
            (_, _, Some(number)) => (number, 60 * 60),
            (None, None, None) => (text, 1),
        };
        let seconds = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(each));
        let seconds = seconds.ok_or_else(|| ParseCpuTimeError(text.to_owned()))?;
        Ok(Self { seconds })
    }
}

impl Quota {
    /// Returns `true` if nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Renders the quota for the end of a line; nothing without limits.
    pub fn to_text(self) -> String {
        let limits = [
            self.runs.map(|runs| counted(runs, "run", "runs")),
            self.cpu_seconds
                .map(|seconds| format!("{seconds} s of processor time")),
            self.memory_gib_seconds
                .map(|amount| format!("{amount} GiB-s of memory")),
            self.egress_bytes
                .map(|bytes| format!("{} of egress", Bytes(bytes))),
        ];
        let daily: Vec<String> = limits.into_iter().flatten().collect();
        let daily = (!daily.is_empty()).then(|| format!("{} a day", daily.join(", ")));
        let sandboxes = self
            .sandboxes
            .map(|most| counted(most, "sandbox", "sandboxes") + " at a time");
        let parts: Vec<String> = daily.into_iter().chain(sandboxes).collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!("  {}", parts.join(", ")),
        }
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_ends_a_line() {
        let check = |quota: Quota, expected: &str| assert_eq!(quota.to_text(), expected);
        let (runs, sandboxes) = (Some(5), Some(2));
        let one = Quota {
            runs: Some(1),
            sandboxes: Some(1),
            ..Quota::default()
        };
        check(one, "  1 run a day, 1 sandbox at a time");
        check(Quota::default(), "");
        check(
            Quota {
                runs,
                ..Quota::default()
            },
            "  5 runs a day",
        );
        check(
            Quota {
                sandboxes,
                ..Quota::default()
            },
            "  2 sandboxes at a time",
        );
        check(
            Quota {
                runs,
                sandboxes,
                ..Quota::default()
            },
            "  5 runs a day, 2 sandboxes at a time",
        );
    }

    #[test]
    fn processor_time_has_a_unit() {
        let check = |text: &str, expected: Option<u64>| {
            let parsed = text.parse::<CpuTime>();
            assert_eq!(parsed.ok().map(|time| time.seconds), expected, "{text}");
        };
        check("90", Some(90));
        check("90s", Some(90));
        check("30m", Some(1800));
        check("48h", Some(48 * 3600));
        for wrong in [
            "",
            "h",
            "-1",
            "1d",
            "1.5h",
            "99999999999999999999",
            "9999999999999999999h",
        ] {
            check(wrong, None);
        }
    }
}
