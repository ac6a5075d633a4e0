//! The choice of the runs that are recorded.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{ExecutionResult, Outcome, UnknownName};

/// The runs that are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorePolicy {
    Always,
    /// Runs that did not exit by themselves with status 0.
    OnError,
    Never,
}

impl FromStr for StorePolicy {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.to_ascii_lowercase().replace('-', "_").as_str() {
            "always" => Ok(Self::Always),
            "on_error" => Ok(Self::OnError),
            "never" => Ok(Self::Never),
            _ => Err(UnknownName {
                what: "artifact policy",
                name: name.to_owned(),
                known: "always, on_error and never".into(),
            }),
        }
    }
}

impl StorePolicy {
    /// Returns `true` if a run with this result is recorded.
    pub fn wants(self, result: &ExecutionResult) -> bool {
        match self {
            Self::Always => true,
            Self::OnError => result.meta.outcome != Outcome::Exited || result.exit_code != 0,
            Self::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Language, Limits, Meta, RuntimeKind};

    fn result(outcome: Outcome, exit_code: i32) -> ExecutionResult {
        ExecutionResult {
            stdout: String::new(),
            stderr: String::new(),
            exit_code,
            duration: 0.5,
            meta: Meta::of(RuntimeKind::Local, Language::Python, Limits::DEFAULT, outcome),
        }
    }

    #[test]
    fn policies_and_outcomes() {
        let success = result(Outcome::Exited, 0);
        for (policy, on_success, on_failure) in [
            (StorePolicy::Always, true, true),
            (StorePolicy::OnError, false, true),
            (StorePolicy::Never, false, false),
        ] {
            assert_eq!(policy.wants(&success), on_success);
            for failure in [
                result(Outcome::Exited, 1),
                result(Outcome::Blocked, 0),
                result(Outcome::TimedOut, -1),
            ] {
                assert_eq!(policy.wants(&failure), on_failure, "{:?}", failure.meta.outcome);
            }
        }
        assert_eq!("on_error".parse(), Ok(StorePolicy::OnError));
        assert_eq!("Always".parse(), Ok(StorePolicy::Always));
        assert!("sometimes".parse::<StorePolicy>().is_err());
        assert_eq!(
            serde_json::to_string(&StorePolicy::OnError).unwrap(),
            "\"on_error\""
        );
    }
}
