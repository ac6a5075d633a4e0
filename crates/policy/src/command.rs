//! What one command does, judged by its words.

mod awk;
mod cloud;
mod confine;
mod effect;
mod fetch;
mod find;
mod jq;
mod modes;
mod nested;
mod operands;
mod options;
mod place;
mod secrets;
mod sed;
mod special;
mod sql;
mod table;
mod test;

pub(crate) use confine::with as with_forced;
pub use confine::{Confinement, Forced};
pub use effect::{Effect, Finding};
pub(crate) use nested::{Around, Judged, redirect_findings, simple_findings, variable_findings};
pub(crate) use place::{directory, prints_ids, prints_names};
pub(crate) use special::INPUT;
pub(crate) use table::within_word;

use effect::Found;
use options::Scanned;
use table::Entry;

use crate::shell::Word;

/// How many wrappers may stand around a command: `env nice timeout 5 …`.
const MAX_WRAPPERS: usize = 8;

/// Directories whose programs are the ones that the table means.
const SYSTEM: &[&str] = &[
    "/bin",
    "/usr/bin",
    "/sbin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
];

/// Judges a command with its arguments.
fn judge(words: &[Word], found: &mut Found) {
    let Some((first, args)) = words.split_first() else {
        return;
    };
    if found.depth > MAX_WRAPPERS {
        return found.add(Effect::Unknown, "more wrappers than anybody needs");
    }
    let Some(written) = first.literal() else {
        let reason = format!("`{}` decides only at run time what runs", first.text);
        return found.add(Effect::Code, reason);
    };
    let Some(program) = program(&written, found) else {
        return;
    };
    let Some(root) = table::root(program).or_else(|| table::root(unversioned(program))) else {
        return found.add(
            Effect::Unknown,
            format!("`{program}` is not in the table of commands"),
        );
    };
    if root.settings && found.directory.is_some() {
        found.add(
            Effect::Unknown,
            format!("{program}: takes settings, which can run programs, from the directory it runs in"),
        );
    }
    let version = root.version && matches!(args, [only] if only.text == "-v");
    if (version || asks_for_help(args, root.helps)) && root.wraps.is_none() && !root.local {
        return;
    }
    match root.sub {
        true => subcommand(root, first, args, found),
        false => apply(root, first, args, root.path[0], found),
    }
}

/// The name under which the table has the program.
fn program<'a>(written: &'a str, found: &mut Found) -> Option<&'a str> {
    if !written.is_ascii() {
        found.add(
            Effect::Unknown,
            format!("`{written}` has letters that look like others"),
        );
        return None;
    }
    let Some((directory, name)) = written.rsplit_once('/') else {
        return Some(written);
    };
    if SYSTEM.contains(&directory) {
        return Some(name);
    }
    found.add(
        Effect::Unknown,
        format!("`{written}` is no program of the system"),
    );
    None
}

/// `python3.12` is `python`.
fn unversioned(program: &str) -> &str {
    program.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '.')
}

/// A program that is asked nothing but who it is.
fn asks_for_help(args: &[Word], short: bool) -> bool {
    let [only] = args else { return false };
    only.literal().is_some_and(|text| match text.as_str() {
        "--help" | "--version" => true,
        "-h" | "-help" | "-V" | "-version" | "--help-long" => short,
        _ => false,
    })
}

/// Finds the entry of the subcommand, behind options and behind other subcommands.
fn subcommand(root: &'static Entry, first: &Word, args: &[Word], found: &mut Found) {
    let program = root.path[0];
    let mut path: Vec<String> = Vec::new();
    let (mut entry, mut rest, mut name) = (root, args, first);
    loop {
        let title = title(program, &path);
        let front = Entry {
            ordered: true,
            ..entry.clone()
        };
        let scanned = options::scan(&front, rest, &title, found);
        let Some(first) = scanned.operands.first() else {
            if rest.is_empty() && !entry.bare && entry.effect.is_read_only() {
                found.add(Effect::Unknown, format!("{title}: without a subcommand"));
            }
            confine::confine(entry, &title, name, found);
            return conclude(entry, rest, &title, &scanned, found);
        };
        rest = &rest[*first..];
        let plain: Vec<String> = rest.iter().map_while(plain_word).take(8).collect();
        let known = path.len();
        path.extend(plain);
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let Some((next, count)) = table::lookup(program, &words).filter(|(_, count)| *count > known) else {
            if root.helps && help_behind(&path, rest, program) {
                return;
            }
            path.truncate(known + 1);
            let what = match path.len() > known {
                true => self::title(program, &path),
                false => format!("{title}: `{}`", rest[0].text),
            };
            return found.add(
                entry.other.max(entry.effect),
                format!("{what} is not in the table of commands"),
            );
        };
        name = &rest[count - known - 1];
        rest = &rest[count - known..];
        path.truncate(count);
        if !next.sub {
            let title = self::title(program, &path);
            if root.helps && next.effect != Effect::Code && asks_for_help(rest, false) {
                return;
            }
            return apply(next, name, rest, &title, found);
        }
        entry = next;
    }
}

/// `gh issue --help`: a subcommand that is known, and nothing but the question behind it.
fn help_behind(path: &[String], rest: &[Word], program: &str) -> bool {
    let known = path
        .first()
        .is_some_and(|word| table::has_subcommand(program, word));
    known && path.len() <= 2 && rest.len() == path.len() + 1 && asks_for_help(&rest[path.len()..], false)
}

fn title(program: &str, path: &[String]) -> String {
    let mut title = program.to_owned();
    for word in path {
        title.push(' ');
        title.push_str(word);
    }
    title
}

fn plain_word(word: &Word) -> Option<String> {
    word.literal()
        .filter(|text| !text.starts_with('-') && !text.is_empty())
}

/// Judges a command that is known. `name` is the last word that names it.
fn apply(entry: &'static Entry, name: &Word, args: &[Word], title: &str, found: &mut Found) {
    confine::confine(entry, title, name, found);
    if entry.handler == Some("find") {
        return find::judge(entry, args, found);
    }
    let scanned = options::scan(entry, args, title, found);
    conclude(entry, args, title, &scanned, found);
}

/// What the entry, the operands and the code for the command say.
fn conclude(entry: &Entry, args: &[Word], title: &str, scanned: &Scanned, found: &mut Found) {
    if entry.effect > Effect::Read {
        let what = entry.reason.unwrap_or_else(|| entry.effect.describe());
        found.add(entry.effect, format!("{title}: {what}"));
    }
    if scanned.operands.len() > entry.operands || may_be_more(entry, args, scanned) {
        found.add(
            Effect::Write,
            format!("{title}: with these operands it changes something"),
        );
    }
    // What a wrapper runs is looked at for itself.
    let own = match (entry.ordered, scanned.operands.first()) {
        (true, Some(first)) if is_wrapper(entry) => &args[..*first],
        _ => args,
    };
    match entry.names && !found.feeds {
        true => secrets::check_names(own, title, found),
        false => secrets::check(own, title, found),
    }
    if let Some(handler) = entry.handler {
        special::handle(handler, args, title, scanned, found);
    }
    if let Some(skip) = entry.wraps {
        found.wraps = true;
        if let Some(first) = scanned.operands.get(skip) {
            inner(&args[*first..], found);
        }
    }
}

/// Whether what looks like one operand may become several: `uniq a*` overwrites the second file.
fn may_be_more(entry: &Entry, args: &[Word], scanned: &Scanned) -> bool {
    let one = |word: &Word| word.literal().is_some_and(|text| !text.contains("{}"));
    entry.operands != usize::MAX && scanned.operands.iter().any(|index| !one(&args[*index]))
}

fn is_wrapper(entry: &Entry) -> bool {
    entry.wraps.is_some() || matches!(entry.handler, Some("env" | "xargs" | "command"))
}

/// The command inside another one.
fn inner(words: &[Word], found: &mut Found) {
    found.depth += 1;
    judge(words, found);
    found.depth -= 1;
}

#[cfg(test)]
mod tests;
