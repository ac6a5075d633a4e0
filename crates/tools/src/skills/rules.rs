//! Rules for calls: permissions by scope, rate limits and approval policies.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use ringfence_policy::{Scope, Timeout};
use serde::{Deserialize, Serialize};

use super::function::is_name;

/// Action before a function is called, from the mildest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    #[default]
    Allow,
    Notify,
    /// Ask a person for approval.
    Ask,
}

impl Policy {
    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Notify => "notify",
            Self::Ask => "ask",
        }
    }
}

/// A pattern of functions: `Notes.add`, `Notes.*` for a skill, or `*` for all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathPattern(String);

/// A text is not a pattern of functions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a pattern of functions; write `Skill.function`, `Skill.*` or `*`")]
pub struct ParsePathError(String);

impl PathPattern {
    /// Returns the function that it names, or `None` if it has a wildcard.
    fn only(&self) -> Option<&str> {
        (!self.0.ends_with('*')).then_some(&*self.0)
    }

    /// Returns `true` if the pattern matches the function at this path.
    pub fn names(&self, path: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => path.starts_with(beginning),
            None => path == self.0,
        }
    }
}

impl FromStr for PathPattern {
    type Err = ParsePathError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = match text.split_once('.') {
            Some((skill, function)) => is_name(skill) && (function == "*" || is_name(function)),
            None => text == "*",
        };
        known
            .then(|| Self(text.to_owned()))
            .ok_or_else(|| ParsePathError(text.chars().take(80).collect()))
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Rules for calls.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Functions that each scope may call. A scope without an entry gets `others`.
    pub scopes: Vec<(Scope, Vec<PathPattern>)>,
    /// Functions that every other scope may call.
    pub others: Vec<PathPattern>,
    /// Policies of functions, in addition to the demands of skills. The strictest wins.
    pub policies: Vec<(PathPattern, Policy)>,
    /// Maximum number of calls of a run.
    pub max_calls: NonZeroU32,
    /// Average rate limit of a run. Calls beyond it are delayed.
    pub calls_per_second: NonZeroU32,
    /// Timeout of a call, not counting an approval.
    pub call_timeout: Timeout,
    /// Timeout of an approval request.
    pub patience: Timeout,
}

impl Rules {
    /// Returns `true` if a scope may call the function at a path.
    pub fn allows(&self, scope: &Scope, path: &str) -> bool {
        let own = self.scopes.iter().find(|(named, _)| named == scope);
        let patterns = own.map_or(&self.others, |(_, patterns)| patterns);
        patterns.iter().any(|pattern| pattern.names(path))
    }

    /// Returns policies of single functions that the skill does not offer, strictest first. The function may
    /// have another name, so such a policy applies to all functions of the skill.
    pub(super) fn unmatched(&self, skill: &str, paths: &[&str]) -> Vec<(&PathPattern, Policy)> {
        let is_unmatched = |(pattern, policy): &&(PathPattern, Policy)| {
            *policy > Policy::Allow
                && pattern
                    .only()
                    .is_some_and(|path| path.split('.').next() == Some(skill) && !paths.contains(&path))
        };
        let unmatched = self.policies.iter().filter(is_unmatched);
        let mut unmatched: Vec<_> = unmatched.map(|(pattern, policy)| (pattern, *policy)).collect();
        unmatched.sort_by_key(|(_, policy)| std::cmp::Reverse(*policy));
        unmatched
    }

    /// Returns the policy of the function at a path whose skill demands `own`.
    pub fn policy(&self, path: &str, own: Policy) -> Policy {
        let named = self.policies.iter().filter(|(pattern, _)| pattern.names(path));
        named.map(|(_, policy)| *policy).fold(own, Policy::max)
    }
}

#[cfg(test)]
impl Rules {
    /// Allows every scope three calls of any functions.
    pub(super) fn of_tests() -> Self {
        Self {
            scopes: Vec::new(),
            others: vec!["*".parse().unwrap()],
            policies: Vec::new(),
            max_calls: NonZeroU32::new(3).unwrap(),
            calls_per_second: NonZeroU32::new(1000).unwrap(),
            call_timeout: Timeout::seconds(5),
            patience: Timeout::seconds(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> PathPattern {
        text.parse().unwrap()
    }

    #[test]
    fn patterns_name_functions() {
        for (text, path, expected) in [
            ("*", "Notes.add", true),
            ("Notes.*", "Notes.add", true),
            ("Notes.*", "NotesOld.add", false),
            ("Notes.add", "Notes.add", true),
            ("Notes.add", "Notes.add_all", false),
        ] {
            assert_eq!(pattern(text).names(path), expected, "{text} {path}");
        }
        for text in [
            "",
            "Notes",
            "Notes.",
            ".add",
            "*.add",
            "Notes._add",
            "Notes.a*",
            "A.b.c",
        ] {
            assert!(text.parse::<PathPattern>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_scope_that_is_named_has_its_own_list() {
        let ann: Scope = "ann".parse().unwrap();
        let rules = Rules {
            scopes: vec![(ann.clone(), vec![pattern("Notes.*")])],
            others: vec![pattern("Weather.today")],
            ..Rules::of_tests()
        };
        assert!(rules.allows(&ann, "Notes.add") && !rules.allows(&ann, "Weather.today"));
        let bob = "bob".parse().unwrap();
        assert!(!rules.allows(&bob, "Notes.add") && rules.allows(&bob, "Weather.today"));
    }

    #[test]
    fn the_strictest_policy_holds() {
        let rules = Rules {
            policies: vec![
                (pattern("Notes.*"), Policy::Notify),
                (pattern("Notes.delete"), Policy::Ask),
                (pattern("Notes.list"), Policy::Allow),
            ],
            ..Rules::of_tests()
        };
        for (path, own, expected) in [
            ("Notes.delete", Policy::Allow, Policy::Ask),
            ("Notes.list", Policy::Allow, Policy::Notify),
            ("Notes.list", Policy::Ask, Policy::Ask),
            ("Other.list", Policy::Allow, Policy::Allow),
        ] {
            assert_eq!(rules.policy(path, own), expected, "{path}");
        }
    }
}
