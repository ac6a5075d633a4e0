//! Reads programs: their text, their name, and the language by the file's ending or the first line.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use ringfence_exec::trust::{NamedPathError, NamedPaths};
use ringfence_policy::Language;

use crate::failure::Failure;
use crate::named_paths;

/// Maximum length of a program. Longer programs are data in disguise; they belong in a mounted file.
const MAX_LEN: u64 = 8 << 20;

/// The source of the program.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    Text(String),
    File(PathBuf),
    Stdin,
}

/// A program with its name and language.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    pub code: String,
    pub name: String,
    pub language: Language,
}

impl Source {
    /// Returns the source that arguments name: code, a file, or `-` for standard input, which is also the default unless it is
    /// a terminal.
    pub fn of(code: Option<&str>, file: Option<&Path>) -> Option<Self> {
        match (code, file) {
            (Some(code), _) => Some(Self::Text(code.to_owned())),
            (None, Some(path)) if path.as_os_str() == "-" => Some(Self::Stdin),
            (None, Some(path)) => Some(Self::File(path.to_path_buf())),
            (None, None) if io::stdin().is_terminal() => None,
            (None, None) => Some(Self::Stdin),
        }
    }

    /// Reads the program's text and determines its name and language.
    ///
    /// # Errors
    /// If the source cannot be read, is not text, is too long, or is of another language.
    pub fn read(self, language: Option<Language>, named: &NamedPaths) -> Result<Program, Failure> {
        let place = match &self {
            Self::Text(_) => None,
            Self::Stdin => Some("standard input".to_owned()),
            Self::File(path) => Some(path.display().to_string()),
        };
        let (code, name, extension) = match self {
            Self::Text(code) => (code.into_bytes(), "<string>".to_owned(), None),
            Self::Stdin => (
                bytes("standard input", io::stdin().lock())?,
                "<stdin>".to_owned(),
                None,
            ),
            Self::File(path) => {
                let file = open_with(&path, named, "check the path; -c takes a program as text")?;
                let shown = path.display().to_string();
                let extension = path
                    .extension()
                    .and_then(|extension| extension.to_str())
                    .map(str::to_owned);
                (bytes(&shown, file)?, shown, extension)
            }
        };
        let code = text(&name, code)?;
        // Code of an option is empty on purpose; a file or pipe by mistake.
        if let Some(place) = place.filter(|_| code.trim().is_empty()) {
            return Err(Failure::usage(
                format!("expected a program, found nothing in {place}"),
                "name a file with a program, pass one with `-c`, or send one to standard input",
            ));
        }
        let language = language
            .or_else(|| extension.as_deref().and_then(Language::from_extension))
            .or_else(|| shebang(&code));
        let language = match language {
            Some(language) => language,
            None if extension.as_deref().is_some_and(is_of_another) => return Err(unsupported(&name)),
            None => Language::Python,
        };
        Ok(Program { code, name, language })
    }
}

/// Endings of programs in languages that no runtime has. Any other unknown ending is taken for Python.
const OTHERS: &[&str] = &[
    "awk", "bat", "c", "cc", "clj", "cpp", "cs", "dart", "erl", "ex", "exs", "fish", "go", "hs", "ipynb",
    "java", "jl", "jsx", "ksh", "kt", "lua", "php", "pl", "ps1", "r", "rb", "rs", "scala", "sql", "swift",
    "tcl", "ts", "tsx", "vb", "zig", "zsh",
];

fn is_of_another(extension: &str) -> bool {
    OTHERS.contains(&extension.to_ascii_lowercase().as_str())
}

fn unsupported(name: &str) -> Failure {
    Failure::usage(
        format!("expected a program in python, bash or javascript, found {name}"),
        "if it is one of them, pass `-l python`, `-l bash` or `-l javascript`",
    )
}

/// Opens the file at `path` for reading.
///
/// # Errors
/// If it cannot be read, or is a directory.
pub fn open(path: &Path, named: &NamedPaths) -> Result<File, Failure> {
    open_with(path, named, "check the path")
}

/// Opens a file. `missing` is the hint if there is none.
fn open_with(path: &Path, named: &NamedPaths, missing: &str) -> Result<File, Failure> {
    let shown = path.display().to_string();
    let file = named.open(path).map_err(|error| failure(path, error, missing))?;
    let meta = file.metadata().map_err(|error| unreadable(&shown, &error))?;
    match meta.is_dir() {
        true => Err(Failure::usage(
            format!("{shown} is a directory"),
            "name a file in it",
        )),
        false => Ok(file),
    }
}

/// Converts the error of a path that is to be read. `missing` is the hint if nothing is there.
pub fn failure(path: &Path, error: NamedPathError, missing: &str) -> Failure {
    let shown = path.display();
    match error {
        NamedPathError::Unusable(error) if error.kind() == io::ErrorKind::NotFound => {
            Failure::usage(format!("cannot read {shown}: {error}"), missing)
        }
        NamedPathError::Unusable(error) => unreadable(&shown.to_string(), &error),
        other => named_paths::failure(path, other),
    }
}

fn bytes(name: &str, reader: impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    reader
        .take(MAX_LEN + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(name, &error))?;
    Ok(bytes)
}

fn text(name: &str, bytes: Vec<u8>) -> Result<String, Failure> {
    if bytes.len() as u64 > MAX_LEN {
        let hint = "keep data out of the program: pass it with --stdin or --mount";
        return Err(Failure::usage(format!("{name} is longer than 8 MiB"), hint));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        Failure::usage(
            format!("{name} is not UTF-8 text (line {line})"),
            "save the program as UTF-8",
        )
    })?;
    match text.find('\0') {
        Some(at) => {
            let line = 1 + text[..at].matches('\n').count();
            Err(Failure::usage(
                format!("{name} holds a NUL character (line {line})"),
                "write it as an escape, such as \\0",
            ))
        }
        None => Ok(text),
    }
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::usage(
        format!("cannot read {name}: {error}"),
        "check the file's permissions",
    )
}

/// Returns the language of a program's shebang line.
fn shebang(code: &str) -> Option<Language> {
    let line = code.lines().next()?.strip_prefix("#!")?;
    let mut words = line
        .split_whitespace()
        .map(|word| word.rsplit('/').next().unwrap_or(word));
    let program = words.find(|word| *word != "env" && !word.starts_with('-'))?;
    match program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        "python" => Some(Language::Python),
        "bash" | "sh" => Some(Language::Bash),
        "node" | "deno" => Some(Language::Javascript),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_a_language() {
        for (line, language) in [
            ("#!/usr/bin/env python3.12", Some(Language::Python)),
            ("#!/usr/bin/env -S node --no-warnings", Some(Language::Javascript)),
            ("#! /bin/sh -e", Some(Language::Bash)),
            ("#!/usr/bin/perl", None),
            ("#!", None),
            ("print(1)", None),
        ] {
            assert_eq!(shebang(line), language, "{line}");
        }
    }

    fn read(bytes: &[u8]) -> Result<Program, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.txt");
        std::fs::write(&path, bytes).unwrap();
        Source::File(path).read(None, &NamedPaths::default())
    }

    #[test]
    fn bad_programs_are_refused_with_the_line() {
        assert!(
            read(b"a\n\xff")
                .unwrap_err()
                .to_string()
                .contains("not UTF-8 text (line 2)")
        );
        assert!(
            read(b"a\n\nb\0")
                .unwrap_err()
                .to_string()
                .contains("NUL character (line 3)")
        );
        for nothing in [&b""[..], b" \n\n"] {
            let refused = read(nothing).unwrap_err().to_string();
            assert!(refused.contains("found nothing in"), "{refused}");
        }
        assert!(read(&vec![b'#'; 8 << 20]).is_ok());
        assert!(
            read(&vec![b'#'; (8 << 20) + 1])
                .unwrap_err()
                .to_string()
                .contains("longer than 8 MiB")
        );
    }

    #[test]
    fn missing_files_and_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            open(dir.path(), &NamedPaths::default())
                .unwrap_err()
                .to_string()
                .contains("is a directory")
        );
        assert!(
            open(&dir.path().join("no"), &NamedPaths::default())
                .unwrap_err()
                .to_string()
                .contains("cannot read")
        );
    }

    #[test]
    fn a_file_of_another_language_is_refused_unless_one_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let named = NamedPaths::default();
        let check = |name: &str, text: &str, asked, expected: Option<Language>| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            let read = Source::File(path).read(asked, &named);
            assert_eq!(read.ok().map(|program| program.language), expected, "{name}");
        };
        check("y.rb", "puts 1", None, None);
        check("y.TS", "1", None, None);
        check("y.rb", "puts 1", Some(Language::Bash), Some(Language::Bash));
        check("y.rb", "#!/usr/bin/env python3\n", None, Some(Language::Python));
        check("y.txt", "1", None, Some(Language::Python));
        check("y", "1", None, Some(Language::Python));
    }

    #[test]
    fn the_language_is_asked_for_else_guessed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.js");
        std::fs::write(&path, "#!/bin/bash\n").unwrap();
        let named = NamedPaths::default();
        let language = |asked| Source::File(path.clone()).read(asked, &named).unwrap().language;
        assert_eq!(language(Some(Language::Python)), Language::Python);
        assert_eq!(language(None), Language::Javascript);
        assert_eq!(
            Source::Text("1".to_owned()).read(None, &named).unwrap().language,
            Language::Python
        );
    }
}
