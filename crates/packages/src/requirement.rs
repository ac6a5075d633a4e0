//! Requirements: a package's name, with versions.
//!
//! URLs, paths and options are not requirements, so that the index alone decides what a name stands for and an
//! installer never takes one for an argument of its own.

pub(crate) mod npm;
pub(crate) mod python;

use std::fmt;
use std::str::FromStr;

use crate::ecosystem::Ecosystem;

/// Maximum number of requirements of a run.
const MAX_REQUIREMENTS: usize = 32;
/// Maximum length of a list of requirements, in bytes.
const MAX_LIST: usize = 4096;
/// Maximum length of a version.
const MAX_VERSION: usize = 100;
/// Beginning of a requirement of npm in a list that may have others.
const NPM_PREFIX: &str = "npm:";
/// Maximum number of parts of a requirement's versions, and of its extras.
const MAX_PARTS: usize = 8;

/// A package that a program needs: a name and versions, both normalized.
///
/// ```
/// # use ringfence_packages::{Ecosystem, Requirement};
/// let python: Requirement = "Scikit_Learn[Plots] <2, >= 1.3".parse()?;
/// assert_eq!(python.to_string(), "scikit-learn[plots]<2,>=1.3");
/// assert_eq!(Requirement::parse(Ecosystem::Npm, "@scope/name@ >= 2")?.to_string(), "@scope/name@>=2");
/// # Ok::<(), ringfence_packages::requirement::ParseRequirementError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    ecosystem: Ecosystem,
    name: String,
    versions: String,
}

/// An error returned when parsing requirements from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseRequirementError {
    #[error("`{text}` is not a package; write a name with or without versions, like {}", .ecosystem.examples())]
    Malformed { text: String, ecosystem: Ecosystem },
    #[error("`{text}` names a place; packages come from the {} alone, by name", .ecosystem.messages().index)]
    Place { text: String, ecosystem: Ecosystem },
    #[error("`{text}` is written as for npm; for Python write `{instead}`")]
    OfNpm { text: String, instead: String },
    #[error("`{0}` has an environment marker, which is not supported; leave out what follows the `;`")]
    Marker(String),
    #[error("`{0}` gives a package another name, which is not supported; name the package itself")]
    Alias(String),
    #[error("`{0}` is named twice, with different versions; name one")]
    Twice(String),
    #[error("the list of packages is empty; name one, like {}", .0.examples())]
    Empty(Ecosystem),
    #[error("a list of packages must be at most {MAX_LIST} bytes long, got {0}")]
    Long(usize),
    #[error("at most {MAX_REQUIREMENTS} packages may be named for a run, got {0}")]
    Many(usize),
    #[error("`{found}` is a package for {}, and only those for {} work here", .found.ecosystem.language(), .expected.language())]
    Mixed { found: Requirement, expected: Ecosystem },
}

impl Requirement {
    /// Parses a requirement in the syntax of an ecosystem.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(ecosystem: Ecosystem, text: &str) -> Result<Self, ParseRequirementError> {
        let (name, versions) = (ecosystem.facts().parse)(text.trim_matches(' '))?;
        Ok(Self {
            ecosystem,
            name,
            versions,
        })
    }

    pub const fn ecosystem(&self) -> Ecosystem {
        self.ecosystem
    }

    /// Returns the normalized name, without extras.
    pub(crate) fn name(&self) -> &str {
        self.name.split('[').next().unwrap_or(&self.name)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, self.versions)
    }
}

/// Parses a Python package, such as `pandas` or `seaborn==0.13`.
impl FromStr for Requirement {
    type Err = ParseRequirementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(Ecosystem::Python, text)
    }
}

/// Parses requirements of one ecosystem between commas, as `pandas,seaborn>=0.12,<1`, and returns them in order, each once.
///
/// # Errors
/// If one is none, or there are too many.
pub fn parse_list(ecosystem: Ecosystem, text: &str) -> Result<Vec<Requirement>, ParseRequirementError> {
    let all = parts(ecosystem, text)?;
    check_list(ecosystem, &all)?;
    Ok(all)
}

/// Parses requirements of every ecosystem between commas, as `pandas,npm:lodash@4`: those of npm begin with `npm:`, all others
/// are Python's. Returns them in order, each once, those of an ecosystem together.
///
/// # Errors
/// If one is none, or there are too many.
pub fn parse_mixed_list(text: &str) -> Result<Vec<Requirement>, ParseRequirementError> {
    let all = parts(Ecosystem::Python, text)?;
    for of_one in all.chunk_by(|one, other| one.ecosystem == other.ecosystem) {
        check_list(of_one[0].ecosystem, of_one)?;
    }
    Ok(all)
}

/// Parses requirements between commas. One of npm may begin with `npm:`.
fn parts(ecosystem: Ecosystem, text: &str) -> Result<Vec<Requirement>, ParseRequirementError> {
    if text.len() > MAX_LIST {
        return Err(ParseRequirementError::Long(text.len()));
    }
    let mut all = (ecosystem.facts().split)(text)
        .iter()
        .map(|part| part.trim_matches(' '))
        .filter(|part| !part.is_empty())
        .map(|part| match part.strip_prefix(NPM_PREFIX) {
            Some(part) => Requirement::parse(Ecosystem::Npm, part),
            None => Requirement::parse(ecosystem, part),
        })
        .collect::<Result<Vec<_>, _>>()?;
    all.sort();
    all.dedup();
    match all.len() {
        0 => Err(ParseRequirementError::Empty(ecosystem)),
        1..=MAX_REQUIREMENTS => Ok(all),
        many => Err(ParseRequirementError::Many(many)),
    }
}

/// Rejects packages of another ecosystem, and a package of npm that is named twice: npm would take either. pip looks for a
/// version that fits both.
///
/// # Errors
/// If there is such a package.
pub fn check_list(ecosystem: Ecosystem, all: &[Requirement]) -> Result<(), ParseRequirementError> {
    if let Some(found) = all.iter().find(|found| found.ecosystem != ecosystem) {
        return Err(ParseRequirementError::Mixed {
            found: found.clone(),
            expected: ecosystem,
        });
    }
    let mut others = all.iter().enumerate();
    let twice = others.find(|(at, one)| all[..*at].iter().any(|other| other.name == one.name));
    match twice {
        Some((_, one)) if ecosystem == Ecosystem::Npm => Err(ParseRequirementError::Twice(one.name.clone())),
        Some(_) | None => Ok(()),
    }
}

/// Returns the beginning of a stranger's text for a message, with control characters escaped.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    short.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_have_packages_of_two_ecosystems() {
        let found =
            parse_mixed_list("npm:lodash@>= 4, pandas >=2 ,<3,npm:@scope/name , Pandas<3,>=2").unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.ecosystem(), one.to_string()))
            .collect();
        assert_eq!(
            shown,
            [
                (Ecosystem::Python, "pandas<3,>=2".to_owned()),
                (Ecosystem::Npm, "@scope/name".to_owned()),
                (Ecosystem::Npm, "lodash@>=4".to_owned()),
            ]
        );
        let refused = |text: &str| parse_mixed_list(text).unwrap_err().to_string();
        for (text, why) in [
            ("lodash@4", "is written as for npm; for Python write `lodash==4`"),
            (
                "npm:./lodash",
                "names a place; packages come from the registry alone",
            ),
            ("npm:a@1,npm:a@2", "`a` is named twice"),
            ("npm:npm:a", "names a place"),
            (" , ", "the list of packages is empty"),
        ] {
            assert!(refused(text).contains(why), "{text}: {}", refused(text));
        }
        let mixed = parse_list(Ecosystem::Python, "npm:lodash").unwrap_err();
        assert_eq!(
            mixed.to_string(),
            "`lodash` is a package for javascript, and only those for python work here"
        );
        assert_eq!(
            parse_list(Ecosystem::Npm, "npm:lodash"),
            parse_list(Ecosystem::Npm, "lodash")
        );
    }
}
