//! The environment, read once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The variables of the process as they were at its start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The variables of this process.
    pub(crate) fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// The names that are text.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().filter_map(|name| name.to_str())
    }

    /// All variables as text, U+FFFD standing for what is none: output is read in the same way, so that a secret
    /// which is not text is still found in it.
    pub(crate) fn lossy_pairs(&self) -> impl Iterator<Item = (String, String)> {
        let lossy = |text: &OsString| text.to_string_lossy().into_owned();
        self.0
            .iter()
            .map(move |(name, value)| (lossy(name), lossy(value)))
    }

    /// A variable's value; an empty one counts as unset.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// A variable's value, if it is text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str)
    }

    /// A variable that names a directory; a relative one is ignored, as the XDG specification wants.
    pub(crate) fn directory(&self, name: &str) -> Option<PathBuf> {
        self.get(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Environment {
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
