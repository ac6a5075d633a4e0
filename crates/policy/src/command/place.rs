//! Where commands run, and which of them print names of files.

use super::{secrets, table};
use crate::shell::{Node, Simple, Word};

/// The directory to which `cd` goes, if it is one whose files may be read like any others.
///
/// Bash does nothing but change the directory: the target is text, `CDPATH` and a `cd` of somebody's own are not in the
/// scrubbed environment. What relative names mean afterwards is judged with the directory before them.
pub(crate) fn directory(simple: &Simple) -> Option<String> {
    let [program, target] = simple.words.as_slice() else {
        return None;
    };
    let plain = simple.assignments.is_empty() && simple.redirects.is_empty() && !target.is_glob();
    let text = target.shape().filter(|_| plain && program.text == "cd")?;
    // A blank in it would take `$PWD` apart.
    let odd = |sign: char| sign.is_whitespace() || "*?[\\".contains(sign);
    let leaves = text.split('/').any(|part| part == "..") || text.starts_with('-') || text.contains(odd);
    (!leaves && !secrets::is_broad(target) && !secrets::names_secret(&text, false)).then_some(text)
}

/// Programs that pass on some of the lines they read.
const FILTERS: &[&str] = &[
    "grep", "egrep", "fgrep", "sort", "uniq", "head", "tail", "cut", "tr", "sed", "awk", "tac", "rev",
];

/// Options and subcommands with which programs print names of files and not what is in them.
const LISTS: &[(&str, &[&str])] = &[
    ("git", &["ls-files", "--name-only", "rev-parse", "merge-base"]),
    ("grep", &["-l", "-rl", "-lr", "-rln", "--files-with-matches"]),
    ("rg", &["-l", "--files", "--files-with-matches"]),
    ("command", &["-v"]),
    ("date", &[]),
];

/// Whether the commands print names, and no contents from which anybody could choose names.
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
