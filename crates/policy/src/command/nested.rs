//! Commands inside words, scripts and redirections.

use std::sync::Arc;

use super::confine::{Confinement, Forced};
use super::effect::{Effect, Finding, Found};
use super::fetch::Host;
use super::secrets::{self, Opened};
use super::{judge, place, special::INPUT};
use crate::shell::{Assignment, Node, Piece, Redirect, RedirectKind, Simple, Word};

/// The judgement on a simple command.
pub(crate) struct Judged {
    /// Effects, without redirections and without the commands in its words.
    pub(crate) findings: Vec<Finding>,
    /// Set if it runs another command, so that a pattern with its name would match anything.
    pub(crate) wraps: bool,
    /// Set if it sets variables that could change its effect.
    pub(crate) assigns: bool,
    /// Options to insert if it is allowed.
    pub(crate) forced: Vec<Forced>,
    /// Files and directories opened for their contents.
    pub(crate) opens: Vec<Opened>,
    /// Hosts contacted.
    pub(crate) hosts: Vec<Host>,
}

/// The context of a command within the line.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineContext {
    /// Set if printed names become arguments.
    pub(crate) feeds: bool,
    /// Directory in which the command may run instead of the line's start.
    pub(crate) directory: Option<String>,
    /// This machine's confining options for programs with several implementations.
    pub(crate) confinements: Arc<[Confinement]>,
    /// Set if only names of source files are fed to the command.
    pub(crate) sources_only: bool,
}

impl LineContext {
    fn found(&self) -> Found {
        Found {
            feeds: self.feeds,
            directory: self.directory.clone(),
            sources_only: self.sources_only,
            confinements: Arc::clone(&self.confinements),
            ..Found::default()
        }
    }
}

/// Judges a simple command.
pub(crate) fn simple_findings(simple: &Simple, around: &LineContext) -> Judged {
    let mut found = around.found();
    assignments(simple, &mut found);
    let assigns = !found.findings.is_empty();
    judge(&unquoted(&simple.words), &mut found);
    Judged {
        findings: found.findings,
        wraps: found.wraps,
        assigns,
        forced: found.forced,
        opens: found.opens,
        hosts: found.hosts,
    }
}

/// Returns the words with the text that the program will see, where known: `'--x'` is `--x`.
fn unquoted(words: &[Word]) -> Vec<Word> {
    let mut words = words.to_vec();
    for word in &mut words {
        if let Some(text) = word.shape().filter(|_| word.text != INPUT) {
            word.text = text;
        }
    }
    words
}

/// Returns the effects of setting a variable in the shell, beyond storing a value.
pub(crate) fn variable_findings(name: &str) -> Vec<Finding> {
    let mut found = Found::default();
    if !is_own(name) {
        variable(name, &mut found);
    }
    found.findings
}

/// Returns `true` if the variable is the line's own: neither the shell nor a program reads it.
///
/// Variables that bash reads are in capitals, except these two. Programs also read settings from lower-case
/// names.
pub(super) fn is_own(name: &str) -> bool {
    let small = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_';
    let settings = ["proxy", "npm_", "histchars", "auto_resume"];
    let letter = name.len() == 1 && name != "_";
    letter
        || name.starts_with(|sign: char| sign.is_ascii_lowercase())
            && name.len() <= 20
            && name.chars().all(small)
            && !settings.iter().any(|setting| name.contains(setting))
}

/// Returns the effects of a redirection, and the files it opens.
pub(crate) fn redirect_findings(redirect: &Redirect, around: &LineContext) -> (Vec<Finding>, Vec<Opened>) {
    let mut found = around.found();
    redirection(redirect, &mut found);
    (found.findings, found.opens)
}

/// Judges the commands of a script that another command runs.
pub(super) fn nodes(nodes: &[Node], found: &mut Found) {
    for node in nodes {
        match node {
            Node::Simple(simple) if found.directory.is_none() && place::directory(simple).is_some() => {
                found.directory = place::directory(simple);
            }
            Node::Simple(simple) => {
                assignments(simple, found);
                super::inner(&unquoted(&simple.words), found);
                simple.words.iter().for_each(|word| substitutions(word, found));
                simple
                    .redirects
                    .iter()
                    .for_each(|redirect| redirection(redirect, found));
            }
            Node::Pipe(parts) => nodes_of(parts, found),
            Node::Compound {
                kind,
                words,
                body,
                redirects,
                ..
            } => {
                found.add(
                    Effect::Shell,
                    format!("{} is not judged as harmless", kind.name()),
                );
                words.iter().for_each(|word| substitutions(word, found));
                redirects.iter().for_each(|redirect| redirection(redirect, found));
                nodes_of(body, found);
            }
        }
    }
}

fn nodes_of(parts: &[Node], found: &mut Found) {
    nodes(parts, found);
}

fn substitutions(word: &Word, found: &mut Found) {
    for piece in &word.pieces {
        match piece {
            Piece::Commands(body) | Piece::Process { body, .. } => nodes(body, found),
            Piece::Literal(_) | Piece::Glob(_) | Piece::Home(_) | Piece::Variable(_) | Piece::Braces(_) => {}
        }
    }
}

/// Variables that can make programs run code.
const CODE: &[&str] = &[
    "LD_*",
    "DYLD_*",
    "PATH",
    "CDPATH",
    "BASH_ENV",
    "ENV",
    "BASHOPTS",
    "SHELLOPTS",
    "PS*",
    "PROMPT_COMMAND",
    "IFS",
    "GIT_*",
    "SSH_*",
    "*PAGER",
    "*EDITOR",
    "VISUAL",
    "BROWSER",
    "LESS*",
    "MAN*",
    "PYTHON*",
    "NODE_*",
    "NPM_*",
    "npm_*",
    "PERL*",
    "RUBY*",
    "GEM_*",
    "JAVA_*",
    "*OPTS",
    "*OPTIONS",
    "*_COMMAND",
    "*FLAGS",
    "CC",
    "CXX",
    "RUSTC*",
    "CARGO_*",
    "KUBECONFIG",
    "DOCKER_*",
    "AWS_*",
    "RIPGREP_CONFIG_PATH",
    "FZF_*",
    "SHELL",
    "HOME",
    "XDG_*",
    "GCONV_PATH",
    "LOCPATH",
    "TAR_*",
];

/// Variables that affect only verbosity and language, or that no program reads.
const HARMLESS: &[&str] = &[
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_NUMERIC",
    "LC_TIME",
    "LC_MESSAGES",
    "LANG",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "TERM",
    "COLUMNS",
    "LINES",
    "CI",
    "DEBUG",
    "VERBOSE",
    "LOG_LEVEL",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "CARGO_TERM_COLOR",
    "NODE_ENV",
    "NEXT_TELEMETRY_DISABLED",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PIP_DISABLE_PIP_VERSION_CHECK",
    "RAILS_ENV",
    "RACK_ENV",
    "APP_ENV",
    "DEBIAN_FRONTEND",
    "HOMEBREW_NO_AUTO_UPDATE",
    "GIT_TERMINAL_PROMPT",
    "GIT_OPTIONAL_LOCKS",
    "FOO",
    "BAR",
    "BAZ",
];

/// Variables that name a pager: `cat` is none.
const PAGERS: &[&str] = &[
    "PAGER",
    "GIT_PAGER",
    "MANPAGER",
    "GH_PAGER",
    "AWS_PAGER",
    "SYSTEMD_PAGER",
    "DELTA_PAGER",
    "BAT_PAGER",
];

/// Returns `true` if the variable with this value does not change a command's effect.
pub(super) fn is_harmless(name: &str, value: &str) -> bool {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "_.,:=+-@".contains(sign);
    let zone = |sign: char| sign.is_ascii_alphanumeric() || "_+-/".contains(sign);
    let short = value.len() < 40;
    short && HARMLESS.contains(&name) && value.chars().all(plain)
        || PAGERS.contains(&name) && matches!(value, "cat" | "")
        || short && name == "TZ" && value.chars().all(zone) && !value.starts_with('/')
}

fn assignments(simple: &Simple, found: &mut Found) {
    for Assignment { name, value } in &simple.assignments {
        let literal = value.literal();
        let plain = literal.as_ref().is_some_and(|value| value.len() < 40);
        match simple.words.is_empty() {
            false if literal.is_some_and(|value| is_harmless(name, &value)) => {}
            // Affects how one line is split, and nothing after it.
            false if plain && name == "IFS" && simple.words[0].text == "read" => {}
            _ => variable(name, found),
        }
        substitutions(value, found);
    }
}

/// Adds the finding for a variable set for a command.
pub(super) fn variable(name: &str, found: &mut Found) {
    let code = CODE.iter().any(|pattern| super::within_word(pattern, name));
    match code {
        true => found.add(
            Effect::Code,
            format!("the variable {name} can make programs run others"),
        ),
        false => found.add(
            Effect::Shell,
            format!("the variable {name} changes what commands do"),
        ),
    }
}

fn redirection(redirect: &Redirect, found: &mut Found) {
    substitutions(&redirect.target, found);
    let target = redirect.target.literal();
    let text = &redirect.target.text;
    match redirect.kind {
        RedirectKind::Write if target.as_deref() == Some("/dev/null") => {}
        RedirectKind::Write if target.as_deref().is_some_and(is_network) => {
            found.add(Effect::Network, format!("`{text}` opens a connection"));
        }
        RedirectKind::Write if target.as_deref().is_some_and(is_device) => {
            found.add(
                Effect::Ruin,
                format!("the redirection writes to the device {text}"),
            );
        }
        RedirectKind::Write => found.add(Effect::Write, format!("the redirection writes to {text}")),
        RedirectKind::Read => match redirect.target.shape() {
            Some(name) if is_network(&name) => {
                found.add(Effect::Network, format!("`{text}` opens a connection"));
            }
            Some(_) => secrets::check(
                std::slice::from_ref(&redirect.target),
                &[0],
                "the redirection",
                found,
            ),
            None => found.add(
                Effect::Unknown,
                format!("the redirection reads {text}, which is not known beforehand"),
            ),
        },
        RedirectKind::Duplicate => {
            let number = |text: &str| text.parse::<u32>().ok();
            let standard = |number: Option<u32>| number.is_none_or(|number| number <= 2);
            let known = target.as_deref() == Some("-") || standard(target.as_deref().and_then(number));
            if !known || !standard(redirect.descriptor) {
                found.add(
                    Effect::Unknown,
                    "a descriptor is copied of which it is not known what it is",
                );
            }
        }
        RedirectKind::Text => {}
    }
}

fn is_network(name: &str) -> bool {
    name.starts_with("/dev/tcp/") || name.starts_with("/dev/udp/")
}

fn is_device(name: &str) -> bool {
    let device = name.strip_prefix("/dev/");
    device
        .is_some_and(|name| !matches!(name, "stdout" | "stderr" | "tty" | "full") && !name.starts_with("fd/"))
}
