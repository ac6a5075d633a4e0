//! `find`: expressions that delete, write or run commands.

use super::analysis::Analysis;
use super::effect::Effect;
use super::options;
use super::secrets;
use super::table::Entry;
use crate::shell::{Simple, Word};

pub(super) fn judge(entry: &Entry, args: &[Word], analysis: &mut Analysis) {
    let (rest, commands) = split(args, analysis);
    let scanned = options::scan(entry, &rest, "find", analysis);
    // Names alone are not secrets, contents are; and another command may show those of files whose names it gets.
    if !commands.is_empty() || prints_sources(args) {
        secrets::check(&rest, &[], "find", analysis);
    }
    if !commands.is_empty() {
        secrets::broad(&rest, "find", &scanned, analysis);
    }
    let outer = std::mem::replace(&mut analysis.sources_only, only_sources(args, is_one_command));
    for command in commands {
        analysis.wraps = true;
        let outer = std::mem::replace(&mut analysis.templated, true);
        match command.first().map(|word| word.text.contains("{}")) {
            Some(false) => analysis.inner(command),
            Some(true) => analysis.add(Effect::Code, "find: runs what it finds"),
            None => analysis.add(Effect::Unknown, "find: the command is missing"),
        }
        analysis.templated = outer;
    }
    analysis.sources_only = outer;
}

/// Extensions of files that contain a secret only by mistake.
const SOURCES: &[&str] = &[
    "rs", "py", "js", "jsx", "mjs", "ts", "tsx", "go", "java", "kt", "c", "h", "cc", "cpp", "cxx", "hpp",
    "rb", "swift", "scala", "cs", "ex", "exs", "erl", "hs", "ml", "clj", "lua", "md", "rst", "html", "css",
    "scss", "vue", "svelte", "proto", "graphql",
];

/// Tests that narrow what is found, each with the number of its arguments.
const TESTS: &[(&str, usize)] = &[
    ("-maxdepth", 1),
    ("-mindepth", 1),
    ("-path", 1),
    ("-ipath", 1),
    ("-mtime", 1),
    ("-mmin", 1),
    ("-size", 1),
    ("-xdev", 0),
    ("-mount", 0),
];

/// Returns `true` if source files alone get to the one action, at the end. An expression is evaluated in its order, so the
/// form is a strict one: start points without an option before them, which may follow links, then tests that all hold.
fn only_sources(args: &[Word], is_action: impl Fn(&[&str]) -> bool) -> bool {
    let texts: Option<Vec<String>> = args.iter().map(Word::literal).collect();
    let Some(texts) = texts else { return false };
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let is_start = |text: &&&str| !text.starts_with(['-', '(', '!', ',']);
    let starts = texts.iter().take_while(is_start).count();
    let mut rest = &texts[starts..];
    let (mut are_files, mut are_sources) = (false, false);
    loop {
        rest = match rest {
            // A symbolic link named like a source file leads anywhere.
            ["-type", "f", rest @ ..] => {
                are_files = true;
                rest
            }
            ["-name" | "-iname", pattern, rest @ ..] => {
                let ending = pattern.rsplit_once('.').map_or("", |(_, ending)| ending);
                are_sources |= SOURCES.contains(&ending);
                rest
            }
            [test, behind @ ..] => match TESTS.iter().find(|(known, _)| known == test) {
                Some((_, words)) if behind.len() >= *words => &behind[*words..],
                _ => break,
            },
            [] => break,
        };
    }
    are_files && are_sources && is_action(rest)
}

/// Returns `true` for one `-exec` or `-execdir` with its end, and nothing behind it.
fn is_one_command(words: &[&str]) -> bool {
    let [action, command @ ..] = words else {
        return false;
    };
    let end = command.iter().position(|word| matches!(*word, ";" | "+"));
    matches!(*action, "-exec" | "-execdir") && end.is_some_and(|end| end + 1 == command.len())
}

/// Returns `true` if a command prints only names of source files, NUL-terminated.
pub(crate) fn feeds_sources(simple: &Simple) -> bool {
    let Some((program, args)) = simple.words.split_first() else {
        return false;
    };
    program.text == "find" && simple.redirects.is_empty() && prints_sources(args)
}

fn prints_sources(args: &[Word]) -> bool {
    only_sources(args, |action| matches!(action, ["-print0"]))
}

/// Returns `true` for an `xargs` that reads them, and nothing else: its options are those that change neither the input nor
/// what is replaced.
pub(crate) fn takes_zeros(simple: &Simple) -> bool {
    let words: Vec<&str> = simple.words.iter().map(|word| word.text.as_str()).collect();
    let ["xargs", args @ ..] = words.as_slice() else {
        return false;
    };
    let (mut rest, mut ends_in_zeros, mut tokens) = (args, false, 0);
    loop {
        rest = match rest {
            ["-0" | "--null", rest @ ..] => {
                ends_in_zeros = true;
                rest
            }
            ["-r" | "--no-run-if-empty" | "-t", rest @ ..] => rest,
            ["-n" | "-P", number, rest @ ..] if number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
            ["-I", "{}", rest @ ..] | ["-I{}", rest @ ..] => {
                tokens += 1;
                rest
            }
            _ => break,
        };
    }
    let is_command = rest.first().is_some_and(|word| !word.starts_with('-'));
    ends_in_zeros && tokens < 2 && is_command && simple.redirects.is_empty()
}

/// Splits the arguments into those of `find` itself and the commands in them.
fn split<'a>(args: &'a [Word], analysis: &mut Analysis) -> (Vec<Word>, Vec<&'a [Word]>) {
    let (mut rest, mut commands, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(word) = args.get(at) {
        at += 1;
        let action = word.literal();
        match action.as_deref() {
            Some("-exec" | "-execdir") => {}
            Some("-ok" | "-okdir") => analysis.add(Effect::Terminal, "find: asks a person"),
            _ => {
                rest.push(word.clone());
                continue;
            }
        }
        let tail = &args[at..];
        let end = (0..tail.len()).find(|index| ends(tail, *index));
        let end = end.unwrap_or(tail.len());
        commands.push(&tail[..end]);
        at += end + 1;
    }
    (rest, commands)
}

/// Returns `true` if a word ends the command: a semicolon, or a plus after `{}`.
fn ends(words: &[Word], index: usize) -> bool {
    match words[index].literal().as_deref() {
        Some(";") => true,
        Some("+") => index > 0 && words[index - 1].literal().as_deref() == Some("{}"),
        _ => false,
    }
}
