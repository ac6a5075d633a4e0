//! The parts of a line, each judged on its own.

use super::{Pattern, Rules, Verdict, floor};
use crate::command::{self, Finding};
use crate::shell::{Node, Piece, Redirect, Script, Simple, Word, visible};

/// One command of a line, or the control flow around others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// As it was written, with invisible characters escaped.
    pub text: String,
    /// How deep it is nested.
    pub depth: usize,
    /// What the part does.
    pub findings: Vec<Finding>,
    /// Why no list may let it run.
    pub blocked: Option<String>,
    /// What is done about the part.
    pub verdict: Verdict,
    /// The pattern by which it runs.
    pub matched: Option<String>,
    /// The lowest risk that it can have.
    pub floor: u8,
}

impl Part {
    /// Why it was judged like this.
    pub fn reasons(&self) -> Vec<String> {
        let found = self.findings.iter().map(|finding| finding.reason.clone());
        let mut reasons: Vec<String> = self.blocked.iter().cloned().chain(found).collect();
        if let Some(pattern) = &self.matched {
            reasons.push(format!("`{}` matches `{pattern}`", self.text));
        } else if reasons.is_empty() {
            reasons.push(format!("`{}` matches no pattern", self.text));
        }
        reasons
    }
}

/// All parts of a line, in the order in which they are written.
pub(super) fn parts(script: &Script, rules: &Rules) -> Vec<Part> {
    let mut walk = Walk {
        rules,
        parts: Vec::new(),
        feeds: feeds(&script.nodes),
    };
    walk.nodes(&script.nodes, 0, None);
    for word in &script.here {
        walk.word(word, 0, None);
    }
    walk.parts
}

/// Whether what one command prints becomes the arguments of another.
fn feeds(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match node {
        Node::Simple(simple) => simple
            .words
            .iter()
            .any(|word| word.text.contains("xargs") || word.pieces.iter().any(is_commands)),
        Node::Pipe(nodes) => feeds(nodes),
        Node::Compound { body, .. } => feeds(body),
    })
}

fn is_commands(piece: &Piece) -> bool {
    matches!(piece, Piece::Commands(_))
}

struct Walk<'a> {
    rules: &'a Rules,
    parts: Vec<Part>,
    feeds: bool,
}

impl Walk<'_> {
    fn nodes(&mut self, nodes: &[Node], depth: usize, inside: Option<&'static str>) {
        for node in nodes {
            match node {
                Node::Simple(simple) => self.simple(simple, depth, inside),
                Node::Pipe(parts) => self.nodes(parts, depth, inside),
                Node::Compound {
                    kind,
                    words,
                    body,
                    redirects,
                } => {
                    let name = kind.name();
                    let mut findings = Vec::new();
                    for redirect in redirects {
                        findings.extend(command::redirect_findings(redirect));
                    }
                    let part = self.part(name.to_owned(), depth, findings);
                    self.settle(part, Some(format!("{name} is not matched by lists")), None);
                    for word in words
                        .iter()
                        .chain(redirects.iter().map(|redirect| &redirect.target))
                    {
                        self.word(word, depth + 1, Some(name));
                    }
                    self.nodes(body, depth + 1, Some(name));
                }
            }
        }
    }

    fn simple(&mut self, simple: &Simple, depth: usize, inside: Option<&'static str>) {
        let judged = command::simple_findings(simple, self.feeds);
        let mut findings = judged.findings;
        let own = findings.len();
        for redirect in &simple.redirects {
            findings.extend(command::redirect_findings(redirect));
        }
        let mut blocked = blocked(simple, inside);
        if judged.assigns {
            blocked.get_or_insert("variables are set for it".to_owned());
        }
        if findings.len() > own {
            blocked.get_or_insert("its redirections do more than read".to_owned());
        }
        let words = (!judged.wraps).then_some(simple.words.as_slice());
        let part = self.part(visible(&simple.text), depth, findings);
        self.settle(part, blocked, words);
        let assigned = simple.assignments.iter().map(|assignment| &assignment.value);
        let targets = simple
            .redirects
            .iter()
            .map(|redirect: &Redirect| &redirect.target);
        for word in simple.words.iter().chain(assigned).chain(targets) {
            self.word(word, depth + 1, inside);
        }
    }

    /// The commands in a word are parts of their own.
    fn word(&mut self, word: &Word, depth: usize, inside: Option<&'static str>) {
        for piece in &word.pieces {
            match piece {
                Piece::Commands(body) => self.nodes(body, depth, inside),
                Piece::Process { output: false, body } => self.nodes(body, depth, inside),
                Piece::Process { output: true, body } => {
                    self.nodes(body, depth, Some("a command that is written to"));
                }
                Piece::Literal(_) | Piece::Glob(_) | Piece::Home(_) | Piece::Variable(_) | Piece::Braces => {}
            }
        }
    }

    fn part(&self, text: String, depth: usize, findings: Vec<Finding>) -> Part {
        Part {
            text,
            depth,
            floor: floor(&findings, self.rules.unknown_floor),
            findings,
            blocked: None,
            verdict: Verdict::Review,
            matched: None,
        }
    }

    /// `words` are what patterns of the lists may match; a wrapper has none, for its pattern would match anything.
    fn settle(&mut self, mut part: Part, blocked: Option<String>, words: Option<&[Word]>) {
        let find = |patterns: &[Pattern]| -> Option<String> {
            let matching = |pattern: &&Pattern| pattern.matches(words, &part.findings);
            patterns.iter().find(matching).map(ToString::to_string)
        };
        if blocked.is_none() {
            (part.verdict, part.matched) = match (find(&self.rules.allow), find(&self.rules.notify)) {
                (Some(pattern), _) => (Verdict::Allow, Some(pattern)),
                (None, Some(pattern)) => (Verdict::Notify, Some(pattern)),
                (None, None) => (Verdict::Review, None),
            };
        }
        part.blocked = blocked;
        self.parts.push(part);
    }
}

/// Why no list may let this run, whatever its words are.
fn blocked(simple: &Simple, inside: Option<&'static str>) -> Option<String> {
    match inside {
        Some(construct) => Some(format!("`{}` stands inside {construct}", visible(&simple.text))),
        None if !simple.words.is_empty() => None,
        None if !simple.assignments.is_empty() => Some("variables are set for what follows".to_owned()),
        None => Some("a redirection stands without a command".to_owned()),
    }
}
