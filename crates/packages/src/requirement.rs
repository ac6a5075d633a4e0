//! Requirements: a package's name, with extras and versions.
//!
//! A part of PEP 508. URLs, paths, options and markers are not requirements, so that the index alone decides
//! what a name stands for and an installer never takes one for an argument of its own.

use std::fmt;
use std::str::FromStr;

/// Maximum number of requirements of a run.
const MAX_REQUIREMENTS: usize = 32;
/// Maximum length of a list of requirements, in bytes.
const MAX_LIST: usize = 4096;
/// Maximum length of a name, and of a version.
const MAX_PART: usize = 100;
/// Maximum number of extras, and of version clauses, of a requirement.
const MAX_PARTS: usize = 8;

/// A package that a program needs: a normalized name, with extras and version clauses in order.
///
/// ```
/// # use ringfence_packages::Requirement;
/// let requirement: Requirement = "Scikit_Learn[Plots] <2, >= 1.3".parse()?;
/// assert_eq!(requirement.to_string(), "scikit-learn[plots]<2,>=1.3");
/// # Ok::<(), ringfence_packages::requirement::ParseRequirementError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    name: String,
    extras: Vec<String>,
    clauses: Vec<Clause>,
}

/// A bound of a version, as `>=1.3`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Clause {
    operator: &'static str,
    version: String,
}

/// Operators of version clauses; of two that begin alike the longer one comes first.
const OPERATORS: &[&str] = &["==", "!=", "~=", "<=", ">=", "<", ">"];

/// An error returned when parsing a requirement from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseRequirementError {
    #[error(
        "`{0}` is not a package; write a name with or without versions, like `pandas` or `seaborn==0.13`"
    )]
    Malformed(String),
    #[error("`{0}` names a place; packages come from the index alone, by name")]
    Place(String),
    #[error("`{0}` has an environment marker, which is not supported; leave out what follows the `;`")]
    Marker(String),
    #[error("the list of packages is empty; name one, like `pandas`")]
    Empty,
    #[error("a list of packages must be at most {MAX_LIST} bytes long, got {0}")]
    Long(usize),
    #[error("at most {MAX_REQUIREMENTS} packages may be named for a run, got {0}")]
    Many(usize),
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.extras.is_empty() {
            write!(f, "[{}]", self.extras.join(","))?;
        }
        for (at, Clause { operator, version }) in self.clauses.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{operator}{version}")?;
        }
        Ok(())
    }
}

impl FromStr for Requirement {
    type Err = ParseRequirementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim_matches(' ');
        let malformed = || ParseRequirementError::Malformed(shown(text));
        if text.contains("://") || text.contains(['@', '/', '\\']) {
            return Err(ParseRequirementError::Place(shown(text)));
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
            "" => Vec::new(),
            extras => split(extras, normalized).ok_or_else(malformed)?,
        };
        let clauses = match rest.trim_matches(' ') {
            "" => Vec::new(),
            clauses => split(clauses, clause).ok_or_else(malformed)?,
        };
        Ok(Self {
            name: normalized(name).ok_or_else(malformed)?,
            extras,
            clauses,
        })
    }
}

/// Parses requirements between commas, as `pandas,seaborn>=0.12,<1`, and returns them in order, each once.
///
/// # Errors
/// If one is none, or there are too many.
pub fn parse_list(text: &str) -> Result<Vec<Requirement>, ParseRequirementError> {
    if text.len() > MAX_LIST {
        return Err(ParseRequirementError::Long(text.len()));
    }
    let mut all = parts(text)
        .iter()
        .map(|part| part.parse())
        .collect::<Result<Vec<_>, _>>()?;
    all.sort();
    all.dedup();
    match all.len() {
        0 => Err(ParseRequirementError::Empty),
        1..=MAX_REQUIREMENTS => Ok(all),
        many => Err(ParseRequirementError::Many(many)),
    }
}

/// Splits a list at the commas that begin a requirement: not at those between extras, nor before an operator.
fn parts(text: &str) -> Vec<String> {
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
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Parses parts between commas, and sorts them; `None` if one is malformed or there are too many.
fn split<T: Ord>(text: &str, part: fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let parts = (text.split(',').count() <= MAX_PARTS).then(|| text.split(','))?;
    let mut parts: Vec<T> = parts
        .map(|text| part(text.trim_matches(' ')))
        .collect::<Option<_>>()?;
    parts.sort();
    parts.dedup();
    Some(parts)
}

/// Returns a name in lower case, with one hyphen for each run of hyphens, underscores and dots.
fn normalized(name: &str) -> Option<String> {
    let ends = |c: char| c.is_ascii_alphanumeric();
    let is_name = name.len() <= MAX_PART
        && name.starts_with(ends)
        && name.ends_with(ends)
        && name.chars().all(is_part_of_name);
    let words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
    is_name.then(|| words.collect::<Vec<_>>().join("-").to_ascii_lowercase())
}

fn is_part_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn clause(text: &str) -> Option<Clause> {
    let operator = OPERATORS.iter().find(|operator| text.starts_with(**operator))?;
    let version = text[operator.len()..].trim_start_matches(' ');
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '*' | '+' | '!' | '-' | '_');
    let is_version = version.starts_with(|c: char| c.is_ascii_alphanumeric())
        && version.len() <= MAX_PART
        && version.chars().all(is_part);
    is_version.then(|| Clause {
        operator,
        version: version.to_owned(),
    })
}

/// Returns the beginning of a stranger's text for a message, with control characters escaped.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    short.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!("b".repeat(MAX_PART + 1).parse::<Requirement>().is_err());
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
