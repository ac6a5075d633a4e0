//! Who may call which functions, how often, and what a person has to say about it.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use ringfence_policy::{Scope, Timeout};
use serde::{Deserialize, Serialize};

use super::function::is_name;

/// What happens before a function is called, from the mildest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Nothing.
    #[default]
    Allow,
    /// A person is told.
    Notify,
    /// A person is asked.
    Ask,
}

impl Policy {
    /// The name in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Notify => "notify",
            Self::Ask => "ask",
        }
    }
}

/// Functions by name: `Notes.add`, all of a skill as `Notes.*`, or all as `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathPattern(String);

/// Why a text names no functions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no functions; write `Skill.function`, `Skill.*` or `*`")]
pub struct ParsePathError(String);

impl PathPattern {
    /// The one function that it names; `None`: all of a skill, or all.
    fn only(&self) -> Option<&str> {
        (!self.0.ends_with('*')).then_some(&*self.0)
    }

    /// Whether it names the function at this path.
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

/// The rules for calls.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What a scope may call. One that is not named may call what `others` names.
    pub scopes: Vec<(Scope, Vec<PathPattern>)>,
    /// What every other scope may call.
    pub others: Vec<PathPattern>,
    /// What happens before some functions are called, beside what the skills themselves demand. The strictest holds.
    pub policies: Vec<(PathPattern, Policy)>,
    /// Calls of one run.
    pub max_calls: NonZeroU32,
    /// Calls of one run in a second, on average. More have to wait.
    pub calls_per_second: NonZeroU32,
    /// How long one call may take, a person's answer not counted.
    pub call_timeout: Timeout,
    /// How long a person has to answer.
    pub patience: Timeout,
}

impl Rules {
    /// Whether a scope may call the function at a path.
    pub fn allows(&self, scope: &Scope, path: &str) -> bool {
        let own = self.scopes.iter().find(|(named, _)| named == scope);
        let patterns = own.map_or(&self.others, |(_, patterns)| patterns);
        patterns.iter().any(|pattern| pattern.names(path))
    }

    /// Policies for one function each that a skill with these functions does not offer, the strictest first. Its author may
    /// have given it another name, so such a policy is that of all its functions.
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

    /// What happens before the function at a path is called, where its skill demands `own`.
    pub fn policy(&self, path: &str, own: Policy) -> Policy {
        let named = self.policies.iter().filter(|(pattern, _)| pattern.names(path));
        named.map(|(_, policy)| *policy).fold(own, Policy::max)
    }
}

#[cfg(test)]
impl Rules {
    /// Every scope may call everything, three times.
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
