//! Arguments of git that change a subcommand's effect.

use super::analysis::Analysis;
use super::analysis::Reach;
use super::effect::Effect;
use super::options::Scanned;
use super::secrets::{self, broad, broad_places};
use super::table::within_word;
use crate::shell::Word;

/// Judges `git push`: a plus forces, a colon deletes.
pub(super) fn push(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    helper(args, scanned, title, analysis);
    let forced = |word: &Word| word.text.starts_with(['+', ':']);
    if args.iter().any(forced) {
        analysis.add(
            Effect::Destroy,
            format!("{title}: overwrites or deletes what others have"),
        );
    }
}

/// Judges `git branch` and `git tag`: a name creates one, except in list mode.
pub(super) fn list(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    // Before git 2.19, `git branch -l` created a branch.
    let short = title != "git branch";
    let says = |option: &&str| *option == "--list" || short && *option == "-l";
    let lists = scanned.options.iter().any(says);
    if !lists && !scanned.operands.is_empty() {
        analysis.add(Effect::Write, format!("{title}: a name makes one"));
    }
}

/// Judges `git checkout`: with file names it discards changes.
pub(super) fn checkout(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let files = args
        .iter()
        .any(|word| matches!(word.text.as_str(), "--" | "." | "--pathspec-from-file"));
    if files || scanned.operands.len() > 1 {
        analysis.add(Effect::Destroy, format!("{title}: throws away changes of files"));
    }
}

/// Configuration sections without keys or URLs.
const PLAIN: &[&str] = &[
    "user",
    "author",
    "committer",
    "core",
    "init",
    "pull",
    "push",
    "fetch",
    "merge",
    "branch",
    "color",
    "diff",
    "log",
    "rebase",
    "rerere",
    "commit",
    "tag",
    "status",
    "advice",
    "format",
    "grep",
    "column",
    "gc",
    "pack",
    "index",
    "feature",
    "alias",
    "help",
    "i18n",
    "submodule",
    "stash",
    "blame",
    "apply",
    "interactive",
    "extensions",
    "safe",
    "worktree",
    "gpg",
    "checkout",
    "clone",
    "log",
    "pager",
    "lfs",
    "maintenance",
    "versionsort",
    "notes",
];

/// Patterns of configuration names whose values may be secret.
const TELLING: &[&str] = &[
    "*url*",
    "*pass*",
    "*token*",
    "*secret*",
    "*header*",
    "*key",
    "*credential*",
    "*proxy*",
    "*cookie*",
    "*auth*",
];

/// Judges `git config`: may read one name, whose value is not secret.
pub(super) fn config(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let asks = ["--get", "--get-all", "--get-color", "--get-colorbool"];
    let asks = title == "git config get" || scanned.has_any(&asks);
    let names: Vec<Option<String>> = scanned
        .operands
        .iter()
        .map(|index| args[*index].literal())
        .collect();
    match names.as_slice() {
        [name] if asks || name.as_deref().is_some_and(|name| name.contains('.')) => {
            if !name.as_deref().is_some_and(is_plain) {
                analysis.add(Effect::Secret, format!("{title}: the setting may hold a key"));
            }
        }
        // The second operand is a pattern for the value, or a default color.
        [name, _] if asks && name.as_deref().is_some_and(is_plain) => {}
        _ => analysis.add(Effect::Code, format!("{title}: settings of git can run programs")),
    }
}

fn is_plain(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let (section, key) = (
        lower.split('.').next(),
        lower.rsplit('.').next().unwrap_or_default(),
    );
    let telling = key != "signingkey" && TELLING.iter().any(|pattern| within_word(pattern, key));
    section.is_some_and(|section| PLAIN.contains(&section)) && !telling
}

/// Accepts a configured remote's name only: a URL could be a stranger's.
pub(super) fn remote_name(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "_-".contains(sign);
    let first = scanned.operands.first().and_then(|first| args[*first].literal());
    if first.is_some_and(|name: String| !name.chars().all(plain)) {
        analysis.add(
            Effect::Network,
            format!("{title}: talks to an address of the command"),
        );
    }
}

/// Judges the URL of a remote: `ext::program` names a program to run.
pub(super) fn helper(args: &[Word], scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    for index in &scanned.operands {
        if args[*index].shape().is_none_or(|text| text.contains("::")) {
            analysis.add(
                Effect::Code,
                format!("{title}: `{}` may name a program that is run", args[*index].text),
            );
        }
    }
}

/// Subcommands that write files of commits, links among them, to the work tree.
const TREE: &[&str] = &[
    "am",
    "apply",
    "bisect",
    "checkout",
    "cherry-pick",
    "clone",
    "merge",
    "pull",
    "read-tree",
    "rebase",
    "reset",
    "restore",
    "revert",
    "sparse-checkout",
    "stash",
    "submodule",
    "switch",
    "worktree",
];

/// Returns `true` for a subcommand that changes the work tree.
pub(super) fn changes_tree(title: &str) -> bool {
    title.split(' ').nth(1).is_some_and(|name| TREE.contains(&name))
}

/// Formats that show signatures have gpg check them, which writes its database and may ask key servers.
pub(super) fn formats(scanned: &Scanned, title: &str, analysis: &mut Analysis) {
    let checks = |text: &str| {
        let placeholders = text.split('%').skip(1);
        let mut names = placeholders.map(|rest| rest.trim_start_matches(['+', '-', ' ']));
        text.contains("signature") || names.any(|name| name.starts_with('G'))
    };
    for (name, value) in &scanned.values {
        let is_format = ["--format", "--pretty", "--sort"].contains(name);
        if is_format && value.as_deref().is_none_or(checks) {
            analysis.add(
                Effect::Code,
                format!("{title} {name}: has signatures checked by gpg"),
            );
        }
    }
}

/// Judges subcommands that can read whole trees outside the repository.
pub(super) fn tree(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    match title {
        "git grep" => grep(args, title, scanned, analysis),
        "git diff" => diff(args, title, scanned, analysis),
        _ => {}
    }
}

/// Judges `git grep`: `--no-index` searches any directory, and `--untracked` files that are not part of the
/// repository.
fn grep(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    let leaves = |option: &&str| matches!(*option, "--no-index" | "--untracked");
    if scanned.options.iter().any(leaves) {
        broad(args, title, scanned, analysis);
    }
}

/// Judges `git diff`: it compares any two directories, also without `--no-index` if one lies elsewhere.
fn diff(args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    if scanned.operands.is_empty() {
        return;
    }
    let paths = scanned.operands.iter().filter_map(|index| args[*index].shape());
    secrets::trees(paths.collect(), Reach::Tree, analysis);
    broad_places(args, title, scanned, analysis);
}
