//! Requirements of npm: a name, which may have a scope, with a range of versions or a tag.
//!
//! A part of the syntax of `npm install`: no paths, archives, URLs, repositories and aliases.

use std::path::Path;

use super::{MAX_PARTS, MAX_VERSION, ParseRequirementError, shown};
use crate::ecosystem::Ecosystem;

/// Maximum length of a name, as npm has it.
const MAX_NAME: usize = 214;
/// Directory with one directory for each package, named by it and its version, which the guest that installs makes.
const NAMES: &str = ".packages";

/// Operators of versions; of two that begin alike the longer one comes first.
const OPERATORS: &[&str] = &["~>", ">=", "<=", "^", "~", ">", "<", "="];

/// Parses a requirement into a name, and `@` with its versions if it has any.
pub(crate) fn parse(text: &str) -> Result<(String, String), ParseRequirementError> {
    let malformed = || ParseRequirementError::Malformed {
        text: shown(text),
        ecosystem: Ecosystem::Npm,
    };
    // The first character is that of a scope.
    let at = text.match_indices('@').map(|(at, _)| at).find(|at| *at > 0);
    let (name, versions) = match at {
        Some(at) => (&text[..at], Some(text[at + 1..].trim_matches(' '))),
        None => (text, None),
    };
    if versions.is_some_and(|versions| versions.starts_with("npm:")) {
        return Err(ParseRequirementError::Alias(shown(text)));
    }
    if is_place(name, versions.unwrap_or_default()) {
        return Err(ParseRequirementError::Place {
            text: shown(text),
            ecosystem: Ecosystem::Npm,
        });
    }
    if !is_name(name) {
        return Err(malformed());
    }
    match versions {
        None => Ok((name.to_owned(), String::new())),
        Some(versions) => {
            let normalized = range(versions).or_else(|| tag(versions)).ok_or_else(malformed)?;
            Ok((name.to_owned(), format!("@{normalized}")))
        }
    }
}

/// Splits a list at its commas, of which versions have none.
pub(crate) fn split_list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

/// Returns name and version of the package that a directory of an environment stands for.
pub(crate) fn package(directory: &Path) -> Option<String> {
    let text = directory.strip_prefix(NAMES).ok()?.to_str()?;
    let (name, versions) = parse(text).ok()?;
    (!versions.is_empty()).then(|| format!("{name}{versions}"))
}

/// Returns `true` if npm would look for a file, a directory, a URL or a repository.
fn is_place(name: &str, versions: &str) -> bool {
    let is_archive = |text: &str| {
        let lower = text.to_ascii_lowercase();
        [".tgz", ".tar.gz", ".tar"].iter().any(|end| lower.ends_with(end))
    };
    let scope = name.strip_prefix('@').and_then(|name| name.split_once('/'));
    let plain = scope.map_or(name, |(_, name)| name);
    [plain, versions]
        .iter()
        .any(|part| part.contains(['/', '\\', ':']) || part.starts_with('.') || is_archive(part))
}

/// Names of npm have lower case; packages from before that rule may have upper case.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '~'))
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~'))
    };
    name.len() <= MAX_NAME
        && match name.strip_prefix('@') {
            Some(name) => name
                .split_once('/')
                .is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
            None => is_part(name),
        }
}

/// Returns a range, as `>=1.2 <2 || ^3`, with one space between its parts.
fn range(text: &str) -> Option<String> {
    let sets: Vec<String> = text.split("||").map(comparators).collect::<Option<_>>()?;
    (sets.len() <= MAX_PARTS).then(|| sets.join(" || "))
}

/// Returns the versions of a range that must all fit, or `1 - 2`, of which the version must lie between both.
fn comparators(text: &str) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut operator = None;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let found = OPERATORS.iter().find(|operator| word.starts_with(**operator));
        let version = &word[found.map_or(0, |found| found.len())..];
        match (operator.take(), found, version) {
            // An operator may stand apart from its version.
            (None, Some(found), "") => operator = Some(found),
            (None, None, "-") => parts.push("-".to_owned()),
            (before, None, version) | (None, before @ Some(_), version) if is_version(version) => {
                parts.push(format!("{}{version}", before.unwrap_or(&"")));
            }
            _ => return None,
        }
    }
    let is_between = matches!(parts.as_slice(), [first, dash, _] if dash == "-" && first != "-");
    let dashes = parts.iter().filter(|part| *part == "-").count();
    let is_plain = dashes == 0 || (is_between && dashes == 1);
    (operator.is_none() && is_plain && (1..=MAX_PARTS).contains(&parts.len())).then(|| parts.join(" "))
}

fn is_version(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '*' | '+' | '-');
    let number = text.strip_prefix('v').unwrap_or(text);
    number.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '*' | 'x' | 'X'))
        && text.len() <= MAX_VERSION
        && text.chars().all(is_part)
}

/// Returns a tag, such as `latest`.
fn tag(text: &str) -> Option<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_tag = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.len() <= MAX_VERSION
        && text.chars().all(is_part);
    is_tag.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::{Requirement, check_list, parse_list};
    use super::*;

    fn npm(text: &str) -> Result<Requirement, ParseRequirementError> {
        Requirement::parse(Ecosystem::Npm, text)
    }

    #[test]
    fn lists_are_read_in_every_spelling() {
        for (text, expected) in [
            ("lodash", &["lodash"][..]),
            ("lodash@4, @scope/name@^2", &["@scope/name@^2", "lodash@4"]),
            ("lodash@ >= 1.2   <2||^3.1", &["lodash@>=1.2 <2 || ^3.1"]),
            ("a@1 - 2.3", &["a@1 - 2.3"]),
            (
                "a@*,b@1.x,c@v1.2.3-beta.1+build",
                &["a@*", "b@1.x", "c@v1.2.3-beta.1+build"],
            ),
            ("a@latest,b@next-11,c@x11", &["a@latest", "b@next-11", "c@x11"]),
            ("JSONStream,big.js,a_b~c", &["JSONStream", "a_b~c", "big.js"]),
            ("a,a", &["a"]),
        ] {
            let found = parse_list(Ecosystem::Npm, text).unwrap();
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{text}");
            for text in expected {
                assert_eq!(npm(text).unwrap().to_string(), *text);
            }
        }
    }

    #[test]
    fn what_is_no_package_of_the_registry_is_refused() {
        for (text, words) in [
            ("", "empty"),
            ("a@1,a@2", "`a` is named twice"),
            ("https://a.test/x.tgz", "names a place"),
            ("git+ssh://git@a.test/x", "names a place"),
            ("git@a.test:x/y", "names a place"),
            ("user/repo", "names a place"),
            ("a@user/repo", "names a place"),
            ("a@github:user/repo", "names a place"),
            ("a@file:../x", "names a place"),
            ("./a", "names a place"),
            ("../a", "names a place"),
            (".", "names a place"),
            ("a.tgz", "names a place"),
            ("a@b.tar.gz", "names a place"),
            ("@a/b.TGZ", "names a place"),
            ("@a/b/c", "names a place"),
            ("~/a", "names a place"),
            ("a@npm:b@1", "gives a package another name"),
            ("--global", "is not a package"),
            ("-", "is not a package"),
            ("@scope", "is not a package"),
            ("@/a", "is not a package"),
            ("@-a/b", "is not a package"),
            ("a b", "is not a package"),
            ("a@", "is not a package"),
            ("a@1 2 -", "is not a package"),
            ("a@- 1", "is not a package"),
            ("a@>=", "is not a package"),
            ("a@>= >1", "is not a package"),
            ("a@1 || ", "is not a package"),
            ("a@latest next", "is not a package"),
            ("a@^-1", "is not a package"),
            ("a\n", "is not a package"),
            ("é", "is not a package"),
            ("a==1", "is not a package"),
        ] {
            let error = parse_list(Ecosystem::Npm, text).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
        let long = |name: usize, versions: usize| format!("{}@{}", "a".repeat(name), "1 ".repeat(versions));
        assert!(npm(&long(MAX_NAME, MAX_PARTS)).is_ok());
        assert!(npm(&long(MAX_NAME + 1, 1)).is_err());
        assert!(npm(&long(1, MAX_PARTS + 1)).is_err());
    }

    #[test]
    fn a_list_is_of_one_ecosystem() {
        let list = [npm("a@1").unwrap()];
        assert_eq!(check_list(Ecosystem::Npm, &list), Ok(()));
        let mixed = check_list(Ecosystem::Python, &list).unwrap_err().to_string();
        assert_eq!(
            mixed,
            "`a@1` is a package for javascript, and only those for python work here"
        );
        let twice = ["a==1", "a<2"].map(|text| text.parse().unwrap());
        assert_eq!(check_list(Ecosystem::Python, &twice), Ok(()));
    }

    #[test]
    fn directories_name_packages() {
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(package(Path::new(path)).as_deref(), expected, "{path}");
        };
        check(".packages/a@1.0.0-beta", Some("a@1.0.0-beta"));
        check(".packages/@scope/a@1.0.0", Some("@scope/a@1.0.0"));
        for other in [
            ".packages",
            ".packages/@scope",
            ".packages/a",
            "a@1.0.0",
            "a/.packages/a@1",
        ] {
            check(other, None);
        }
    }
}
