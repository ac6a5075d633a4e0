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

/// What happens at a tool's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtLimit {
    /// The tool is ended.
    Deny,
    /// It goes on, to this time at most, and the answer says so.
    Extend(Timeout),
    /// A person is asked while the tool goes on; without a yes it is ended.
    Ask {
        /// When it is ended in any case.
        cap: Timeout,
        /// How long the person has to answer.
        patience: Timeout,
    },
}

/// The time that one invocation may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// What the configuration or the caller wants.
    pub limit: Timeout,
    /// When it is ended in any case; later than the limit where that may be extended.
    pub hard: Timeout,
    /// Who extends the limit.
    pub extension: Extension,
}

/// Who extends a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// Nobody.
    None,
    /// The configuration.
    Configured,
    /// A person, who is asked at the limit and has so long to answer.
    Asked(Timeout),
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
