//! Paths that the text of a file names and that can lead out of its tree.

use std::path::{Path, PathBuf};

use crate::host::project;

/// Maximum length of a path.
const MAX_LENGTH: usize = 300;
/// Maximum length of a text with zeros at its beginning.
const MAX_SCRIPT: usize = 1 << 20;

/// Returns the paths in the text of a file that lead upwards or into a repository's own directory; in a manifest,
/// also the absolute ones.
pub(super) fn of(file: &Path, bytes: &[u8], home: Option<&Path>) -> Vec<PathBuf> {
    // Shells skip zeros in their scripts; what is as long as a program is none.
    if bytes.len() > MAX_SCRIPT && bytes[..1_024].contains(&0) {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(bytes);
    let is_manifest = project::is_manifest(file);
    let names_any = is_manifest || text.contains("../") || text.contains(".git/");
    let Some(beside) = file.parent().filter(|_| names_any) else {
        return Vec::new();
    };
    let hidden = beside
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let above = beside.parent().filter(|_| is_manifest && hidden);
    let separates = |sign: char| sign.is_whitespace() || "'\"`()[]{}<>,;=:|&@#!\\".contains(sign);
    let mut found = Vec::new();
    for word in text.split(separates).filter(|word| word.len() <= MAX_LENGTH) {
        if let Some(path) = relative(word, is_manifest) {
            found.push(beside.join(&path));
            // Settings in `.cargo` are relative to the directory above.
            found.extend(above.map(|above| above.join(path)));
        }
        found.extend(absolute(word, home).filter(|_| is_manifest));
    }
    found
}

/// Returns the part of a word that leads upwards or into `.git`, up to its first glob or variable.
fn relative(word: &str, is_manifest: bool) -> Option<String> {
    let parts: Vec<&str> = word.split('/').collect();
    let up = parts.iter().position(|part| leads_up(part));
    let into = parts
        .iter()
        .position(|part| *part == ".git")
        .filter(|at| at + 1 < parts.len());
    // What stands before it is a variable, an option, or the root, unless it is a plain name.
    let is_plain = |part: &&str| !part.is_empty() && !part.contains(['$', '%', '*', '-']);
    let start = up.or(into)?;
    let start = if parts[..start].iter().all(is_plain) {
        0
    } else {
        start
    };
    let known = parts[start..]
        .iter()
        .take_while(|part| !part.contains(['*', '?', '$', '%']));
    let path: Vec<&str> = known
        .map(|part| if leads_up(part) { ".." } else { part })
        .collect();
    let path = path.join("/");
    // Any script names `..` alone, which tells nothing.
    (is_manifest && start == 0 || path.contains(char::is_alphanumeric)).then_some(path)
}

/// Returns `true` for `..`, also behind the letter of an option (`-I..`).
fn leads_up(part: &str) -> bool {
    let bare = part.strip_prefix('-').and_then(|rest| rest.get(1..));
    part == ".." || bare == Some("..")
}

fn absolute(word: &str, home: Option<&Path>) -> Option<PathBuf> {
    let known = word.split(['*', '?', '$', '%']).next().unwrap_or_default();
    if let (Some(rest), Some(home)) = (word.strip_prefix("~/"), home) {
        return Some(home.join(rest));
    }
    let is_path = known.starts_with('/') && !known.starts_with("//");
    (is_path && known.contains(char::is_alphanumeric)).then(|| PathBuf::from(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_out_is_found_however_it_is_written() {
        let check = |file: &str, text: &str, expected: &[&str]| {
            let found = of(
                &Path::new("/w/sub").join(file),
                text.as_bytes(),
                Some(Path::new("/h")),
            );
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(found, expected, "{file}: {text}");
        };
        for (text, expected) in [
            ("x = {path = \"../x\"}", &["/w/sub/../x"][..]),
            ("source ../../x.sh", &["/w/sub/../../x.sh"]),
            ("require('../x/y')", &["/w/sub/../x/y"]),
            ("include ../*.mk ../$(X)/y", &[]),
            ("glob ../x/*.mk", &["/w/sub/../x"]),
            (". \"$(dirname \"$0\")/../x.sh\"", &["/w/sub/../x.sh"]),
            (". $HERE/../x.sh", &["/w/sub/../x.sh"]),
            ("a/../../x", &["/w/sub/a/../../x"]),
            (
                "file:../x -e../y -I../z",
                &["/w/sub/../x", "/w/sub/../y", "/w/sub/../z"],
            ),
            ("exec(open('.git/index').read())", &["/w/sub/.git/index"]),
            ("cd ..; ls /etc/x; 1..2; a...b; .gitignore", &[]),
            ("\0 ../x", &["/w/sub/../x"]),
        ] {
            check("any.name", text, expected);
        }
        check("Cargo.toml", "path = \"..\"", &["/w/sub/.."]);
        check("Cargo.toml", "path = \"/x/y\" // ~/z", &["/x/y", "/h/z"]);
        check("notes.log", "path = \"/x/y\" ~/z", &[]);
    }
}
