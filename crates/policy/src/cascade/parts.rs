//! Splits a line into its parts and judges each on its own.

use std::sync::Arc;

use super::expand::Scope;
use super::pattern::MatchCandidate;
use super::{Pattern, Rules, Verdict, floor};
use crate::command::{
    self, Destination, Effect, Finding, Forced, Host, Judged, LineContext, Opened, variable_findings,
};
use crate::shell::{Compound, Node, Piece, Redirect, RedirectKind, Script, Simple, Word, visible};

/// One command of a line, or the control flow around others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Source text, with invisible characters escaped.
    pub text: String,
    /// Nesting depth.
    pub depth: usize,
    /// Effects of the part.
    pub findings: Vec<Finding>,
    /// Reason why no list may allow the part.
    pub blocked: Option<String>,
    /// The verdict on the part.
    pub verdict: Verdict,
    /// The pattern that matched.
    pub matched: Option<String>,
    /// Risk floor.
    pub floor: u8,
    /// Options inserted if a list allows the part.
    pub forced: Vec<Forced>,
    /// Files and directories that the part opens for their contents.
    pub opens: Vec<Opened>,
    /// Files and directories that the part makes or replaces.
    pub destinations: Vec<Destination>,
    /// Set if the part may make links or trees, with names that the line does not tell.
    pub makes_trees: bool,
    /// Hosts that the part contacts.
    pub hosts: Vec<Host>,
}

impl Part {
    /// Creates a finding about the machine rather than about a word of the line.
    pub(super) fn found(effect: Effect, reason: &str, floor: u8) -> Self {
        Self {
            text: visible(reason),
            depth: 0,
            findings: vec![Finding {
                effect,
                reason: reason.to_owned(),
            }],
            blocked: None,
            verdict: Verdict::Review,
            matched: None,
            floor,
            forced: Vec::new(),
            opens: Vec::new(),
            destinations: Vec::new(),
            makes_trees: false,
            hosts: Vec::new(),
        }
    }

    /// Returns the reasons for the verdict.
    pub fn reasons(&self) -> Vec<String> {
        let found = self.findings.iter().map(|finding| finding.reason.clone());
        let mut reasons: Vec<String> = self.blocked.iter().cloned().chain(found).collect();
        if let Some(pattern) = &self.matched {
            reasons.push(format!("`{}` matches `{pattern}`", self.text));
        } else if self.verdict == Verdict::Allow {
            reasons.push(format!("`{}` does nothing but change the directory", self.text));
        } else if reasons.is_empty() {
            reasons.push(format!("`{}` matches no pattern", self.text));
        }
        reasons
    }
}

/// Returns all parts of a line, in source order.
pub(super) fn parts(script: &Script, rules: &Rules) -> Vec<Part> {
    let around = LineContext {
        feeds: feeds(&script.nodes),
        directory: None,
        confinements: Arc::clone(&rules.confinements),
        sources_only: false,
    };
    let mut walk = Walk {
        rules,
        parts: Vec::new(),
        around,
        readings: MAX_READINGS,
    };
    let place = Enclosure::default();
    walk.nodes(&script.nodes, &place);
    for word in &script.here {
        walk.word(word, &place);
    }
    walk.parts
}

/// Returns `true` if the output of one command becomes arguments of another.
fn feeds(nodes: &[Node]) -> bool {
    let feeding = |word: &Word| word.text.contains("xargs") || word.pieces.iter().any(is_commands);
    nodes.iter().any(|node| match node {
        Node::Simple(simple) => match simple.words.first().map(|word| word.text.as_str()) {
            // These print or compare their arguments. Only `test` opens files by such names, and it reveals
            // no contents.
            Some("echo" | "printf" | "[" | "test") => within(&simple.words),
            _ => simple.words.iter().any(feeding),
        },
        Node::Pipe(nodes) => feeds(nodes),
        Node::Compound {
            kind: Compound::For,
            words,
            body,
            ..
        } => words.iter().any(feeding) || feeds(body),
        Node::Compound { words, body, .. } => within(words) || feeds(body),
    })
}

/// Returns `true` if a substitution in the words feeds arguments to a command.
fn within(words: &[Word]) -> bool {
    let pieces = words.iter().flat_map(|word| &word.pieces);
    pieces.into_iter().any(|piece| match piece {
        Piece::Commands(body) | Piece::Process { body, .. } => feeds(body),
        Piece::Literal(_) | Piece::Glob(_) | Piece::Home(_) | Piece::Variable(_) | Piece::Braces(_) => false,
    })
}

fn is_commands(piece: &Piece) -> bool {
    matches!(piece, Piece::Commands(_))
}

/// The surroundings of a command within the line.
#[derive(Debug, Clone, Default)]
struct Enclosure {
    /// Nesting depth.
    depth: usize,
    /// The enclosing construct, if no list may allow commands in it.
    inside: Option<&'static str>,
    /// Set inside control flow, where only the preset allows anything.
    flow: bool,
    /// Set if something is piped into the command.
    fed: bool,
    scope: Scope,
}

impl Enclosure {
    fn deeper(&self) -> Self {
        Self {
            depth: self.depth + 1,
            ..self.clone()
        }
    }
}

/// Most variants of all commands of a line together. Beyond it loop variables count as unknown.
const MAX_READINGS: usize = 100;

struct Walk<'a> {
    rules: &'a Rules,
    parts: Vec<Part>,
    around: LineContext,
    readings: usize,
}

/// Returns `true` for control flow without an effect of its own: it selects and repeats its parts, each of
/// which is judged on its own, in any order. Subshells, groups and functions could be added; a background job
/// outlives the line.
fn is_plain_flow(kind: Compound) -> bool {
    match kind {
        Compound::For | Compound::While | Compound::If | Compound::Case | Compound::Test => true,
        Compound::Subshell | Compound::Group | Compound::Background | Compound::Function => false,
    }
}

impl<'a> Walk<'a> {
    fn nodes(&mut self, nodes: &[Node], place: &Enclosure) {
        for node in nodes {
            match node {
                Node::Simple(simple) => self.simple(simple, place),
                Node::Pipe(parts) => self.pipe(parts, place),
                Node::Compound { .. } => self.compound(node, place),
            }
        }
    }

    fn pipe(&mut self, parts: &[Node], place: &Enclosure) {
        for (index, part) in parts.iter().enumerate() {
            let within = Enclosure {
                fed: place.fed || index > 0,
                ..place.clone()
            };
            let before = index.checked_sub(1).and_then(|before| parts.get(before));
            self.around.sources_only = match (before, part) {
                (Some(Node::Simple(before)), Node::Simple(simple)) => {
                    command::feeds_sources(before) && command::takes_zeros(simple)
                }
                _ => false,
            };
            self.nodes(std::slice::from_ref(part), &within);
            self.around.sources_only = false;
        }
    }

    fn compound(&mut self, node: &Node, place: &Enclosure) {
        let Node::Compound {
            kind,
            variable,
            words,
            body,
            redirects,
        } = node
        else {
            return;
        };
        let name = kind.name();
        let mut findings: Vec<Finding> = variable.iter().flat_map(|name| variable_findings(name)).collect();
        let mut opens = Vec::new();
        for redirect in redirects {
            let (found, opened) = command::redirect_findings(redirect, &self.around);
            findings.extend(found);
            opens.extend(opened);
        }
        let flow = is_plain_flow(*kind) && place.inside.is_none();
        let mut part = self.part(name.to_owned(), place.depth, findings);
        part.opens = opens;
        let blocked = (!flow).then(|| format!("{name} is not matched by lists"));
        self.settle(part, blocked, &MatchCandidate::default());
        let mut within = place.deeper();
        within.flow = true;
        if !flow {
            within.inside = Some(name);
        }
        for word in words
            .iter()
            .chain(redirects.iter().map(|redirect| &redirect.target))
        {
            self.word(word, &within);
        }
        if let Some(variable) = variable {
            within.scope = place.scope.with(variable, words, body);
        }
        self.nodes(body, &within);
    }

    fn simple(&mut self, simple: &Simple, place: &Enclosure) {
        if let Some(directory) = self.changes_directory(simple, place) {
            let mut part = self.part(visible(&simple.text), place.depth, Vec::new());
            // Commands that run there are judged on their own; without any list nothing runs unasked.
            if !self.rules.allow.is_empty() || !self.rules.notify.is_empty() {
                part.verdict = Verdict::Allow;
            }
            self.parts.push(part);
            self.around.directory = Some(directory);
            return;
        }
        let judged = self.judge(simple, place);
        let mut findings = judged.findings;
        let own = findings.len();
        let mut opens = judged.opens;
        for redirect in &simple.redirects {
            let (found, opened) = command::redirect_findings(redirect, &self.around);
            findings.extend(found);
            opens.extend(opened);
        }
        let mut blocked = blocked(simple, place.inside);
        if judged.assigns {
            blocked.get_or_insert("variables are set for it".to_owned());
        }
        if findings.len() > own {
            blocked.get_or_insert("its redirections do more than read".to_owned());
        }
        let fed = place.fed
            || simple
                .redirects
                .iter()
                .any(|redirect| matches!(redirect.kind, RedirectKind::Read | RedirectKind::Text));
        let words = match judged.wraps {
            true => command::unwrapped(&simple.words),
            false => Some(simple.words.as_slice()),
        };
        let candidate = MatchCandidate {
            words: words.filter(|_| !place.flow && !self.is_far()),
            fed,
            moved: self.around.directory.is_some(),
        };
        let mut part = self.part(visible(&simple.text), place.depth, findings);
        (part.forced, part.opens, part.hosts) = (judged.forced, opens, judged.hosts);
        (part.destinations, part.makes_trees) = (judged.destinations, judged.makes_trees);
        self.settle(part, blocked, &candidate);
        let assigned = simple.assignments.iter().map(|assignment| &assignment.value);
        let targets = simple
            .redirects
            .iter()
            .map(|redirect: &Redirect| &redirect.target);
        let within = place.deeper();
        for word in simple.words.iter().chain(assigned).chain(targets) {
            self.word(word, &within);
        }
    }

    /// Accepts `cd` once per line, outside control flow, so that a command runs in one of at most two
    /// directories.
    fn changes_directory(&self, simple: &Simple, place: &Enclosure) -> Option<String> {
        let first = place.depth == 0 && self.around.directory.is_none();
        command::directory(simple).filter(|_| first)
    }

    /// Judges a command in all its variants.
    fn judge(&mut self, simple: &Simple, place: &Enclosure) -> Judged {
        let variants = place.scope.variants(&simple.words);
        let variants = match self.readings.checked_sub(variants.len()) {
            Some(left) => {
                self.readings = left;
                variants
            }
            None => vec![simple.words.clone()],
        };
        let mut variants = variants.into_iter();
        let reading = |words: Vec<Word>| {
            let simple = Simple {
                words,
                ..simple.clone()
            };
            command::simple_findings(&simple, &self.around)
        };
        let mut judged = reading(variants.next().unwrap_or_default());
        for words in variants {
            let other = reading(words);
            judged.wraps |= other.wraps;
            judged.forced.extend(other.forced);
            judged.opens.extend(other.opens);
            judged.destinations.extend(other.destinations);
            judged.makes_trees |= other.makes_trees;
            judged.hosts.extend(other.hosts);
            for finding in other.findings {
                if !judged.findings.contains(&finding) {
                    judged.findings.push(finding);
                }
            }
        }
        judged
    }

    /// Judges the commands inside a word as parts of their own.
    fn word(&mut self, word: &Word, place: &Enclosure) {
        for piece in &word.pieces {
            match piece {
                Piece::Commands(body) | Piece::Process { output: false, body } => self.nodes(body, place),
                Piece::Process { output: true, body } => {
                    let inside = Some("a command that is written to");
                    self.nodes(
                        body,
                        &Enclosure {
                            inside,
                            ..place.clone()
                        },
                    );
                }
                Piece::Literal(_)
                | Piece::Glob(_)
                | Piece::Home(_)
                | Piece::Variable(_)
                | Piece::Braces(_) => {}
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
            forced: Vec::new(),
            opens: Vec::new(),
            destinations: Vec::new(),
            makes_trees: false,
            hosts: Vec::new(),
        }
    }

    /// Returns `true` if the line has changed to a directory that need not lie below its start.
    fn is_far(&self) -> bool {
        let directory = self.around.directory.as_deref();
        directory.is_some_and(|directory| directory.starts_with(['/', '~']))
    }

    fn settle(&mut self, mut part: Part, blocked: Option<String>, candidate: &MatchCandidate<'_>) {
        let find = |patterns: &'a [Pattern]| -> Option<&'a Pattern> {
            patterns
                .iter()
                .find(|pattern| pattern.matches(candidate, &part.findings))
        };
        if blocked.is_none() {
            let (verdict, pattern) = match (find(&self.rules.allow), find(&self.rules.notify)) {
                (Some(pattern), _) => (Verdict::Allow, Some(pattern)),
                (None, Some(pattern)) => (Verdict::Notify, Some(pattern)),
                (None, None) => (Verdict::Review, None),
            };
            part.verdict = verdict;
            part.matched = pattern.map(ToString::to_string);
            // A pattern that spells out the whole command means exactly that command.
            if pattern.is_some_and(Pattern::is_exact) {
                part.forced.clear();
            }
        }
        part.blocked = blocked;
        self.parts.push(part);
    }
}

/// Returns the reason for which no list may allow this command, with any arguments.
fn blocked(simple: &Simple, inside: Option<&'static str>) -> Option<String> {
    match inside {
        Some(construct) => Some(format!("`{}` stands inside {construct}", visible(&simple.text))),
        None if !simple.words.is_empty() => None,
        None if !simple.assignments.is_empty() => Some("variables are set for what follows".to_owned()),
        None => Some("a redirection stands without a command".to_owned()),
    }
}
