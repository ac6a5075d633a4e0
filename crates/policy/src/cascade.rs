//! What becomes of a command line: it runs, it runs and is told, or it is reviewed.

mod expand;
mod fetched;
mod parts;
mod pattern;

pub use parts::Part;
pub use pattern::{ParsePatternError, Pattern};

pub use crate::command::{
    Confinement, Effect, Finding, Forced, Host, Opened, is_broad_place, is_secret_path,
};
use crate::{command, shell};
use std::sync::Arc;

/// The lists, and what is known of the stages behind them.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What runs at once.
    pub allow: Vec<Pattern>,
    /// What runs, and is told.
    pub notify: Vec<Pattern>,
    /// The lowest risk of a command that the table does not know; below 5 it is a model that decides.
    pub unknown_floor: u8,
    /// From which risk on a person is asked; nothing if there is no model to judge.
    pub threshold: Option<u8>,
    /// How programs of several makes, such as `awk`, are confined on this machine; one that is not here is asked about.
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

/// What is done about a line, from the mildest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It runs.
    Allow,
    /// It runs, and somebody is told.
    Notify,
    /// A model or a person decides.
    Review,
}

impl Verdict {
    /// As it is written for programs.
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
    /// Every part matched the list of what runs at once.
    AllowList,
    /// Every part matched one of the lists.
    NotifyList,
    /// A model scores the risk.
    PreValidation,
    /// A person is asked.
    Ask,
}

impl Stage {
    /// As it is written for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllowList => "allowList",
            Self::NotifyList => "notifyList",
            Self::PreValidation => "preValidation",
            Self::Ask => "ask",
        }
    }
}

/// What was decided about a line, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What is done.
    pub verdict: Verdict,
    /// The stage that decides.
    pub stage: Stage,
    /// The pattern by which it runs.
    pub matched: Option<String>,
    /// The lowest risk, of 0 to 10, that any model may give it.
    pub floor: u8,
    /// Each with the part and the rule that it is about.
    pub reasons: Vec<String>,
    /// How each part was judged, in order.
    pub parts: Vec<Part>,
    /// The program and its arguments, if no shell is needed to run the line.
    pub argv: Option<Vec<String>>,
    /// What runs in place of the line if nobody looks at it: the line, with options that confine programs of it.
    pub runs: Option<String>,
}

/// Who lets a line run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetBy {
    /// A list, or a model: nobody has looked at it.
    Policy,
    /// A person, who approved the text.
    Person,
}

impl Decision {
    /// The line that runs, and the program and its arguments if no shell is needed for it.
    ///
    /// What nobody has looked at runs with the options that confine its programs; what a person approved runs as it is.
    pub fn executed<'a>(&'a self, line: &'a str, by: LetBy) -> (&'a str, Option<Vec<String>>) {
        match self.runs.as_deref().filter(|_| by == LetBy::Policy) {
            Some(runs) => (runs, shell::parse(runs).ok().and_then(|script| script.argv())),
            None => (line, self.argv.clone()),
        }
    }

    /// Adds options that the machine alone can tell, such as the address of a host.
    pub fn confine(&mut self, line: &str, more: &[Forced]) {
        if let Some(part) = self.parts.last_mut() {
            part.forced.extend(more.iter().cloned());
        }
        self.runs = None;
        force(self, line);
    }

    /// Has a person asked, whatever a list or a model would say.
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

/// The floor of what cannot be read: it could be anything.
const UNCLEAR_FLOOR: u8 = 9;

/// Decides about a command line. The worst of its parts decides.
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
    decision
}

/// Adds the options without which the parts are not let run unseen.
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
        // A model can raise the risk and not lower it: where the floor is high enough, nobody needs to ask it.
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

/// Whether a text names what deletes, in a shell or in another language. It can only make a line that runs code look worse.
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

/// The floor of a set of findings.
fn floor(findings: &[Finding], unknown: u8) -> u8 {
    let effects = findings.iter().map(|finding| finding.effect);
    let floors = effects.map(|effect: Effect| effect.floor(unknown));
    floors.max().unwrap_or_default()
}

#[cfg(test)]
mod tests;
