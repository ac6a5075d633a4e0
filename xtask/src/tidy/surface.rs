//! Rejects names of the command line and configuration in the texts of crates that are independent of both.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::source::Source;

/// The pages that name every flag, command, key and variable.
const COMMANDS: &str = "docs/reference/cli.md";
const SETTINGS: &str = "docs/reference/config.md";
const OLDER_VARIABLES: &str = "docs/guide/configuration.md";

/// Crates that are independent of their callers. Their errors have a `ringfence_policy::Remedy`, which has
/// the names.
const CRATES: &[&str] = &[
    "crates/exec/src/",
    "crates/container/src/",
    "crates/cloud/src/",
    "crates/tools/src/",
];

/// Programs with their own flags, some of which have the names of Ringfence's.
const OTHER_PROGRAMS: &[&str] = &[
    "deno",
    "docker",
    "git",
    "node",
    "npm",
    "pip",
    "podman",
    "systemctl",
    "systemd-run",
];

/// Reports each text with such a name.
pub(super) fn check(root: &Path, sources: &[Source]) -> Result<Vec<String>> {
    let read = |page: &str| fs::read_to_string(root.join(page)).with_context(|| format!("read {page}"));
    let names = Names::of(&read(COMMANDS)?, &read(SETTINGS)?, &read(OLDER_VARIABLES)?);
    let ours = |source: &&Source| CRATES.iter().any(|path| source.path.starts_with(path));
    Ok(sources
        .iter()
        .filter(ours)
        .flat_map(|source| breaches(&names, source))
        .collect())
}

fn breaches(names: &Names, source: &Source) -> Vec<String> {
    let texts = source
        .literals
        .iter()
        .filter(|literal| !source.is_test(literal.line));
    let named = texts.filter_map(|literal| Some((literal.line, names.within(&unescaped(&literal.text))?)));
    named
        .map(|(line, name)| {
            format!(
                "{}:{line}: `{name}` is named at the surface: carry a `Remedy`, or use the product's nouns",
                source.path
            )
        })
        .collect()
}

/// Joins continued lines, and reads the line breaks.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some('\n')) => while rest.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', Some('n')) => {
                rest.next();
                out.push('\n');
            }
            _ => out.push(c),
        }
    }
    out
}

/// The names of the surface.
#[derive(Debug)]
struct Names {
    flags: BTreeSet<String>,
    /// Commands, keys and variables.
    others: BTreeSet<String>,
}

impl Names {
    fn of(commands: &str, settings: &str, older_variables: &str) -> Self {
        let options = commands
            .lines()
            .map(str::trim_start)
            .filter(|line| line.starts_with('-'));
        let words = options.flat_map(|line| line.split([' ', ',', '=', '[']));
        let flags = words.filter(|word| word.strip_prefix("--").is_some_and(|name| !name.is_empty()));
        let titles = commands
            .lines()
            .filter_map(|line| line.strip_prefix("## `")?.strip_suffix('`'));
        let mut others: BTreeSet<String> = titles
            .filter(|title| title.contains(' '))
            .map(str::to_owned)
            .collect();
        let mut section = "";
        for line in settings.lines() {
            if let Some(title) = line.strip_prefix("## `").and_then(|rest| rest.strip_suffix('`')) {
                section = title;
                others.extend(Some(title).filter(|title| title.contains('.')).map(str::to_owned));
            } else if let Some((key, rest)) = line.strip_prefix("| `").and_then(|rest| rest.split_once('`')) {
                others.insert(format!("{section}.{key}"));
                others.extend(variables(rest));
            }
        }
        let rows = older_variables.lines().filter(|line| line.starts_with("| `"));
        others.extend(rows.flat_map(variables));
        Self {
            flags: flags.map(str::to_owned).collect(),
            others,
        }
    }

    /// Returns the first name in a text.
    fn within(&self, text: &str) -> Option<&str> {
        let flag = self.flags.iter().find(|flag| is_flag_of_ours(text, flag));
        let other = || self.others.iter().find(|name| !places(text, name).is_empty());
        flag.or_else(other).map(String::as_str)
    }
}

/// Returns the words in backticks that are variables' names.
fn variables(row: &str) -> impl Iterator<Item = String> {
    let words = row.split('`').filter(|word| {
        word.contains('_')
            && word
                .chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    });
    words.map(str::to_owned)
}

/// Returns the positions of a name that is not a part of a longer one.
fn places(text: &str, name: &str) -> Vec<usize> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let found = text.match_indices(name).map(|(at, _)| at);
    found
        .filter(|at| !text[..*at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))
        .collect()
}

/// Returns `true` if a text names a flag, unless another program gets it: alone, as an argument, or in a command.
fn is_flag_of_ours(text: &str, flag: &str) -> bool {
    let is_argument = text.starts_with(flag) && !text.contains(char::is_whitespace);
    !is_argument
        && places(text, flag)
            .into_iter()
            .any(|at| !is_of_another(&text[..at]))
}

/// Returns `true` if the command that ends here begins with another program.
fn is_of_another(before: &str) -> bool {
    let is_quoted = before.matches('`').count() % 2 == 1;
    let ends: &[char] = if is_quoted {
        &['`']
    } else {
        &['`', '\n', ';', '(', ':']
    };
    let command = before.rsplit(ends).next().unwrap_or_default();
    let mut words = command.split_whitespace();
    words.any(|word| OTHER_PROGRAMS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let names = Names::of(
            "## `ringfence`\n## `ringfence setup image`\n  -u, --user <ID>\n      --memory <SIZE>\nuse --other\n",
            "## `sandbox`\n| `disk` | `1` | `RINGFENCE_SANDBOX_DISK` | x |\n## `permissions.filesystem`\n",
            "| `SANDBOX_TYPE` | `local` | `sandbox.type` |\n",
        );
        let source = Source::new("crates/exec/src/a.rs", text.to_owned());
        let found = breaches(&names, &source);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{text}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn our_names_are_refused() {
        check(
            "fn a() -> B { \"allow more (`--memory`)\" }",
            Some("a.rs:1: `--memory`"),
        );
        check("\"leave --user out\"", Some("`--user`"));
        check("\"start `docker run`, or give `--user`\"", Some("`--user`"));
        check("\"raise `sandbox.disk`\"", Some("`sandbox.disk`"));
        check(
            "\"raise `permissions.filesystem.{x}`\"",
            Some("`permissions.filesystem`"),
        );
        check(
            "\"run \\\n    `ringfence setup image`\"",
            Some("`ringfence setup image`"),
        );
        check("r#\"set SANDBOX_TYPE=local\"#", Some("`SANDBOX_TYPE`"));
        check("\"set RINGFENCE_SANDBOX_DISK\"", Some("`RINGFENCE_SANDBOX_DISK`"));
    }

    #[test]
    fn other_programs_have_flags_of_their_own() {
        check("\"as an ordinary user (`docker run --user`)\"", None);
        check("\"limit it: docker run --memory 1g\"", None);
        check("\"\\nsystemd-run --user x\"", None);
        check("command.args([\"--user\", \"--memory=1g\"])", None);
        check(
            "\"--other --users sandbox.disks RINGFENCE_OUTPUT ringfence setup\"",
            None,
        );
        check("// raise `sandbox.disk`\nfn a() {}", None);
        check(
            "#[cfg(test)]\nmod tests {\n    const A: &str = \"`sandbox.disk`\";\n}",
            None,
        );
    }
}
