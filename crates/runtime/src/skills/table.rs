//! The functions that one scope may call at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence_policy::Scope;
use serde::Serialize;
use serde_json::Value;

use super::{Function, Offer, Policy, Rules, Skill};

/// Functions of all skills together. With their documentation they fit into one line of a bridge.
const MAX_FUNCTIONS: usize = 256;
/// How long that may be.
const MAX_CATALOGUE: usize = 768 * 1024;
/// How many functions a search gives.
const MAX_FOUND: usize = 50;
/// How many names an error tells.
const MAX_NAMED: usize = 40;

/// What may be called.
#[derive(Debug)]
pub struct Table {
    entries: BTreeMap<String, Entry>,
    /// What could not be offered, and why.
    pub problems: Vec<String>,
}

/// A function with who answers for it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) function: Arc<Function>,
    pub(super) skill: Arc<dyn Skill>,
    pub(super) policy: Policy,
}

/// A function that a search has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Found {
    /// Skill and function, such as `Notes.add`.
    pub path: String,
    /// How it is called.
    pub signature: String,
    /// What it does, in a line.
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
            for function in offer.functions {
                let path = function.path();
                if !rules.allows(scope, path) {
                    continue;
                }
                length += function.entry().to_string().len();
                if table.entries.len() >= MAX_FUNCTIONS || length > MAX_CATALOGUE {
                    let told = format!("`{path}` and what follows: there are too many functions");
                    table.problems.push(told);
                    return table;
                }
                table.add(skill, function, rules);
            }
        }
        table
    }

    fn add(&mut self, skill: &Arc<dyn Skill>, function: Arc<Function>, rules: &Rules) {
        let path = function.path().to_owned();
        if self.entries.contains_key(&path) {
            self.problems
                .push(format!("`{path}` is there twice; the first one holds"));
            return;
        }
        let entry = Entry {
            policy: rules.policy(&path, function.policy),
            skill: Arc::clone(skill),
            function,
        };
        self.entries.insert(path, entry);
    }

    pub(super) fn entry(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// The function at a path.
    pub fn function(&self, path: &str) -> Option<&Function> {
        self.entry(path).map(|entry| &*entry.function)
    }

    /// Every function, with what happens before it is called, by path.
    pub fn functions(&self) -> impl Iterator<Item = (&Function, Policy)> {
        self.entries
            .values()
            .map(|entry| (&*entry.function, entry.policy))
    }

    /// What a program is told, so that it can make functions of its own of them.
    pub(super) fn catalogue(&self) -> Value {
        self.entries
            .values()
            .map(|entry| entry.function.entry())
            .collect()
    }

    /// Functions in whose names and words those of `query` are found, the best first. All for an empty one.
    pub fn ranked(&self, query: &str) -> Vec<(&Function, Policy)> {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let mut found: Vec<(usize, (&Function, Policy))> = self
            .functions()
            .map(|(function, policy)| (score(function, &words), (function, policy)))
            .filter(|(score, _)| *score > 0 || words.is_empty())
            .collect();
        // By path where the score is the same: the sort is stable.
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        found.into_iter().map(|(_, function)| function).collect()
    }

    /// The first of these, for who can use so many.
    pub fn search(&self, query: &str) -> Vec<Found> {
        let found = self.ranked(query).into_iter().take(MAX_FOUND);
        found
            .map(|(function, _)| Found {
                path: function.path().to_owned(),
                signature: function.signature(),
                summary: function.summary().to_owned(),
            })
            .collect()
    }

    /// Says that there is no such function, and what there is.
    pub fn not_found(&self, path: &str) -> String {
        let shown: String = path.chars().take(130).collect();
        let shown = shown.escape_debug();
        let skill = path.split('.').next().unwrap_or_default();
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
