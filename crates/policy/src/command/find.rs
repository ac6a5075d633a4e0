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
    // Names alone are not secrets, contents are.
    if !commands.is_empty() {
        secrets::check(&rest, &[], "find", analysis);
        secrets::broad(&rest, "find", &scanned, analysis);
    }
    let outer = std::mem::replace(&mut analysis.sources_only, only_sources(&rest));
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

/// Returns `true` if it finds only source files: all tests must hold, and one requires such an extension.
fn only_sources(args: &[Word]) -> bool {
    let texts: Option<Vec<String>> = args.iter().map(Word::literal).collect();
    let Some(texts) = texts else { return false };
    let either = ["-o", "-or", ",", "(", ")", "-follow", "-L"];
    if texts.iter().any(|text| either.contains(&text.as_str())) {
        return false;
    }
    // A symbolic link named like a source file leads anywhere.
    let files = texts
        .windows(2)
        .any(|pair| matches!(pair, [test, kind] if test == "-type" && kind == "f"));
    let mut before = "";
    files
        && texts.windows(2).any(|pair| {
            let [test, pattern] = pair else { return false };
            let negated = matches!(before, "!" | "-not");
            before = test;
            let ending = pattern.rsplit_once('.').map_or("", |(_, ending)| ending);
            !negated && matches!(test.as_str(), "-name" | "-iname") && SOURCES.contains(&ending)
        })
}

/// Returns `true` if a command prints only names of source files, NUL-terminated.
pub(crate) fn feeds_sources(simple: &Simple) -> bool {
    let Some((program, args)) = simple.words.split_first() else {
        return false;
    };
    let zeros = args.iter().any(|word| word.text == "-print0")
        && !args
            .iter()
            .any(|word| word.text == "-print" || word.text.starts_with("-printf"));
    program.text == "find" && zeros && simple.redirects.is_empty() && only_sources(args)
}

/// Returns `true` for an `xargs` that reads them.
pub(crate) fn takes_zeros(simple: &Simple) -> bool {
    simple.words.first().is_some_and(|word| word.text == "xargs")
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
