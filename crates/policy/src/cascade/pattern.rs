//! Patterns of the command lists: words, in which a star matches arguments but adds no effect.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{Confinement, Rules, Verdict, decide};
use crate::command::{self, Effect, Finding, LineContext, within_word};
use crate::shell::{self, Node, Piece, Simple, Word};

/// A pattern of `allowList` or `notifyList`.
///
/// Its words must equal the command's. A star inside a word matches any characters but a slash; a star as the
/// last word matches any further words that add no effect to the command. `@read-only` matches every command
/// that changes nothing according to the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    ReadOnly,
    Words {
        words: Vec<Part>,
        /// Set if further words may follow.
        open: bool,
        /// Effects of the pattern's own words; `None` without a star, when it matches one command only.
        effects: Option<Vec<Effect>>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Exact(String),
    Star(String),
}

/// An error returned when parsing a pattern from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a command pattern: {what}")]
pub struct ParsePatternError {
    text: String,
    what: String,
}

impl ParsePatternError {
    /// Returns a suggestion for fixing it.
    pub fn hint(&self) -> &'static str {
        "write one command, such as `systemctl status *` or `df -h`, or the preset `@read-only`"
    }
}

impl FromStr for Pattern {
    type Err = ParsePatternError;

    fn from_str(text: &str) -> Result<Self, ParsePatternError> {
        let kind = read(text.trim()).map_err(|what| ParsePatternError {
            text: shell::visible(text),
            what,
        })?;
        Ok(Self {
            text: text.trim().to_owned(),
            kind,
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn read(text: &str) -> Result<Kind, String> {
    match text {
        "@read-only" => return Ok(Kind::ReadOnly),
        _ if text.starts_with('@') => return Err("there is no such preset".to_owned()),
        _ => {}
    }
    let script = shell::parse(text).map_err(|unclear| unclear.to_string())?;
    let [Node::Simple(simple)] = script.nodes.as_slice() else {
        return Err("expected a single command".to_owned());
    };
    if !simple.assignments.is_empty() || !simple.redirects.is_empty() {
        return Err("variables and redirections cannot be allowed".to_owned());
    }
    let mut words: Vec<Part> = simple.words.iter().map(part).collect::<Result<_, _>>()?;
    match words.first() {
        Some(Part::Exact(name)) if name.is_empty() => return Err("the program's name is empty".to_owned()),
        Some(Part::Exact(name)) if name.contains(char::is_whitespace) && !name.contains('/') => {
            return Err(format!(
                "in quotes, `{name}` is the name of one program: take the quotes off"
            ));
        }
        Some(Part::Exact(_)) => {}
        _ => return Err("the program must be written in full, without `*`".to_owned()),
    }
    let open = words.last() == Some(&Part::Star("*".to_owned()));
    if open {
        words.pop();
    }
    let starred = open || words.iter().any(|word| matches!(word, Part::Star(_)));
    let effects = starred.then(|| effects(&words));
    Ok(Kind::Words { words, open, effects })
}

fn part(word: &Word) -> Result<Part, String> {
    let mut pattern = String::new();
    let mut star = false;
    for piece in &word.pieces {
        match piece {
            Piece::Literal(text) => pattern.push_str(text),
            Piece::Glob('*') => {
                star = true;
                pattern.push('*');
            }
            Piece::Home(_)
            | Piece::Glob(_)
            | Piece::Variable(_)
            | Piece::Commands(_)
            | Piece::Process { .. }
            | Piece::Braces(_) => return Err(format!("`{}` has more than plain text and `*`", word.text)),
        }
    }
    let quoted_star = pattern.matches('*').count()
        != word
            .pieces
            .iter()
            .filter(|piece| matches!(piece, Piece::Glob(_)))
            .count();
    match (star, quoted_star) {
        (false, _) => Ok(Part::Exact(pattern)),
        (true, false) => Ok(Part::Star(pattern)),
        (true, true) => Err(format!("`{}` mixes a quoted `*` with an unquoted one", word.text)),
    }
}

/// A machine on which every program with a language of its own can be confined.
const SOME_MACHINE: [Confinement; 2] = [
    Confinement {
        program: "awk",
        words: "--sandbox",
    },
    Confinement {
        program: "yq",
        words: "-L /var/empty",
    },
];

/// Returns the remedy for a pattern that allows nothing, if its reason is a rule of patterns.
fn remedy(words: &[Part], open: bool, effects: Option<&[Effect]>) -> Option<String> {
    if let Some(behind) = unwrapped(words, open) {
        return Some(format!(
            "what stands before `{behind}` is skipped: write `{behind}`"
        ));
    }
    let all: Vec<Word> = words.iter().map(Part::sample).map(literal).collect();
    if command::unwrapped(&all).is_none() {
        return Some(format!(
            "no pattern reaches a command behind `{}`: you are asked about it each time",
            all.first()?.text
        ));
    }
    let leaves = |word: &Part| matches!(word, Part::Star(text) if text.split('/').any(|part| part == ".."));
    let text = match effects {
        _ if words.iter().any(leaves) => {
            "a star matches no path with `..`: write the directory that it leads to"
        }
        Some(effects) if effects.iter().any(|effect| NEVER.contains(effect)) => {
            "a star never gives code, more rights or an unknown program: write each command in full"
        }
        None if words.len() < 2 => "a program's name does not say what it runs: write it with its arguments",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Returns the pattern for the command behind wrappers that patterns skip, if there are any.
fn unwrapped(words: &[Part], open: bool) -> Option<String> {
    let all: Vec<Word> = words.iter().map(Part::sample).map(literal).collect();
    let behind = command::unwrapped(&all).filter(|behind| behind.len() < words.len())?;
    let text = |word: &Part| match word {
        Part::Exact(text) => shell::quote(std::slice::from_ref(text)),
        Part::Star(pattern) => pattern.clone(),
    };
    let behind = words[words.len() - behind.len()..].iter().map(text);
    let all: Vec<String> = behind.chain(open.then(|| "*".to_owned())).collect();
    Some(all.join(" "))
}

fn literal(text: String) -> Word {
    Word {
        pieces: vec![Piece::Literal(text.clone())],
        text,
        end: None,
    }
}

/// Returns the effects of the words with neutral text in place of the stars.
fn effects(words: &[Part]) -> Vec<Effect> {
    let simple = Simple {
        words: words.iter().map(Part::sample).map(literal).collect(),
        ..Simple::default()
    };
    let found = command::simple_findings(&simple, &LineContext::default()).findings;
    found.iter().map(|finding| finding.effect).collect()
}

impl Pattern {
    /// Returns `true` if the pattern spells out one command in full.
    pub(super) fn is_exact(&self) -> bool {
        matches!(&self.kind, Kind::Words { effects: None, .. })
    }

    /// Returns the reason why it allows none of the commands that it spells out, and the remedy; `None` if it allows
    /// one of them.
    pub fn flaw(&self) -> Option<String> {
        let Kind::Words { words, open, effects } = &self.kind else {
            return None;
        };
        let bare: Vec<String> = words.iter().map(Part::sample).collect();
        let more = open.then(|| [&bare[..], &["x".to_owned()]].concat());
        let mut samples = more.iter().chain([&bare]).map(|words| shell::quote(words));
        let rules = Rules {
            allow: vec![self.clone()],
            confinements: Arc::new(SOME_MACHINE),
            ..Rules::default()
        };
        let sample = samples.next()?;
        let refused = |line: &String| decide(line, &rules).verdict == Verdict::Review;
        if !refused(&sample) || samples.any(|line| !refused(&line)) {
            return None;
        }
        let remedy = remedy(words, *open, effects.as_deref())
            .unwrap_or_else(|| decide(&sample, &rules).reasons.join("; "));
        Some(format!("it does not let `{sample}` run: {remedy}"))
    }

    /// Returns `true` if the pattern allows the command with these findings.
    pub(super) fn matches(&self, candidate: &MatchCandidate<'_>, findings: &[Finding]) -> bool {
        let harmless = findings.iter().all(|finding| finding.effect.is_read_only());
        let (Kind::Words { words, open, effects }, Some(command)) = (&self.kind, candidate.words) else {
            return self.kind == Kind::ReadOnly && harmless;
        };
        if command.len() < words.len() || !open && command.len() > words.len() {
            return false;
        }
        let fits = words.iter().zip(command).all(|(part, word)| part.matches(word));
        // A word that only the shell can determine could be anything.
        let known = command[words.len()..].iter().all(|word| word.shape().is_some());
        let granted = |finding: &Finding| match effects {
            Some(effects) => grants(effects, finding.effect),
            None => self.means(finding.effect, candidate),
        };
        fits && known && (harmless || findings.iter().all(granted))
    }

    /// Returns `true` if a pattern without a star covers the effect. A program name alone does not say what
    /// the program runs; a full command does not say what is fed to it, nor what the same words mean in
    /// another directory.
    fn means(&self, effect: Effect, candidate: &MatchCandidate<'_>) -> bool {
        let open = matches!(
            effect,
            Effect::Code | Effect::Privilege | Effect::Unknown | Effect::Terminal
        );
        let bare = matches!(&self.kind, Kind::Words { words, .. } if words.len() < 2);
        !(open && (bare || candidate.fed || candidate.moved))
    }
}

/// The command that a pattern is matched against.
#[derive(Debug, Default)]
pub(super) struct MatchCandidate<'a> {
    /// The command's words; `None` where only the preset may allow it.
    pub(super) words: Option<&'a [Word]>,
    /// Set if a pipe or a redirection feeds the command.
    pub(super) fed: bool,
    /// Set if the command runs in another directory than the line.
    pub(super) moved: bool,
}

/// Returns `true` if the pattern's own effects cover an effect. A star never grants code execution,
/// privileges or unknown effects.
fn grants(effects: &[Effect], effect: Effect) -> bool {
    effect.is_read_only() || !NEVER.contains(&effect) && effects.contains(&effect)
}

/// Effects that a star never allows.
const NEVER: &[Effect] = &[Effect::Code, Effect::Privilege, Effect::Unknown];

impl Part {
    /// Returns a word that it matches, with neutral text in place of the stars.
    fn sample(&self) -> String {
        match self {
            Self::Exact(text) => text.clone(),
            Self::Star(pattern) => pattern.replace('*', "x"),
        }
    }

    fn matches(&self, word: &Word) -> bool {
        let Some(text) = word.literal() else { return false };
        match self {
            Self::Exact(wanted) => *wanted == text,
            Self::Star(pattern) => {
                let slashes = |text: &str| text.matches('/').count();
                let leaves = text.split('/').any(|part| part == "..");
                (!text.starts_with('-') || pattern.starts_with('-'))
                    && (pattern == "*" || slashes(pattern) == slashes(&text) && !leaves)
                    && within_word(pattern, &text)
            }
        }
    }
}
