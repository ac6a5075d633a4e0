//! Time and output limits of tools.

use std::collections::BTreeMap;

use ringfence_policy::{Bytes, Timeout};

/// Time and output limits of tools.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolLimits {
    /// Limit of a tool without one of its own.
    pub default_timeout: Timeout,
    /// Limits by tool name.
    pub timeouts: BTreeMap<String, Timeout>,
    /// Behavior at a tool's limit.
    pub at_limit: AtLimit,
    /// Maximum size of a tool's answer.
    pub max_output: Bytes,
}

/// Behavior at a tool's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtLimit {
    /// The tool is cancelled.
    Deny,
    /// The tool keeps running, up to this limit, with a warning in the answer.
    Extend(Timeout),
    /// A person is asked while the tool keeps running; it is cancelled unless approved.
    Ask {
        /// Hard limit.
        cap: Timeout,
        /// Timeout of the approval request.
        patience: Timeout,
    },
}

/// The time limits of one invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Limit set by the configuration or the caller.
    pub limit: Timeout,
    /// Hard limit; later than `limit` if that may be extended.
    pub hard: Timeout,
    /// Source of an extension.
    pub extension: Extension,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    None,
    /// The configuration extends the limit.
    Configured,
    /// A person is asked at the limit, with this timeout.
    Asked(Timeout),
}

impl ToolLimits {
    pub fn timeout(&self, tool: &str) -> Timeout {
        self.timeouts.get(tool).copied().unwrap_or(self.default_timeout)
    }

    /// Returns the limits of one invocation. The caller may ask for less than the tool's limit. Only the
    /// tool's own limit is extended: a shorter one is the caller's explicit choice.
    pub(super) fn allowance(&self, tool: &str, asked: Option<Timeout>) -> Allowance {
        let limit = self.timeout(tool);
        let (limit, (hard, extension)) = match (asked.filter(|asked| *asked < limit), self.at_limit) {
            (Some(asked), _) => (asked, (asked, Extension::None)),
            (None, AtLimit::Deny) => (limit, (limit, Extension::None)),
            (None, AtLimit::Extend(cap)) => (limit, (cap, Extension::Configured)),
            (None, AtLimit::Ask { cap, patience }) => (limit, (cap, Extension::Asked(patience))),
        };
        Allowance {
            limit,
            hard: limit.max(hard),
            extension: if hard > limit { extension } else { Extension::None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_shortens_and_only_the_configuration_extends() {
        let check = |asked: Option<u64>, at_limit, limit, hard, extension| {
            let limits = ToolLimits {
                default_timeout: Timeout::seconds(60),
                timeouts: BTreeMap::from([("slow".to_owned(), Timeout::seconds(100))]),
                at_limit,
                max_output: Bytes::mib(1),
            };
            let allowance = limits.allowance("slow", asked.map(Timeout::seconds));
            let [limit, hard] = [limit, hard].map(Timeout::seconds);
            let expected = Allowance {
                limit,
                hard,
                extension,
            };
            assert_eq!(allowance, expected, "{asked:?} {at_limit:?}");
        };
        use Extension as E;
        let extend = AtLimit::Extend(Timeout::seconds(300));
        check(None, AtLimit::Deny, 100, 100, E::None);
        check(Some(7), AtLimit::Deny, 7, 7, E::None);
        check(Some(500), AtLimit::Deny, 100, 100, E::None);
        check(None, extend, 100, 300, E::Configured);
        check(Some(7), extend, 7, 7, E::None);
        check(Some(500), extend, 100, 300, E::Configured);
        check(None, AtLimit::Extend(Timeout::seconds(1)), 100, 100, E::None);
        let patience = Timeout::seconds(9);
        let ask = |cap| AtLimit::Ask {
            cap: Timeout::seconds(cap),
            patience,
        };
        check(None, ask(300), 100, 300, E::Asked(patience));
        check(Some(500), ask(300), 100, 300, E::Asked(patience));
        check(Some(7), ask(300), 7, 7, E::None);
        check(None, ask(50), 100, 100, E::None);
    }
}
