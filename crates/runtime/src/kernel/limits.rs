//! How long each tool may take, and how much it may say.

use std::collections::BTreeMap;

use ringfence_policy::{Bytes, Timeout};

/// How long each tool may take, and how much it may say.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolLimits {
    /// For a tool without a limit of its own.
    pub default_timeout: Timeout,
    /// Limits of single tools, by name.
    pub timeouts: BTreeMap<String, Timeout>,
    /// What happens at a tool's limit.
    pub at_limit: AtLimit,
    /// How much of a tool's answer is kept.
    pub max_output: Bytes,
}

/// What happens at a tool's limit, where nobody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtLimit {
    /// The tool is ended.
    Deny,
    /// It goes on, to this time at most, and the answer says so.
    Extend(Timeout),
}

/// The time that one invocation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// What the configuration or the caller wants.
    pub limit: Timeout,
    /// When it is ended; later than the limit where that is extended.
    pub hard: Timeout,
}

impl ToolLimits {
    /// The time that a tool may take.
    pub fn timeout(&self, tool: &str) -> Timeout {
        self.timeouts.get(tool).copied().unwrap_or(self.default_timeout)
    }

    /// The time that one invocation may take, whose caller may ask for less than the tool's limit. Only the tool's own
    /// limit is extended: a caller who asks for less means it.
    pub(super) fn allowance(&self, tool: &str, asked: Option<Timeout>) -> Allowance {
        let limit = self.timeout(tool);
        match (asked.filter(|asked| *asked < limit), self.at_limit) {
            (Some(asked), _) => Allowance {
                limit: asked,
                hard: asked,
            },
            (None, AtLimit::Deny) => Allowance { limit, hard: limit },
            (None, AtLimit::Extend(most)) => Allowance {
                limit,
                hard: limit.max(most),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_shortens_and_only_the_configuration_extends() {
        let check = |asked: Option<u64>, at_limit, limit, hard| {
            let limits = ToolLimits {
                default_timeout: Timeout::seconds(60),
                timeouts: BTreeMap::from([("slow".to_owned(), Timeout::seconds(100))]),
                at_limit,
                max_output: Bytes::mib(1),
            };
            let allowance = limits.allowance("slow", asked.map(Timeout::seconds));
            let [limit, hard] = [limit, hard].map(Timeout::seconds);
            assert_eq!(allowance, Allowance { limit, hard }, "{asked:?} {at_limit:?}");
        };
        let extend = AtLimit::Extend(Timeout::seconds(300));
        check(None, AtLimit::Deny, 100, 100);
        check(Some(7), AtLimit::Deny, 7, 7);
        check(Some(500), AtLimit::Deny, 100, 100);
        check(None, extend, 100, 300);
        check(Some(7), extend, 7, 7);
        check(Some(500), extend, 100, 300);
        check(None, AtLimit::Extend(Timeout::seconds(1)), 100, 100);
    }
}
