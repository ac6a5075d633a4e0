//! The functions that one scope may call, at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence_policy::{Remedy, Scope, remedy};
use serde::Serialize;
use serde_json::Value;

use super::{Function, Offer, Policy, Rules, Skill};

/// Maximum number of functions of all skills. With their documentation they fit into one bridge message.
const MAX_FUNCTIONS: usize = 1024;
/// Maximum size of the catalogue in bytes.
const MAX_CATALOGUE: usize = 768 * 1024;
/// Maximum number of search results.
const MAX_FOUND: usize = 50;
/// Maximum number of names in an error.
const MAX_NAMED: usize = 40;

/// Functions that a scope may call.
#[derive(Debug)]
pub struct Table {
    entries: BTreeMap<String, Entry>,
    /// Errors of functions that are unavailable.
    pub problems: Vec<String>,
}

/// A function with its skill and policy.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) function: Arc<Function>,
    pub(super) skill: Arc<dyn Skill>,
    pub(super) policy: Policy,
}

/// A search result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct FunctionMatch {
    /// Skill and function, such as `Notes.add`.
    pub path: String,
    /// Signature in Python syntax.
    pub signature: String,
    /// First line of the documentation.
    pub summary: String,
}

impl Table {
    pub(super) fn new<'a>(
        offers: impl Iterator<Item = (&'a Arc<dyn Skill>, Offer)>,
        rules: &Rules,
        scope: &Scope,
    ) -> Self {
        let mut table = Self {
            entries: BTreeMap::new(),
            problems: Vec::new(),
        };
        let mut length = 0;
        for (skill, offer) in offers {
            table.problems.extend(offer.problems);
            for own in offer.functions.chunk_by(|one, next| one.skill() == next.skill()) {
                let (least, problems) = unmatched(own, rules);
                let mut own = own.to_vec();
                own.retain(|function| rules.allows(scope, function.path()));
                if own.is_empty() {
                    continue;
                }
                table.problems.extend(problems);
                let of_own: usize = own
                    .iter()
                    .map(|function| function.entry().to_string().len())
                    .sum();
                if let Err(why) = table.has_room(own.len(), length + of_own) {
                    let name = own.first().map_or("", |function| function.skill());
                    table.problems.push(format!("`{name}` is left out: {why}"));
                    continue;
                }
                length += of_own;
                for function in own {
                    let policy = rules.policy(function.path(), function.policy).max(least);
                    table.add(skill, function, policy);
                }
            }
        }
        table
    }

    /// Checks that a skill with so many functions fits; `length` is the size of the catalogue with it.
    fn has_room(&self, functions: usize, length: usize) -> Result<(), String> {
        let all = self.entries.len() + functions;
        if all > MAX_FUNCTIONS {
            return Err(format!(
                "with its {functions} functions there would be {all}, and {MAX_FUNCTIONS} is the limit of all skills together; {}",
                Remedy::from(remedy::Tool::ChooseSkills).person()
            ));
        }
        match length > MAX_CATALOGUE {
            true => Err(format!(
                "with its {functions} functions the documentation of all skills would have {length} bytes, and \
                 {MAX_CATALOGUE} is the limit; {}",
                Remedy::from(remedy::Tool::ChooseSkills).person()
            )),
            false => Ok(()),
        }
    }

    fn add(&mut self, skill: &Arc<dyn Skill>, function: Arc<Function>, policy: Policy) {
        let path = function.path().to_owned();
        if self.entries.contains_key(&path) {
            self.problems
                .push(format!("`{path}` is there twice; the first one holds"));
            return;
        }
        let entry = Entry {
            policy,
            skill: Arc::clone(skill),
            function,
        };
        self.entries.insert(path, entry);
    }

    pub(super) fn entry(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    pub fn function(&self, path: &str) -> Option<&Function> {
        self.entry(path_of(path)).map(|entry| &*entry.function)
    }

    /// Returns all functions with their policies, by path.
    pub fn functions(&self) -> impl Iterator<Item = (&Function, Policy)> {
        self.entries
            .values()
            .map(|entry| (&*entry.function, entry.policy))
    }

    /// Renders the catalogue from which a program builds its function stubs.
    pub(super) fn catalogue(&self) -> Value {
        self.entries
            .values()
            .map(|entry| entry.function.entry())
            .collect()
    }

    /// Returns the functions that match the words of `query`, best match first. All for an empty query.
    pub fn ranked(&self, query: &str) -> Vec<(&Function, Policy)> {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let mut found: Vec<(usize, (&Function, Policy))> = self
            .functions()
            .map(|(function, policy)| (score(function, &words), (function, policy)))
            .filter(|(score, _)| *score > 0 || words.is_empty())
            .collect();
        // The sort is stable: functions with the same score stay sorted by path.
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        found.into_iter().map(|(_, function)| function).collect()
    }

    /// Returns the first results of [`Table::ranked`].
    pub fn search(&self, query: &str) -> Vec<FunctionMatch> {
        let found = self.ranked(query).into_iter().take(MAX_FOUND);
        found
            .map(|(function, _)| FunctionMatch {
                path: function.path().to_owned(),
                signature: function.signature(),
                summary: function.summary().to_owned(),
            })
            .collect()
    }

    /// Renders the error for an unknown function, with known names.
    pub fn not_found(&self, path: &str) -> String {
        let shown: String = path.chars().take(130).collect();
        let shown = shown.escape_debug();
        let skill = path_of(path).split('.').next().unwrap_or_default();
        let own: Vec<&str> = self
            .entries
            .values()
            .filter(|entry| entry.function.skill() == skill)
            .map(|entry| entry.function.name())
            .collect();
        if !own.is_empty() {
            return format!(
                "not found: there is no function `{shown}`; `{skill}` has {}",
                names(own)
            );
        }
        let mut skills: Vec<&str> = self
            .entries
            .values()
            .map(|entry| entry.function.skill())
            .collect();
        skills.dedup();
        match skills.is_empty() {
            true => format!("not found: there is no function `{shown}`; there are none at all"),
            false => format!(
                "not found: there is no function `{shown}`; the skills are {}",
                names(skills)
            ),
        }
    }
}

/// Returns the minimum policy of a skill's functions, from rules for functions that it does not offer, and
/// warnings about these.
fn unmatched(own: &[Arc<Function>], rules: &Rules) -> (Policy, Vec<String>) {
    let paths: Vec<&str> = own.iter().map(|function| function.path()).collect();
    let skill = own.first().map_or("", |function| function.skill());
    let unmatched = rules.unmatched(skill, &paths);
    let least = unmatched.first().map_or(Policy::Allow, |(_, policy)| *policy);
    let told = unmatched.iter().map(|(pattern, policy)| {
        let policy = policy.as_str();
        format!(
            "`skills.{policy}` names `{pattern}`, which `{skill}` does not offer; it may have another name now, so `{policy}` holds \
             for all of `{skill}`"
        )
    });
    (least, told.collect())
}

/// Strips `device.` from a path as written in a program and shown by a search: `device.Notes.add`.
pub fn path_of(written: &str) -> &str {
    let rest = written.strip_prefix("device.");
    rest.filter(|rest| rest.contains('.')).unwrap_or(written)
}

fn names(mut names: Vec<&str>) -> String {
    let more = names.len().saturating_sub(MAX_NAMED);
    names.truncate(MAX_NAMED);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn score(function: &Function, words: &[String]) -> usize {
    let places = [
        (function.path().to_lowercase(), 5),
        (function.summary().to_lowercase(), 2),
        (function.doc().to_lowercase(), 1),
    ];
    let of_word = |word: &String| {
        let hits = places.iter().filter(|(text, _)| text.contains(word.as_str()));
        hits.map(|(_, weight)| weight).sum::<usize>()
    };
    words.iter().map(of_word).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::super::function::tests::find;
    use super::super::{CallError, SkillFuture};
    use super::*;

    /// A skill source with this number of functions per skill.
    #[derive(Debug)]
    struct Many(Vec<(&'static str, usize)>);

    impl Skill for Many {
        fn offer(&self) -> SkillFuture<'_, Offer> {
            let paths = self.0.iter();
            let paths = paths.flat_map(|(skill, count)| (0..*count).map(move |at| format!("{skill}.f{at}")));
            let functions = paths.map(|path| Arc::new(find(&path, Policy::Allow)));
            let functions = functions.collect();
            Box::pin(std::future::ready(Offer {
                functions,
                problems: Vec::new(),
            }))
        }

        fn call<'a>(
            &'a self,
            _: &'a Function,
            _: Map<String, Value>,
        ) -> SkillFuture<'a, Result<Value, CallError>> {
            Box::pin(std::future::ready(Ok(Value::Null)))
        }
    }

    async fn table(skills: &[(&'static str, usize)], allowed: &[&str]) -> Table {
        let skill = Arc::new(Many(skills.to_vec()));
        let offer = skill.offer().await;
        let rules = Rules {
            others: allowed.iter().map(|text| text.parse().unwrap()).collect(),
            ..Rules::of_tests()
        };
        let skill = skill as Arc<dyn Skill>;
        Table::new([(&skill, offer)].into_iter(), &rules, &Scope::local())
    }

    #[tokio::test]
    async fn a_skill_that_does_not_fit_takes_no_other_along() {
        let skills = [("First", 2), ("Big", MAX_FUNCTIONS - 1), ("Last", 3)];
        let full = table(&skills, &["*"]).await;
        assert_eq!(full.entries.len(), 5);
        assert!(full.entry("First.f1").is_some() && full.entry("Last.f2").is_some());
        let [told] = full.problems.as_slice() else {
            panic!("{:?}", full.problems);
        };
        assert!(
            told.starts_with("`Big` is left out: with its 1023 functions there would be 1025, and 1024 is"),
            "{told}"
        );
        // Functions that the scope may not call do not count towards the limit.
        let allowed = table(&skills, &["Big.*", "First.f0"]).await;
        assert_eq!(
            (allowed.entries.len(), allowed.problems.len()),
            (MAX_FUNCTIONS, 0)
        );
    }
}
