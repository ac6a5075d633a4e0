//! Finds the paths that the words of a command may name.
//!
//! Too many are harmless, one too few is an attack: a word is read as a path, as an option with a value, as a
//! list, and as a shell line, all at once.

use std::collections::BTreeSet;
use std::path::Path;

/// Stands for an escaped blank while a line is split.
const BLANK: char = '\0';

/// Returns everything in a word that may name a file, with the home directory filled in.
pub(super) fn pieces(word: &str, home: Option<&str>) -> BTreeSet<String> {
    let word = expanded(word, home).replace("\\ ", &BLANK.to_string());
    let value = word.split_once('=').map(|(_, value)| value);
    let lists = word.split(['=', ':', ',', ';', '"', '\'', '`']);
    let line = word.split(is_punctuation).filter(|piece| !is_root(piece));
    std::iter::once(&*word)
        .chain(value)
        .chain(lists)
        .chain(line)
        .flat_map(|piece| [piece, glued(piece)])
        .map(|piece| at_home(piece.trim(), home).replace(BLANK, " "))
        .filter(|piece| !piece.is_empty())
        .collect()
}

/// Replaces the variable of the home directory.
fn expanded(word: &str, home: Option<&str>) -> String {
    match home {
        Some(home) => word.replace("${HOME}", home).replace("$HOME", home),
        None => word.to_owned(),
    }
}

fn at_home(piece: &str, home: Option<&str>) -> String {
    match (piece.strip_prefix('~'), home) {
        (Some(below), Some(home)) if below.is_empty() || below.starts_with('/') => format!("{home}{below}"),
        _ => piece.to_owned(),
    }
}

/// Returns the value of an option that is written without a blank before it (`-I/usr/include`).
fn glued(piece: &str) -> &str {
    match piece.find('/') {
        Some(start) if piece.starts_with('-') => &piece[start..],
        _ => piece,
    }
}

/// Returns `true` for a separator of words in shell lines, lists, addresses and JSON.
fn is_punctuation(character: char) -> bool {
    character.is_whitespace() || "\"'`;&|()<>{}[],=:$@!#*?\\^".contains(character)
}

/// Returns `true` for slashes alone. Within a line they are a division or a comment as likely as the root
/// directory, which every path lies in.
fn is_root(piece: &str) -> bool {
    Path::new(piece) == Path::new("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_every_kind_of_word() {
        let check = |word: &str, expected: &[&str]| {
            let found = pieces(word, Some("/home/me"));
            for path in expected {
                assert!(found.contains(*path), "{word}: {path} is not in {found:?}");
            }
        };
        for word in [
            "/p/s",
            "--project=/p/s",
            "-I/p/s",
            "-Wl,/p/s",
            "/usr/lib:/p/s",
            "exec /p/s --quiet",
            "cd / && exec '/p/s'",
            "cat </p/s|sh",
            "$(/p/s)",
            "--require /p/s",
            "file:///p/s",
            "{\"root\":\"/p/s\"}",
            "@/p/s",
            "/p/s/*",
        ] {
            let found = pieces(word, None);
            let found = found.iter().map(Path::new);
            let mut found = found.filter(|path| path.is_absolute());
            assert!(found.any(|path| path == Path::new("/p/s")), "{word}");
        }
        check("/p/my dir/s", &["/p/my dir/s"]);
        check("--project=/p/my dir/s", &["/p/my dir/s"]);
        check("exec '/p/my dir/s' x", &["/p/my dir/s"]);
        check("exec /p/my\\ dir/s x", &["/p/my dir/s"]);
        check(
            "exec ~/s $HOME/t ${HOME}/u",
            &["/home/me/s", "/home/me/t", "/home/me/u"],
        );
        check("-m ../s", &["../s"]);
        check("exec units", &["units"]);
        check("/", &["/"]);
        check("--root=/", &["/"]);
    }

    #[test]
    fn a_slash_in_a_line_is_not_the_root() {
        for line in ["print(1 / 2)", "cd / && ls", "x // y"] {
            assert!(!pieces(line, None).contains("/"), "{line}");
        }
    }
}
