//! `find`: its expression may delete, write and run commands.

use super::effect::{Effect, Found};
use super::options;
use super::table::Entry;
use super::{inner, secrets, special};
use crate::shell::Word;

/// Tests that say what the files are called.
const BY_NAME: &[&str] = &[
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-regex",
    "-iregex",
];

pub(super) fn judge(entry: &Entry, args: &[Word], found: &mut Found) {
    let (rest, commands) = split(args, found);
    let scanned = options::scan(entry, &rest, "find", found);
    // Names alone are no secrets, contents are.
    if !commands.is_empty() || found.feeds {
        secrets::check(&rest, "find", found);
        special::broad(&rest, "find", &scanned, found);
    }
    if found.feeds && !scanned.values.iter().any(|(name, _)| BY_NAME.contains(name)) {
        found.add(
            Effect::Secret,
            "find: whatever there is becomes an argument, secrets too",
        );
    }
    for command in commands {
        found.wraps = true;
        let outer = std::mem::replace(&mut found.templated, true);
        match command.first().map(|word| word.text.contains("{}")) {
            Some(false) => inner(command, found),
            Some(true) => found.add(Effect::Code, "find: runs what it finds"),
            None => found.add(Effect::Unknown, "find: the command is missing"),
        }
        found.templated = outer;
    }
}

/// The arguments without the commands in them, and the commands.
fn split<'a>(args: &'a [Word], found: &mut Found) -> (Vec<Word>, Vec<&'a [Word]>) {
    let (mut rest, mut commands, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(word) = args.get(at) {
        at += 1;
        let action = word.literal();
        match action.as_deref() {
            Some("-exec" | "-execdir") => {}
            Some("-ok" | "-okdir") => found.add(Effect::Terminal, "find: asks a person"),
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

/// A semicolon ends the command, or a plus behind `{}`.
fn ends(words: &[Word], index: usize) -> bool {
    match words[index].literal().as_deref() {
        Some(";") => true,
        Some("+") => index > 0 && words[index - 1].literal().as_deref() == Some("{}"),
        _ => false,
    }
}
