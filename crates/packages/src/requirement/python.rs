//! Requirements of Python: a name, with extras and versions. A part of PEP 508.

use std::path::Path;

use super::{MAX_PARTS, MAX_VERSION, ParseRequirementError, shown};
use crate::ecosystem::Ecosystem;

/// Maximum length of a name.
const MAX_NAME: usize = 100;

/// Operators of version clauses; of two that begin alike the longer one comes first.
const OPERATORS: &[&str] = &["==", "!=", "~=", "<=", ">=", "<", ">"];

/// Parses a requirement into a name, and its extras and version clauses in order.
pub(crate) fn parse(text: &str) -> Result<(String, String), ParseRequirementError> {
    let malformed = || ParseRequirementError::Malformed {
        text: shown(text),
        ecosystem: Ecosystem::Python,
    };
    if let Some(instead) = of_npm(text) {
        let text = shown(text);
        return Err(ParseRequirementError::OfNpm { text, instead });
    }
    if text.contains("://") || text.contains(['@', '/', '\\']) {
        return Err(ParseRequirementError::Place {
            text: shown(text),
            ecosystem: Ecosystem::Python,
        });
    }
    if text.contains(';') {
        return Err(ParseRequirementError::Marker(shown(text)));
    }
    let end = text.find(|c: char| !is_part_of_name(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let rest = rest.trim_start_matches(' ');
    let (extras, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(malformed)?,
        None => ("", rest),
    };
    let extras = match extras {
        "" => String::new(),
        extras => format!("[{}]", joined(extras, normalized).ok_or_else(malformed)?),
    };
    let clauses = match rest.trim_matches(' ') {
        "" => String::new(),
        clauses => joined(clauses, clause).ok_or_else(malformed)?,
    };
    Ok((normalized(name).ok_or_else(malformed)?, extras + &clauses))
}

/// Returns what was meant by a name and a version in npm's syntax, such as `pandas@2`.
fn of_npm(text: &str) -> Option<String> {
    let (name, version) = text.split_once('@')?;
    let name = normalized(name)?;
    clause(&format!("=={version}"))
        .filter(|_| version.starts_with(|c: char| c.is_ascii_digit()))
        .map(|clause| name + &clause)
}

/// Returns name and version of the package whose metadata a directory holds.
pub(crate) fn package(directory: &Path) -> Option<String> {
    let (name, version) = directory.to_str()?.strip_suffix(".dist-info")?.rsplit_once('-')?;
    // Only what a person could have asked for is shown.
    let (name, versions) = parse(&format!("{name}=={version}")).ok()?;
    Some(name + &versions)
}

/// Splits a list at the commas that begin a requirement: not at those between extras, nor before an operator.
pub(crate) fn split_list(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in text.split(',') {
        let goes_on = part.trim_start().starts_with(['<', '>', '=', '!', '~']);
        let is_open = |last: &&mut String| last.contains('[') && !last.contains(']');
        match parts.last_mut().filter(|last| goes_on || is_open(last)) {
            Some(last) => {
                last.push(',');
                last.push_str(part);
            }
            None => parts.push(part.to_owned()),
        }
    }
    parts
}

/// Parses parts between commas, and returns them in order, each once; `None` if one is malformed or there are too many.
fn joined(text: &str, part: fn(&str) -> Option<String>) -> Option<String> {
    let parts = (text.split(',').count() <= MAX_PARTS).then(|| text.split(','))?;
    let mut parts: Vec<String> = parts
        .map(|text| part(text.trim_matches(' ')))
        .collect::<Option<_>>()?;
    parts.sort();
    parts.dedup();
    Some(parts.join(","))
}

/// Returns a name in lower case, with one hyphen for each run of hyphens, underscores and dots.
fn normalized(name: &str) -> Option<String> {
    let ends = |c: char| c.is_ascii_alphanumeric();
    let is_name = name.len() <= MAX_NAME
        && name.starts_with(ends)
        && name.ends_with(ends)
        && name.chars().all(is_part_of_name);
    let words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
    is_name.then(|| words.collect::<Vec<_>>().join("-").to_ascii_lowercase())
}

fn is_part_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn clause(text: &str) -> Option<String> {
    let operator = OPERATORS.iter().find(|operator| text.starts_with(**operator))?;
    let version = text[operator.len()..].trim_start_matches(' ');
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '*' | '+' | '!' | '-' | '_');
    let is_version = version.starts_with(|c: char| c.is_ascii_alphanumeric())
        && version.len() <= MAX_VERSION
        && version.chars().all(is_part);
    is_version.then(|| format!("{operator}{version}"))
}

#[cfg(test)]
mod tests {
    use super::super::{MAX_LIST, Requirement};
    use super::*;

    fn parse_list(text: &str) -> Result<Vec<Requirement>, ParseRequirementError> {
        super::super::parse_list(Ecosystem::Python, text)
    }

    fn check(text: &str, expected: &[&str]) {
        let found = parse_list(text).unwrap();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn lists_are_read_in_every_spelling() {
        check("pandas", &["pandas"]);
        check("seaborn==0.13, pandas", &["pandas", "seaborn==0.13"]);
        check("Pandas,pandas", &["pandas"]);
        check("a.b_c--d", &["a-b-c-d"]);
        check("pandas>=1,<2,numpy", &["numpy", "pandas<2,>=1"]);
        check("pandas >= 1 , != 1.5.* , numpy", &["numpy", "pandas!=1.5.*,>=1"]);
        check("x[B, a] ~= 1.0,y", &["x[a,b]~=1.0", "y"]);
        check("torch==2.1+cpu,", &["torch==2.1+cpu"]);
        check(&format!("a{}>=1", ">=1,".repeat(7)), &["a>=1"]);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for (text, words) in [
            ("", "empty"),
            (",", "empty"),
            ("-r", "`-r` is not a package"),
            ("--index-url=x", "is not a package"),
            ("--index-url=https://a.test", "names a place"),
            ("pandas @ file:///etc/passwd", "names a place"),
            ("./wheel.whl", "names a place"),
            ("pandas@2", "is written as for npm; for Python write `pandas==2`"),
            ("pandas@latest", "names a place"),
            ("a\\b", "names a place"),
            ("git+https://a.test/x", "names a place"),
            ("pandas; python_version<'3'", "environment marker"),
            ("pandas 1.0", "is not a package"),
            ("pandas===1.0", "is not a package"),
            ("pandas==", "is not a package"),
            ("pandas==-1", "is not a package"),
            ("pandas==1 --pre", "is not a package"),
            ("pandas[", "is not a package"),
            ("pandas\n--pre", "is not a package"),
            ("pandas\0", "is not a package"),
            ("pändas", "is not a package"),
            ("a-", "is not a package"),
        ] {
            let error = parse_list(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }

    #[test]
    fn lists_are_bounded() {
        let many = |count: usize| {
            (0..count)
                .map(|at| format!("p{at}"))
                .collect::<Vec<_>>()
                .join(",")
        };
        assert_eq!(parse_list(&many(32)).unwrap().len(), 32);
        assert_eq!(
            parse_list(&many(33)).unwrap_err(),
            ParseRequirementError::Many(33)
        );
        let long = "a".repeat(MAX_LIST + 1);
        assert_eq!(
            parse_list(&long).unwrap_err(),
            ParseRequirementError::Long(MAX_LIST + 1)
        );
        assert!(
            format!("a{}>=1", ">=1,".repeat(8))
                .parse::<Requirement>()
                .is_err()
        );
        assert!("b".repeat(MAX_NAME + 1).parse::<Requirement>().is_err());
    }

    #[test]
    fn what_was_printed_is_read_as_the_same() {
        for text in ["x[a,b]<2,>=1", "pandas", "torch==2.1+cpu"] {
            let requirement: Requirement = text.parse().unwrap();
            assert_eq!(requirement.to_string(), text);
            assert_eq!(requirement.to_string().parse(), Ok(requirement));
        }
    }
}
