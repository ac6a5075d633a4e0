//! Commands inside words, scripts and redirections.

use super::analysis::{Analysis, INPUT};
use super::effect::Effect;
use super::table::within_word;
use super::{place, secrets};
use crate::shell::{Assignment, Node, Piece, Redirect, RedirectKind, Simple, Word};

/// Returns the words with the text that the program will see, where known: `'--x'` is `--x`.
pub(super) fn unquoted(words: &[Word]) -> Vec<Word> {
    let mut words = words.to_vec();
    for word in &mut words {
        if let Some(text) = word.shape().filter(|_| word.text != INPUT) {
            word.text = text;
        }
    }
    words
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

/// Judges the commands of a script that another command runs.
pub(super) fn nodes(nodes: &[Node], analysis: &mut Analysis) {
    for node in nodes {
        match node {
            Node::Simple(simple) if analysis.directory.is_none() && place::directory(simple).is_some() => {
                analysis.directory = place::directory(simple);
            }
            Node::Simple(simple) => {
                assignments(simple, analysis);
                analysis.inner(&unquoted(&simple.words));
                simple.words.iter().for_each(|word| substitutions(word, analysis));
                simple
                    .redirects
                    .iter()
                    .for_each(|redirect| redirection(redirect, analysis));
            }
            Node::Pipe(parts) => nodes_of(parts, analysis),
            Node::Compound {
                kind,
                words,
                body,
                redirects,
                ..
            } => {
                analysis.add(
                    Effect::Shell,
                    format!("{} is not judged as harmless", kind.name()),
                );
                words.iter().for_each(|word| substitutions(word, analysis));
                redirects
                    .iter()
                    .for_each(|redirect| redirection(redirect, analysis));
                nodes_of(body, analysis);
            }
        }
    }
}

fn nodes_of(parts: &[Node], analysis: &mut Analysis) {
    nodes(parts, analysis);
}

fn substitutions(word: &Word, analysis: &mut Analysis) {
    for piece in &word.pieces {
        match piece {
            Piece::Commands(body) | Piece::Process { body, .. } => nodes(body, analysis),
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

pub(super) fn assignments(simple: &Simple, analysis: &mut Analysis) {
    for Assignment { name, value } in &simple.assignments {
        let literal = value.literal();
        let plain = literal.as_ref().is_some_and(|value| value.len() < 40);
        match simple.words.is_empty() {
            false if literal.is_some_and(|value| is_harmless(name, &value)) => {}
            // Affects how one line is split, and nothing after it.
            false if plain && name == "IFS" && simple.words[0].text == "read" => {}
            _ => variable(name, analysis),
        }
        substitutions(value, analysis);
    }
}

/// Adds the finding for a variable set for a command.
pub(super) fn variable(name: &str, analysis: &mut Analysis) {
    let code = CODE.iter().any(|pattern| within_word(pattern, name));
    match code {
        true => analysis.add(
            Effect::Code,
            format!("the variable {name} can make programs run others"),
        ),
        false => analysis.add(
            Effect::Shell,
            format!("the variable {name} changes what commands do"),
        ),
    }
}

pub(super) fn redirection(redirect: &Redirect, analysis: &mut Analysis) {
    substitutions(&redirect.target, analysis);
    let target = redirect.target.literal();
    let text = &redirect.target.text;
    match redirect.kind {
        RedirectKind::Write if target.as_deref() == Some("/dev/null") => {}
        RedirectKind::Write if target.as_deref().is_some_and(is_network) => {
            analysis.add(Effect::Network, format!("`{text}` opens a connection"));
        }
        RedirectKind::Write if target.as_deref().is_some_and(is_device) => {
            analysis.add(
                Effect::Ruin,
                format!("the redirection writes to the device {text}"),
            );
        }
        RedirectKind::Write => analysis.add(Effect::Write, format!("the redirection writes to {text}")),
        RedirectKind::Read => match redirect.target.shape() {
            Some(name) if is_network(&name) => {
                analysis.add(Effect::Network, format!("`{text}` opens a connection"));
            }
            Some(_) => secrets::check(
                std::slice::from_ref(&redirect.target),
                &[0],
                "the redirection",
                analysis,
            ),
            None => analysis.add(
                Effect::Unknown,
                format!("the redirection reads {text}, which is not known beforehand"),
            ),
        },
        RedirectKind::Duplicate => {
            let number = |text: &str| text.parse::<u32>().ok();
            let standard = |number: Option<u32>| number.is_none_or(|number| number <= 2);
            let known = target.as_deref() == Some("-") || standard(target.as_deref().and_then(number));
            if !known || !standard(redirect.descriptor) {
                analysis.add(
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
