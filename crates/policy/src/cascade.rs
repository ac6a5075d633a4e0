//! Classifies a command line: allow, notify or review.

mod expand;
mod fetched;
mod parts;
mod pattern;

pub use parts::Part;
pub use pattern::{ParsePatternError, Pattern};

pub use crate::command::{
    Confinement, Destination, Effect, Finding, Forced, Host, Opened, Reach, Source, is_broad_place,
    is_obeyed, is_secret_path,
};
use crate::{command, shell};
use std::sync::Arc;

/// The command lists, and the settings of the review stages behind them.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Patterns that run immediately.
    pub allow: Vec<Pattern>,
    /// Patterns that run with a notification.
    pub notify: Vec<Pattern>,
    /// Minimum risk of a command that is not in the table. Below `threshold`, a model decides.
    pub unknown_floor: u8,
    /// Minimum risk at which a person is asked; `None` without a scoring model.
    pub threshold: Option<u8>,
    /// This machine's confining options for programs with several implementations, such as `awk`. A program
    /// that is not listed here goes to review.
    pub confinements: Arc<[Confinement]>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            notify: Vec::new(),
            unknown_floor: Effect::UNKNOWN_FLOOR,
            threshold: None,
            confinements: Arc::default(),
        }
    }
}

/// A decision about a command line, from mildest to strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Run the command.
    Allow,
    /// Run the command and notify the user.
    Notify,
    /// Ask a model or a person.
    Review,
}

impl Verdict {
    /// Returns a stable name for machine-readable output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Notify => "notify",
            Self::Review => "review",
        }
    }
}

/// The stage that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Every part matched the allowlist.
    AllowList,
    /// Every part matched one of the lists.
    NotifyList,
    /// A model scores the risk.
    PreValidation,
    /// A person is asked.
    Ask,
}

impl Stage {
    /// Returns a stable name for machine-readable output.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllowList => "allowList",
            Self::NotifyList => "notifyList",
            Self::PreValidation => "preValidation",
            Self::Ask => "ask",
        }
    }
}

/// The verdict on a command line, with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// The stage that decides.
    pub stage: Stage,
    /// The pattern that matched.
    pub matched: Option<String>,
    /// Risk floor, 0 to 10: a model may raise it, never lower it.
    pub floor: u8,
    /// Reasons, each naming the part and the rule.
    pub reasons: Vec<String>,
    /// The judgement on each part, in order.
    pub parts: Vec<Part>,
    /// Program and arguments, if the line needs no shell.
    pub argv: Option<Vec<String>>,
    /// The line with confining options inserted: runs in place of the line unless a person approves it.
    pub runs: Option<String>,
}

/// The authority that allows a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// A list or a model, without human review.
    Policy,
    /// A person, who approved the text.
    Person,
}

impl Decision {
    /// Returns the line to run, and its argument vector if it needs no shell.
    ///
    /// Unreviewed lines run with the confining options; an approved line runs unchanged.
    pub fn executed<'a>(&'a self, line: &'a str, by: Authority) -> (&'a str, Option<Vec<String>>) {
        match self.runs.as_deref().filter(|_| by == Authority::Policy) {
            Some(runs) => (runs, shell::parse(runs).ok().and_then(|script| script.argv())),
            None => (line, self.argv.clone()),
        }
    }

    /// Adds options that only this machine can supply, such as a host's address.
    pub fn confine(&mut self, line: &str, more: &[Forced]) {
        if let Some(part) = self.parts.last_mut() {
            part.forced.extend(more.iter().cloned());
        }
        self.runs = None;
        force(self, line);
    }

    /// Forces a question to a person, overriding lists and model.
    pub fn ask(&mut self, effect: Effect, reason: &str) {
        let floor = effect.floor(Effect::UNKNOWN_FLOOR);
        self.verdict = Verdict::Review;
        self.stage = Stage::Ask;
        self.matched = None;
        self.floor = self.floor.max(floor);
        self.reasons.push(reason.to_owned());
        self.parts.push(Part::found(effect, reason, floor));
    }
}

/// Floor of a line that cannot be parsed: it could do anything.
const UNCLEAR_FLOOR: u8 = 9;

/// Classifies a command line. Its worst part decides.
pub fn decide(line: &str, rules: &Rules) -> Decision {
    let script = match shell::parse(line) {
        Ok(script) => script,
        Err(unclear) => return unread(format!("{unclear}; {}", unclear.hint())),
    };
    let parts = parts::parts(&script, rules);
    let Some(worst) = parts.iter().max_by_key(|part| part.verdict) else {
        return unread("there is no command in it".to_owned());
    };
    let mut floor = parts.iter().map(|part| part.floor).max().unwrap_or_default();
    let verdict = worst.verdict;
    let mut reasons = Vec::new();
    for part in &parts {
        for reason in part.reasons() {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
    let mut effects = parts.iter().flat_map(|part| &part.findings);
    if effects.any(|finding| finding.effect == Effect::Code) && says_deletion(line) {
        floor = floor.max(Effect::Destroy.floor(rules.unknown_floor));
        reasons.push("it runs code, and in it stands what deletes".to_owned());
    }
    if fetched::runs_what_it_fetches(&script) {
        floor = Effect::Ruin.floor(rules.unknown_floor);
        reasons.push("it runs what it fetches, which nobody has read".to_owned());
    }
    let mut decision = Decision {
        verdict,
        stage: stage(verdict, floor, rules),
        matched: worst.matched.clone(),
        floor,
        reasons,
        argv: script.argv(),
        parts,
        runs: None,
    };
    force(&mut decision, line);
    if uses_new_trees(&decision.parts) {
        decision.ask(
            Effect::Code,
            "a part of it makes links or trees that another part may go through",
        );
    }
    decision
}

/// Programs that go through no path, or only make plain directories.
const COMPANIONS: &[&str] = &[
    "echo", "printf", "pwd", "true", "date", "ls", "cd", "mkdir", "test", "[",
];

/// Returns `true` if a part may make links or trees that another part could go through: only what is there before
/// the line runs can be resolved. In a loop each part comes before every other.
fn uses_new_trees(parts: &[Part]) -> bool {
    let is_companion = |part: &&Part| {
        let program = part.text.split_whitespace().next().unwrap_or_default();
        COMPANIONS.contains(&program)
    };
    let others = parts.iter().filter(|part| !is_companion(part)).count();
    let changes = |part: &Part| part.findings.iter().any(|finding| !finding.effect.is_read_only());
    others > 1 && parts.iter().any(|part| part.makes_trees && changes(part))
}

/// Inserts the confining options that commands need before a list may allow them.
fn force(decision: &mut Decision, line: &str) {
    let forced: Vec<Forced> = decision
        .parts
        .iter()
        .flat_map(|part| part.forced.clone())
        .collect();
    if forced.is_empty() {
        return;
    }
    let runs = command::with_forced(line, &forced);
    if shell::parse(&runs).is_err() {
        return decision.ask(Effect::Unknown, "the options that confine it do not fit in");
    }
    if decision.verdict != Verdict::Review {
        decision
            .reasons
            .push(format!("it runs as `{}`", shell::visible(&runs)));
    }
    decision.runs = Some(runs);
}

fn stage(verdict: Verdict, floor: u8, rules: &Rules) -> Stage {
    match verdict {
        Verdict::Allow => Stage::AllowList,
        Verdict::Notify => Stage::NotifyList,
        // A model can raise the risk but not lower it: at a floor of `threshold` or more its score cannot
        // matter.
        Verdict::Review if rules.threshold.is_some_and(|threshold| floor < threshold) => Stage::PreValidation,
        Verdict::Review => Stage::Ask,
    }
}

fn unread(reason: String) -> Decision {
    Decision {
        verdict: Verdict::Review,
        stage: Stage::Ask,
        matched: None,
        floor: UNCLEAR_FLOOR,
        reasons: vec![reason],
        parts: Vec::new(),
        argv: None,
        runs: None,
    }
}

/// Returns `true` if the text names a deletion, in a shell or another language. Can only raise the risk of a
/// line that runs code.
fn says_deletion(line: &str) -> bool {
    let words = [
        "rm -",
        "rmdir",
        "rmtree",
        "removedirs",
        "os.remove",
        "unlink",
        "rmSync",
        "fs.rm",
        "rm_r",
        "File.delete",
        "remove_dir",
        "truncate",
        "mkfs",
        "dd of=",
        "shred",
        "reset --hard",
        "clean -f",
        "DROP ",
        "drop table",
        "DELETE FROM",
        "delete from",
    ];
    words.iter().any(|word| line.contains(word))
}

/// Returns the highest floor of the findings.
fn floor(findings: &[Finding], unknown: u8) -> u8 {
    let effects = findings.iter().map(|finding| finding.effect);
    let floors = effects.map(|effect: Effect| effect.floor(unknown));
    floors.max().unwrap_or_default()
}

#[cfg(test)]
mod tests;
