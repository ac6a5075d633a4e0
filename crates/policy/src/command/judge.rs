//! Judges a command by its entry in the table.

use super::analysis::{Analysis, Forced, Reach};
use super::effect::Effect;
use super::options::Scanned;
use super::table::Entry;
use super::{confine, find, git, nested, options, secrets, special, table};
use crate::shell::Word;

/// Most wrappers around a command: `env nice timeout 5 …`.
const MAX_WRAPPERS: usize = 8;

/// Directories whose programs are the ones in the table.
const SYSTEM: &[&str] = &[
    "/bin",
    "/usr/bin",
    "/sbin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
];

/// Judges a command with its arguments.
pub(super) fn judge(words: &[Word], analysis: &mut Analysis) {
    let Some((first, args)) = words.split_first() else {
        return;
    };
    if analysis.depth > MAX_WRAPPERS {
        return analysis.add(Effect::Unknown, "more wrappers than anybody needs");
    }
    let Some(written) = first.literal() else {
        let reason = format!("`{}` decides only at run time what runs", first.text);
        return analysis.add(Effect::Code, reason);
    };
    analysis.at = first.end.filter(|_| !analysis.quoted);
    let Some(program) = program(&written, analysis) else {
        return;
    };
    let Some(root) = table::root(program).or_else(|| table::root(unversioned(program))) else {
        return analysis.add(
            Effect::Unknown,
            format!("`{program}` is not in the table of commands"),
        );
    };
    if root.settings && analysis.directory.is_some() {
        analysis.add(
            Effect::Unknown,
            format!("{program}: takes settings, which can run programs, from the directory it runs in"),
        );
    }
    let version = root.version && matches!(args, [only] if only.text == "-v");
    if (version || asks_for_help(args, root.helps)) && root.wraps.is_none() && !root.local {
        return;
    }
    match root.sub {
        true => subcommand(root, first, args, analysis),
        false => apply(root, first, args, root.path[0], analysis),
    }
}

/// Returns the name of the program's table entry.
fn program<'a>(written: &'a str, analysis: &mut Analysis) -> Option<&'a str> {
    if !written.is_ascii() {
        analysis.add(
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
    analysis.add(
        Effect::Unknown,
        format!("`{written}` is not a program of the system"),
    );
    None
}

/// Strips a version suffix: `python3.12` is `python`.
fn unversioned(program: &str) -> &str {
    program.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '.')
}

/// Matches a program asked only for help or its version.
fn asks_for_help(args: &[Word], short: bool) -> bool {
    let [only] = args else { return false };
    only.literal().is_some_and(|text| match text.as_str() {
        "--help" | "--version" => true,
        "-h" | "-help" | "-V" | "-version" | "--help-long" => short,
        _ => false,
    })
}

/// Finds the subcommand's entry, past options and outer subcommands.
fn subcommand(root: &'static Entry, first: &Word, args: &[Word], analysis: &mut Analysis) {
    let program = root.path[0];
    let mut path: Vec<String> = Vec::new();
    let (mut entry, mut rest, mut name) = (root, args, first);
    loop {
        let title = title(program, &path);
        let front = Entry {
            ordered: true,
            ..entry.clone()
        };
        let scanned = options::scan(&front, rest, &title, analysis);
        if let Some(first) = scanned.operands.first() {
            secrets::check(&rest[..*first], &[], &title, analysis);
        }
        if let Some(handler) = entry.handler.filter(|_| entry.sub) {
            let front = Scanned {
                operands: Vec::new(),
                ..scanned.clone()
            };
            special::handle(handler, &[], &title, &front, analysis);
        }
        let Some(first) = scanned.operands.first() else {
            if rest.is_empty() && !entry.bare && entry.effect.is_read_only() {
                analysis.add(Effect::Unknown, format!("{title}: without a subcommand"));
            }
            confine::confine(entry, &title, name, analysis);
            return conclude(entry, rest, &title, &scanned, analysis);
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
            secrets::check(rest, &[], &title, analysis);
            analysis.add(
                entry.other.max(entry.effect),
                format!("{what} is not in the table of commands"),
            );
            // However bad its group: no star covers a subcommand that is not in the table.
            return analysis.insist(Effect::Unknown, format!("{what}: nothing is known of it"));
        };
        name = &rest[count - known - 1];
        rest = &rest[count - known..];
        path.truncate(count);
        if !next.sub {
            let title = self::title(program, &path);
            // `git bisect run --help` would run it.
            let runs = program == "git" && path.len() > 1;
            if root.helps && !runs && asks_for_help(rest, false) || is_question(program, rest) {
                return;
            }
            return apply(next, name, rest, &title, analysis);
        }
        entry = next;
    }
}

/// Returns `true` for `-help`, for tools that document it, and for git's `-h` and `--help`, which show a
/// page.
fn is_question(program: &str, args: &[Word]) -> bool {
    let [only] = args else { return false };
    match program {
        "terraform" | "tofu" => only.text == "-help",
        "git" => matches!(only.text.as_str(), "-h" | "--help"),
        _ => false,
    }
}

/// Matches `gh issue --help`: a known subcommand and nothing but the request for help.
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

/// Judges a command of the table. `name` is the last word of its name.
fn apply(entry: &'static Entry, name: &Word, args: &[Word], title: &str, analysis: &mut Analysis) {
    confine::confine(entry, title, name, analysis);
    if entry.handler == Some("find") {
        return find::judge(entry, args, analysis);
    }
    let scanned = options::scan(entry, args, title, analysis);
    end_options_before_fed_names(entry, name, args, &scanned, analysis);
    conclude(entry, args, title, &scanned, analysis);
}

/// Ends the options of a program before the first name that is chosen elsewhere, if one of its options shows secrets: a file
/// may be called `--files0-from=link`.
fn end_options_before_fed_names(
    entry: &Entry,
    name: &Word,
    args: &[Word],
    scanned: &Scanned,
    analysis: &mut Analysis,
) {
    let has_secrets = entry.options.iter().any(|option| option.effect == Effect::Secret);
    if !has_secrets || !entry.takes_anything() {
        return;
    }
    let is_chosen = |word: &Word| match word.literal() {
        Some(text) => analysis.feeds && text.starts_with("{}"),
        None => word
            .shape()
            .is_none_or(|shape| shape.starts_with(['*', '?', '[', '-'])),
    };
    let first = scanned.operands.iter().find(|index| is_chosen(&args[**index]));
    let Some(first) = first.copied() else { return };
    if scanned.delimiter.is_some_and(|delimiter| delimiter < first) {
        return;
    }
    let before = first.checked_sub(1).map_or(name, |before| &args[before]);
    let has_more = args[first..].iter().any(|word| word.text.starts_with('-'));
    match before.end.filter(|_| !analysis.quoted && !has_more) {
        Some(at) => analysis.forced.push(Forced {
            at,
            words: "--".to_owned(),
        }),
        None => analysis.add(
            Effect::Secret,
            format!(
                "{}: a name may become an option that shows a secret: put `--` before it",
                name.text
            ),
        ),
    }
}

/// Adds the findings of the entry, the operands and the command's handler.
fn conclude(entry: &Entry, args: &[Word], title: &str, scanned: &Scanned, analysis: &mut Analysis) {
    if entry.effect > Effect::Read {
        let what = entry.reason.unwrap_or_else(|| entry.effect.describe());
        analysis.add(entry.effect, format!("{title}: {what}"));
    }
    if scanned.operands.len() > entry.operands || may_be_more(entry, args, scanned) {
        analysis.add(
            Effect::Write,
            format!("{title}: with these operands it changes something"),
        );
    }
    // The command that a wrapper runs is judged on its own.
    let own = match (entry.ordered, scanned.operands.first()) {
        (true, Some(first)) if is_wrapper(entry) => &args[..*first],
        _ => args,
    };
    if entry.names {
        secrets::check_names(own, title, analysis);
    } else {
        // A program that prints names or numbers alone is not an exception: each answer tells one bit of the
        // content.
        secrets::check(own, &files(entry, scanned), title, analysis);
    }
    if entry.walks {
        let operands = scanned.operands.iter();
        let paths = operands.filter_map(|index| args[*index].shape()).collect();
        secrets::trees(paths, Reach::Linked, analysis);
        secrets::broad_places(args, title, scanned, analysis);
    }
    if entry.project {
        secrets::trees(Vec::new(), Reach::Project, analysis);
    }
    if title.starts_with("git ") {
        analysis.makes_trees |= git::changes_tree(title);
        git::formats(scanned, title, analysis);
    }
    if let Some(handler) = entry.handler {
        special::handle(handler, args, title, scanned, analysis);
    }
    if let Some(skip) = entry.wraps {
        analysis.wraps = true;
        if let Some(first) = scanned.operands.get(skip) {
            analysis.inner(&args[*first..]);
        }
    }
}

/// Returns the operands that are files, with any names. The first one may be a pattern, unless an option
/// supplies it.
fn files(entry: &Entry, scanned: &Scanned) -> Vec<usize> {
    let Some(skip) = entry.files else {
        return Vec::new();
    };
    let holds = ["-e", "-f", "--regexp", "--file", "--expression"];
    let skip = match scanned.has_any(&holds) {
        true => 0,
        false => skip,
    };
    scanned.operands.iter().copied().skip(skip).collect()
}

/// Returns `true` if one operand may expand to several: `uniq a*` overwrites the second file.
fn may_be_more(entry: &Entry, args: &[Word], scanned: &Scanned) -> bool {
    let one = |word: &Word| word.literal().is_some_and(|text| !text.contains("{}"));
    entry.operands != usize::MAX && scanned.operands.iter().any(|index| !one(&args[*index]))
}

fn is_wrapper(entry: &Entry) -> bool {
    entry.wraps.is_some() || matches!(entry.handler, Some("env" | "xargs" | "command"))
}

/// Returns the command inside wrappers that do not alter it, such as `timeout 5`; `None` if they may.
pub(crate) fn unwrapped(words: &[Word]) -> Option<&[Word]> {
    let mut words = words;
    for _ in 0..MAX_WRAPPERS {
        let (first, args) = words.split_first()?;
        let name = first.literal()?;
        let behind = match name.as_str() {
            "timeout" | "nice" | "stdbuf" | "ionice" => {
                let entry = table::root(&name)?;
                let mut analysis = Analysis::new(judge);
                let scanned = options::scan(entry, args, &name, &mut analysis);
                let harmless = analysis.findings.is_empty();
                scanned.operands.get(entry.wraps?).copied().filter(|_| harmless)?
            }
            // Plain `env` without a variable is never needed.
            "env" => args
                .iter()
                .position(|word| !sets_harmless(word))
                .filter(|first| *first > 0)?,
            _ => return (!runs_others(&name)).then_some(words),
        };
        words = &args[behind..];
    }
    None
}

/// Returns `true` if a program runs another one named in its words: a pattern with its name would match
/// anything.
fn runs_others(name: &str) -> bool {
    let root = table::root(name.rsplit('/').next().unwrap_or_default());
    root.is_some_and(|entry| is_wrapper(entry) || matches!(entry.handler, Some("find" | "shell")))
}

fn sets_harmless(word: &Word) -> bool {
    let text = word.literal().unwrap_or_default();
    text.split_once('=')
        .is_some_and(|(name, value)| nested::is_harmless(name, value))
}
