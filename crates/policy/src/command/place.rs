//! Working directories of commands, and commands that print file names.

use super::{secrets, table};
use crate::shell::{Node, Piece, Simple, Word};

/// Returns the target of a `cd`, if its files may be read like any others.
///
/// Bash only changes the directory: the target is literal, and the scrubbed environment has neither `CDPATH`
/// nor a custom `cd`. Relative names after it are judged with the directory prepended.
pub(crate) fn directory(simple: &Simple) -> Option<String> {
    let [program, target] = simple.words.as_slice() else {
        return None;
    };
    let text = |piece: &Piece| matches!(piece, Piece::Literal(_) | Piece::Home(_));
    let plain =
        simple.assignments.is_empty() && simple.redirects.is_empty() && target.pieces.iter().all(text);
    let text = target.shape().filter(|_| plain && program.text == "cd")?;
    // A blank in it would split `$PWD`.
    let odd = |sign: char| sign.is_whitespace() || "*?[\\".contains(sign);
    let leaves = text.split('/').any(|part| part == "..") || text.starts_with('-') || text.contains(odd);
    (!leaves && !secrets::is_broad(target) && !secrets::names_secret(&text, false)).then_some(text)
}

/// Programs that pass on some of the lines they read.
const FILTERS: &[&str] = &[
    "grep", "egrep", "fgrep", "sort", "uniq", "head", "tail", "cut", "tr", "sed", "awk", "tac", "rev",
];

/// Options and subcommands that make programs print file names rather than contents.
const LISTS: &[(&str, &[&str])] = &[
    ("git", &["ls-files", "--name-only", "rev-parse", "merge-base"]),
    ("grep", &["-l", "-rl", "-lr", "-rln", "--files-with-matches"]),
    ("rg", &["-l", "--files", "--files-with-matches"]),
    ("command", &["-v"]),
    ("date", &[]),
    ("pgrep", &[]),
    ("pidof", &[]),
];

/// Returns `true` if the commands print only numbers or hashes, which cannot become options.
pub(crate) fn prints_ids(nodes: &[Node]) -> bool {
    let [Node::Simple(simple)] = nodes else {
        return false;
    };
    let words: Option<Vec<String>> = simple.words.iter().map(Word::literal).collect();
    let words = words.unwrap_or_default();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let plain = |word: &&str| !word.starts_with('-');
    match words.as_slice() {
        ["pgrep" | "pidof" | "seq", rest @ ..] => rest
            .iter()
            .all(|word| plain(word) || matches!(*word, "-f" | "-x" | "-o")),
        ["docker" | "podman", "ps", rest @ ..] => {
            let quiet = rest
                .iter()
                .any(|word| matches!(*word, "-q" | "-aq" | "-qa" | "--quiet"));
            quiet && !rest.iter().any(|word| word.starts_with("--format"))
        }
        ["git", "merge-base", rest @ ..] => rest.iter().all(plain),
        ["git", "rev-parse", rest @ ..] => rest
            .iter()
            .all(|word| plain(word) || matches!(*word, "--short" | "--verify")),
        ["git", "rev-list", rest @ ..] => rest.iter().all(|word| {
            let number = word.trim_start_matches("--max-count=").trim_start_matches('-');
            plain(word)
                || number.parse::<u32>().is_ok()
                || matches!(
                    *word,
                    "-n" | "--all" | "--no-merges" | "--first-parent" | "--reverse"
                )
        }),
        _ => false,
    }
}

/// Returns `true` if the commands print names, but no contents by which a file's author could choose names.
pub(crate) fn prints_names(nodes: &[Node]) -> bool {
    let first = |words: &[Word]| {
        let program = words.first().and_then(Word::literal);
        let Some(program) = program.as_deref() else {
            return false;
        };
        let listed = LISTS.iter().find(|(name, _)| *name == program);
        match listed {
            Some((_, [])) => true,
            Some((_, options)) => words.iter().any(|word| options.contains(&word.text.as_str())),
            // The line itself contains their output.
            None if ["echo", "printf", "test", "["].contains(&program) => false,
            None => table::root(program).is_some_and(|entry| entry.names),
        }
    };
    let filters = |node: &Node| matches!(node, Node::Simple(simple) if simple.words.first().is_some_and(|word| FILTERS.contains(&word.text.as_str())));
    nodes.iter().all(|node| match node {
        Node::Simple(simple) => first(&simple.words),
        Node::Pipe(nodes) => match nodes.split_first() {
            Some((Node::Simple(simple), rest)) => first(&simple.words) && rest.iter().all(filters),
            _ => false,
        },
        Node::Compound { .. } => false,
    })
}
