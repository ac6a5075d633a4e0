//! Configuration files: finding them, and reading their three formats with line numbers.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ringfence_exec::trust::{Digest, NamedPathError, NamedPaths};
use serde_json::{Map, Value};

use super::lines::{self, Lines};
use super::problem::Problem;
use crate::named_paths;

/// Maximum size of a configuration file, above any real one; a device or a giant file must not fill the
/// memory.
const MAX_LEN: u64 = 1 << 20;

/// The file names to look for in each directory.
const NAMES: [&str; 4] = [
    "ringfence.toml",
    "ringfence.yaml",
    "ringfence.yml",
    "ringfence.json",
];

/// A file's values as written, and the line of each key if the format provides it.
#[derive(Debug)]
pub(super) struct Document {
    pub values: Map<String, Value>,
    /// The digest of its text.
    pub digest: Digest,
    lines: Lines,
}

impl Document {
    /// Returns the line of the key at `path`, in the file's own spelling.
    pub(super) fn line(&self, path: &[String]) -> Option<usize> {
        self.lines.get(path).copied()
    }
}

/// Finds the configuration file of a directory.
pub(super) fn find(dir: &Path) -> Result<Option<PathBuf>, Problem> {
    if dir
        .metadata()
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    {
        return Ok(None);
    }
    let mut found = NAMES
        .iter()
        .map(|name| dir.join(name))
        .filter(|path| path.symlink_metadata().is_ok());
    match (found.next(), found.next()) {
        (Some(first), Some(second)) => Err(Problem::new(
            format!(
                "two configuration files in one directory: {} and {}",
                first.display(),
                second.display()
            ),
            "keep one of them",
        )),
        (first, _) => Ok(first),
    }
}

/// Reads and parses the file at `path`.
pub(super) fn read(path: &Path, named: &NamedPaths) -> Result<Document, Problem> {
    let unreadable = |error: io::Error| {
        Problem::new(
            format!("{}: cannot be read: {error}", path.display()),
            "give a regular, readable file in UTF-8 of at most 1 MiB",
        )
    };
    let (file, _) = named.open_file(path).map_err(|error| match error {
        NamedPathError::Unusable(error) => unreadable(error),
        other => named_paths::failure(path, other).into_problem(),
    })?;
    parse(path, &text(file).map_err(unreadable)?)
}

fn text(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_LEN + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_LEN {
        return Err(io::Error::other("longer than 1 MiB"));
    }
    Ok(text)
}

fn parse(path: &Path, text: &str) -> Result<Document, Problem> {
    let malformed = |format: &str, line: Option<usize>, message: &str| {
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        let message = message.lines().next().unwrap_or_default();
        // What follows is advice for programmers.
        let message = message
            .split(", set DuplicateKeyPolicy")
            .next()
            .unwrap_or_default();
        Problem::new(
            format!("{}{line}: not valid {format}: {message}", path.display()),
            format!("correct the {format}, or give the file the ending of its format: .toml, .yaml or .json"),
        )
    };
    let (value, lines) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => {
            let value = serde_json::from_str(text)
                .map_err(|error| malformed("JSON", Some(error.line()), &error.to_string()))?;
            // The parsers of the other two formats reject duplicate keys themselves.
            if let Some(key) = lines::set_twice(text) {
                return Err(malformed("JSON", None, &format!("`{key}` is set twice")));
            }
            (value, lines::of_yaml(text))
        }
        Some("yaml" | "yml") => {
            let value = parse_yaml(text).map_err(|error| {
                let line = error
                    .location()
                    .map(|at| usize::try_from(at.line()).unwrap_or_default());
                malformed("YAML", line, &error.without_snippet().to_string())
            })?;
            (value, lines::of_yaml(text))
        }
        Some("toml") => {
            let table = toml::de::DeTable::parse(text).map_err(|error| {
                let span = error.span();
                let line = span.clone().map(|span| lines::at(text, span.start));
                let key = span.and_then(|span| text.get(span));
                match (error.message(), key) {
                    ("duplicate key", Some(key)) => malformed("TOML", line, &format!("`{key}` is set twice")),
                    (message, _) => malformed("TOML", line, message),
                }
            })?;
            let value = toml::from_str(text).map_err(|error| malformed("TOML", None, error.message()))?;
            (value, lines::of_toml(text, table.get_ref()))
        }
        _ => {
            return Err(Problem::new(
                format!("{}: unknown format", path.display()),
                "name the file .toml, .yaml, .yml or .json",
            ));
        }
    };
    let document = |values| Document {
        values,
        digest: Digest::of(text.as_bytes()),
        lines,
    };
    match value {
        Value::Object(values) => Ok(document(values)),
        Value::Null => Ok(document(Map::new())),
        _ => Err(Problem::new(
            format!("{}: holds no keys", path.display()),
            "write sections and keys, such as `sandbox` with `timeout`",
        )),
    }
}

/// Parses YAML. An empty file, or one of comments alone, is empty and no error.
fn parse_yaml(text: &str) -> Result<Value, serde_saphyr::Error> {
    let blank = text
        .lines()
        .map(str::trim)
        .all(|line| line.is_empty() || line.starts_with('#'));
    if blank {
        Ok(Value::Null)
    } else {
        serde_saphyr::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(name: &str, text: &str) -> Option<usize> {
        let document = parse(Path::new(name), text).unwrap();
        assert_eq!(document.values["sandbox"]["memory"], "1g");
        document.line(&["sandbox".to_owned(), "memory".to_owned()])
    }

    #[test]
    fn every_format_tells_the_line() {
        assert_eq!(
            line_of("a.toml", "# x\n[sandbox]\npids = 3\nmemory = '1g'\n"),
            Some(4)
        );
        assert_eq!(line_of("a.toml", "sandbox = { memory = '1g' }\n"), Some(1));
        assert_eq!(
            line_of("a.yaml", "# x\nsandbox:\n  preload: [a, b]\n  memory: 1g\n"),
            Some(4)
        );
        assert_eq!(
            line_of("a.json", "{\n\t\"sandbox\": {\n\t\t\"memory\": \"1g\"\n\t}\n}\n"),
            Some(3)
        );
    }

    #[test]
    fn an_empty_file_holds_nothing() {
        for name in ["a.toml", "a.yaml"] {
            assert!(
                parse(Path::new(name), "\n# nothing\n").unwrap().values.is_empty(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_key_set_twice_is_refused_in_every_format() {
        for (name, text) in [
            ("a.toml", "[sandbox]\npids = 1\npids = 2\n"),
            ("a.yaml", "sandbox:\n  pids: 1\n  pids: 2\n"),
            ("a.json", "{\"sandbox\": {\"pids\": 1, \"pids\": 2}}"),
        ] {
            let message = parse(Path::new(name), text).unwrap_err().message;
            assert!(
                message.contains("pids") && !message.contains("Policy"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_malformed_file_is_named_with_its_line() {
        for (name, text, line) in [
            ("a.toml", "x = 1\ny = = 2\n", 2),
            ("a.json", "{\n \"a\": }", 2),
            ("a.yaml", "a: 1\nb: [1,\n", 3),
        ] {
            let message = parse(Path::new(name), text).unwrap_err().message;
            assert!(message.starts_with(&format!("{name}:")), "{message}");
            let got: usize = message.split(':').nth(1).unwrap().parse().unwrap();
            assert!(got.abs_diff(line) <= 1, "{message}");
        }
    }

    #[test]
    fn a_fifo_or_directory_is_refused_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ringfence.toml")).unwrap();
        let path = find(dir.path()).unwrap().unwrap();
        let refused = read(&path, &NamedPaths::default()).unwrap_err();
        assert!(refused.message.contains("not a regular file"));
    }

    #[test]
    fn two_formats_side_by_side_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["ringfence.toml", "ringfence.json"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert!(
            find(dir.path())
                .unwrap_err()
                .message
                .contains("two configuration files")
        );
    }
}
