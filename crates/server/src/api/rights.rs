//! Rights of keys.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A right of a key: the routes that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    Run,
    Sandboxes,
    Tools,
    Approvals,
    Admin,
}

impl Right {
    /// All rights: those of a peer that is the server's own user.
    pub(super) const ALL: [Self; 5] = [
        Self::Run,
        Self::Sandboxes,
        Self::Tools,
        Self::Approvals,
        Self::Admin,
    ];

    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Sandboxes => "sandboxes",
            Self::Tools => "tools",
            Self::Approvals => "approvals",
            Self::Admin => "admin",
        }
    }
}

/// The rights of a key: at least one, and not both to ask and to answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredRights", into = "Vec<Right>")]
pub struct Rights(Vec<Right>);

/// A text names no rights that one key may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    #[error("expected rights of run, sandboxes, tools, approvals and admin, got `{0}`")]
    Unknown(String),
    #[error("expected at least one right of run, sandboxes, tools, approvals and admin")]
    None,
    #[error("a key with `run` or `tools` asks, one with `approvals` answers: make two keys")]
    AsksAndAnswers,
}

impl Rights {
    /// Renders the rights, separated by commas.
    pub fn to_text(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|right| right.as_str()).collect();
        names.join(",")
    }
}

impl TryFrom<Vec<Right>> for Rights {
    type Error = RightsError;

    fn try_from(mut rights: Vec<Right>) -> Result<Self, RightsError> {
        rights.sort_unstable();
        rights.dedup();
        if rights.is_empty() {
            return Err(RightsError::None);
        }
        // A program may ask to run longer.
        let asks = rights.contains(&Right::Tools) || rights.contains(&Right::Run);
        if asks && rights.contains(&Right::Approvals) {
            return Err(RightsError::AsksAndAnswers);
        }
        Ok(Self(rights))
    }
}

/// Rights as they are stored. A key of an earlier version may have `run` and `approvals`, which opened nothing then: it has
/// `run`.
#[derive(Deserialize)]
#[serde(transparent)]
struct StoredRights(Vec<Right>);

impl TryFrom<StoredRights> for Rights {
    type Error = RightsError;

    fn try_from(StoredRights(mut rights): StoredRights) -> Result<Self, RightsError> {
        if rights.contains(&Right::Run) {
            rights.retain(|right| *right != Right::Approvals);
        }
        Self::try_from(rights)
    }
}

impl From<Rights> for Vec<Right> {
    fn from(rights: Rights) -> Self {
        rights.0
    }
}

impl FromStr for Rights {
    type Err = RightsError;

    fn from_str(text: &str) -> Result<Self, RightsError> {
        let right = |name: &str| {
            let found = Right::ALL.into_iter().find(|right| right.as_str() == name.trim());
            found.ok_or_else(|| RightsError::Unknown(name.to_owned()))
        };
        let rights: Result<Vec<Right>, RightsError> = text.split(',').map(right).collect();
        Self::try_from(rights?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_both_ask_and_answer() {
        let check = |text: &str, expected: Result<&str, RightsError>| {
            let rights = text.parse::<Rights>();
            assert_eq!(rights.map(|rights| rights.to_text()), expected.map(str::to_owned));
        };
        check("tools, run,run", Ok("run,tools"));
        check("approvals,admin", Ok("approvals,admin"));
        check("tools,approvals", Err(RightsError::AsksAndAnswers));
        check("approvals,run", Err(RightsError::AsksAndAnswers));
        check("sandboxes,approvals", Ok("sandboxes,approvals"));
        check("", Err(RightsError::Unknown(String::new())));
        check("root", Err(RightsError::Unknown("root".to_owned())));
        assert!(serde_json::from_str::<Rights>("[]").is_err());
        assert!(serde_json::from_str::<Rights>(r#"["tools","approvals"]"#).is_err());
        let stored: Rights = serde_json::from_str(r#"["run","approvals","admin"]"#).unwrap();
        assert_eq!(stored.to_text(), "run,admin");
    }
}
