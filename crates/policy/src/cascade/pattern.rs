//! Patterns of the command lists: words, in which a star matches arguments but adds no effect.

use std::fmt;
use std::str::FromStr;

use crate::command::{self, Around, Effect, Finding, within_word};
use crate::shell::{self, Node, Piece, Simple, Word};

/// A pattern of `allowList` or `notifyList`.
///
/// Its words must equal the command's. A star inside a word matches any characters but a slash; a star as the
/// last word matches any further words that give the command no effect beyond the words before the star.
/// `@read-only` matches every command that the table knows to change nothing.
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

/// The error of a text that is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no pattern of commands: {what}")]
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
        return Err("it is not one command".to_owned());
    };
    if !simple.assignments.is_empty() || !simple.redirects.is_empty() {
        return Err("variables and redirections cannot be allowed".to_owned());
    }
    let mut words: Vec<Part> = simple.words.iter().map(part).collect::<Result<_, _>>()?;
    match words.first() {
        Some(Part::Exact(_)) => {}
        _ => return Err("the program must be named".to_owned()),
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
            | Piece::Braces(_) => return Err(format!("`{}` is more than text and stars", word.text)),
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
        (true, true) => Err(format!(
            "`{}` has a star that is one, and one that is not",
            word.text
        )),
    }
}

/// Returns the effects of the words with neutral text in place of the stars.
fn effects(words: &[Part]) -> Vec<Effect> {
    let literal = |word: &Part| {
        let text = match word {
            Part::Exact(text) => text.clone(),
            Part::Star(pattern) => pattern.replace('*', "x"),
        };
        Word {
            pieces: vec![Piece::Literal(text.clone())],
            text,
            end: None,
        }
    };
    let simple = Simple {
        words: words.iter().map(literal).collect(),
        ..Simple::default()
    };
    let found = command::simple_findings(&simple, &Around::default()).findings;
    found.iter().map(|finding| finding.effect).collect()
}

impl Pattern {
    /// Returns `true` if it spells out one command in full.
    pub(super) fn is_exact(&self) -> bool {
        matches!(&self.kind, Kind::Words { effects: None, .. })
    }

    /// Returns `true` if it allows the command with these findings.
    pub(super) fn matches(&self, asked: &Asked<'_>, findings: &[Finding]) -> bool {
        let harmless = findings.iter().all(|finding| finding.effect.is_read_only());
        let (Kind::Words { words, open, effects }, Some(command)) = (&self.kind, asked.words) else {
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
            None => self.means(finding.effect, asked),
        };
        fits && known && (harmless || findings.iter().all(granted))
    }

    /// Returns `true` if a pattern without a star covers the effect. A program name alone does not say what
    /// the program runs; a full command does not say what is fed to it, nor what the same words mean in
    /// another directory.
    fn means(&self, effect: Effect, asked: &Asked<'_>) -> bool {
        let open = matches!(
            effect,
            Effect::Code | Effect::Privilege | Effect::Unknown | Effect::Terminal
        );
        let bare = matches!(&self.kind, Kind::Words { words, .. } if words.len() < 2);
        !(open && (bare || asked.fed || asked.moved))
    }
}

/// The command that a pattern is matched against.
#[derive(Debug, Default)]
pub(super) struct Asked<'a> {
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
    let never = matches!(effect, Effect::Code | Effect::Privilege | Effect::Unknown);
    effect.is_read_only() || !never && effects.contains(&effect)
}

impl Part {
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
