//! Denies changes to names that a program on the host takes for its configuration and executes.

pub use ringfence_policy::PROTECTED;

use std::ffi::OsStr;

/// Names of compiled Python code.
const BYTECODE: [&str; 2] = ["__pycache__", "*.pyc"];

/// Paths that may be read and listed, but not written, created, deleted or replaced, at any depth.
#[derive(Debug, Clone)]
pub struct Protected {
    /// Normalized names of each path.
    paths: Vec<Vec<String>>,
}

impl Protected {
    /// Protects these paths, each a name or several joined by `/`, with everything below. A name that begins
    /// with `*` matches every name with that suffix.
    pub fn new<S: AsRef<str>>(paths: impl IntoIterator<Item = S>) -> Self {
        let folded = |path: S| {
            path.as_ref()
                .split('/')
                .map(fold)
                .filter(|name| !name.is_empty())
                .collect()
        };
        let paths = paths
            .into_iter()
            .map(folded)
            .filter(|path: &Vec<_>| !path.is_empty());
        Self {
            paths: paths.collect(),
        }
    }

    /// Returns the default list: version control, editors, agents, shells, package managers and Ringfence.
    pub fn standard() -> Self {
        Self::new(PROTECTED)
    }

    /// Protects these paths and compiled code, which Python loads in place of the source beside it.
    pub fn with_bytecode<S: AsRef<str>>(paths: impl IntoIterator<Item = S>) -> Self {
        let mut protected = Self::new(paths);
        protected.paths.extend(Self::new(BYTECODE).paths);
        protected
    }

    /// Returns the shortest beginning of a path that ends with a protected one, and has more than `above` names.
    pub fn beginning<'a, S: AsRef<OsStr>>(&self, names: &'a [S], above: usize) -> Option<&'a [S]> {
        let ends = above + 1..=names.len();
        ends.map(|end| &names[..end])
            .find(|beginning| self.ends(beginning))
    }

    /// Returns `true` if a path ends with a protected one.
    pub fn ends(&self, names: &[impl AsRef<OsStr>]) -> bool {
        let longest = self.paths.iter().map(Vec::len).max().unwrap_or_default();
        let tail: Vec<String> = names[names.len().saturating_sub(longest)..]
            .iter()
            .map(|name| fold(&name.as_ref().to_string_lossy()))
            .collect();
        self.paths.iter().any(|path| {
            tail.len() >= path.len()
                && std::iter::zip(&tail[tail.len() - path.len()..], path).all(|(name, path)| same(name, path))
        })
    }

    /// Returns `true` if a name is spelled like a protected one, and does not match merely by a pattern or
    /// another spelling.
    pub fn names(&self, name: &OsStr) -> bool {
        let is_written = |path: &Vec<String>| matches!(&path[..], [only] if name.eq_ignore_ascii_case(only));
        self.paths.iter().any(is_written)
    }
}

/// Normalizes a name as the most lenient file system compares it: ignores case, invisible characters, full
/// width, trailing dots and spaces, and the name of an NTFS stream.
fn fold(name: &str) -> String {
    let name = name.split(':').next().unwrap_or_default();
    let folded: String = name
        .chars()
        .filter(|c| !unseen(*c))
        .map(narrow)
        // Upper case first: some letters, such as the long s, only map to their plain form that way.
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect();
    folded.trim_end_matches(['.', ' ']).to_owned()
}

/// Returns `true` for characters that file systems ignore when they compare names.
fn unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Converts a full-width character to its ASCII form.
fn narrow(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        '\u{2024}' => '.',
        c => c,
    }
}

/// Returns `true` if two normalized names are equal, or `name` is the short form (`git~1`) that FAT and NTFS
/// have for `protected`.
fn same(name: &str, protected: &str) -> bool {
    if let Some(end) = protected.strip_prefix('*') {
        return name.ends_with(end);
    }
    if name == protected {
        return true;
    }
    let Some((start, number)) = name.split_once('~') else {
        return false;
    };
    let number = number.split('.').next().unwrap_or_default();
    let whole = protected.trim_start_matches('.');
    !start.is_empty()
        && !number.is_empty()
        && number.chars().all(|c| c.is_ascii_digit())
        && whole.replace('.', "").starts_with(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        Protected::standard().ends(&names)
    }

    #[test]
    fn the_packages_have_the_same_list() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/");
        for file in [
            "python/src/ringfence/_protected.py",
            "typescript/src/protected.js",
        ] {
            let text = std::fs::read_to_string(format!("{root}{file}")).unwrap();
            let quoted = text
                .lines()
                .filter_map(|line| line.trim().strip_prefix('"')?.split('"').next());
            assert_eq!(quoted.collect::<Vec<_>>(), PROTECTED, "{file}");
        }
    }

    #[test]
    fn a_path_is_protected_below_a_protected_one() {
        let copied = Protected::with_bytecode(PROTECTED);
        let beginning = |names: &'static [&str], above| copied.beginning(names, above).map(<[_]>::len);
        assert_eq!(beginning(&["a", ".git", "hooks", ".envrc"], 0), Some(2));
        assert_eq!(beginning(&["a", ".git", "hooks", ".envrc"], 2), Some(4));
        assert_eq!(beginning(&["a", "b.pyc"], 0), Some(2));
        assert_eq!(beginning(&["git", "pyc"], 0), None);
    }

    #[test]
    fn a_name_is_protected_however_it_is_written() {
        for path in [
            ".git",
            "a/b/.git",
            ".GIT",
            ".gIt",
            ".git.",
            ".git ",
            ".git. .",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".gi\u{fe0f}t",
            ".g\u{ad}it",
            ".\u{e0001}git",
            "\u{ff0e}\u{ff47}it",
            ".g\u{131}t",
            ".v\u{17f}code",
            ".hus\u{212a}y",
            "\u{17f}itecu\u{fb06}omize.py",
            "GIT~1",
            "git~12",
            "ENVRC~1",
            "RINGFE~1.TOM",
            ".git::$INDEX_ALLOCATION",
            ".git\u{1}",
            "RingFence.TOML",
            "tests/conftest.py",
            ".venv",
            "a/VENV",
            "lib/site-packages/a.pth",
            "a.PTH.",
            ".pth",
        ] {
            assert!(ends(path), "{path:?}");
        }
    }

    #[test]
    fn other_names_are_free() {
        for path in [
            "git",
            ".gitignore",
            ".github",
            "a.git.txt",
            ".git/x",
            "profile",
            "notes~1.txt",
            "~",
            "a~",
            "~1",
            "日本語",
            "conftest.txt",
            "pth",
            "a.pth.txt",
            ".venvs",
            ".",
            "a:b",
            "ſ",
        ] {
            assert!(!ends(path), "{path:?}");
        }
    }

    #[test]
    fn a_path_of_several_names_is_protected_as_a_whole() {
        let protected = Protected::new([".github/workflows/", "/x", ""]);
        assert!(protected.ends(&["a", ".GitHub", "workflows"]));
        assert!(protected.ends(&["x"]));
        assert!(!protected.ends(&["workflows"]));
        assert!(!protected.ends(&[".github"]));
        assert!(!protected.ends(&[] as &[&str]));
    }
}
