//! The environment, read once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The variables of the process at its start.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// Reads the variables of this process.
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// Reads only the variables of this process with these names.
    pub fn only(names: &[&str]) -> Self {
        let pairs = names
            .iter()
            .filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
        Self(pairs.collect())
    }

    /// Returns the names that are valid UTF-8.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().filter_map(|name| name.to_str())
    }

    /// Returns all variables as text, with U+FFFD for invalid UTF-8: output is decoded in the same way, so
    /// that the redactor still finds a secret that is not text.
    pub fn lossy_pairs(&self) -> impl Iterator<Item = (String, String)> {
        let lossy = |text: &OsString| text.to_string_lossy().into_owned();
        self.0
            .iter()
            .map(move |(name, value)| (lossy(name), lossy(value)))
    }

    /// Returns a variable's value; an empty one counts as unset.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns a variable's value, if it is valid UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str)
    }

    /// Returns the directory that a variable names; a relative path is ignored, as the XDG specification
    /// requires.
    pub fn directory(&self, name: &str) -> Option<PathBuf> {
        self.get(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    /// Creates an environment of these variables alone.
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_secret_that_is_no_text_is_still_a_secret() {
        let value = OsString::from_vec(b"pass\xffword".to_vec());
        let environment = Environment(BTreeMap::from([("API_TOKEN".into(), value)]));
        let pairs: Vec<_> = environment.lossy_pairs().collect();
        assert_eq!(pairs, [("API_TOKEN".to_owned(), "pass\u{fffd}word".to_owned())]);
    }
}
