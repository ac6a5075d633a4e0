//! Glob expansion, as a shell does it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The paths that a glob matches.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// The matching paths, up to the requested number.
    pub paths: Vec<PathBuf>,
    /// Set if there are more, or may be.
    pub truncated: bool,
}

/// Returns the paths that a glob matches, at most `most`; a path without a glob is returned unchanged.
pub fn expand(path: &Path, most: usize) -> Expanded {
    let mut found = vec![PathBuf::new()];
    let mut truncated = false;
    for part in path.components() {
        let is_pattern = matches!(part, Component::Normal(name) if name.as_bytes().iter().any(|byte| b"*?[".contains(byte)));
        if !is_pattern {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let pattern = part.as_os_str().as_bytes();
        let below = found.iter().flat_map(|directory| names(directory, pattern));
        found = below.take(most.saturating_add(1)).collect();
        if found.len() > most {
            truncated = true;
            found.truncate(most);
        }
    }
    Expanded {
        paths: found,
        truncated,
    }
}

fn names(directory: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let fits = entries.filter(|entry| {
        let name = entry.file_name();
        // A dot file needs an explicit dot.
        let hidden = name.as_bytes().starts_with(b".") && !matches!(pattern.first(), Some(b'.' | b'['));
        !hidden && matches(pattern, name.as_bytes())
    });
    fits.map(|entry| entry.path()).collect()
}

/// Returns `true` if a name can match a glob.
///
/// A bracket may stand for itself, as in quotes, or begin a set of any characters that any later bracket
/// closes: `[]e]`, `[[:alpha:]]`. Examining too many files does no harm.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Positions in the name that the glob up to here can match, and those behind a character of an open set.
    let mut reached = vec![false; name.len() + 1];
    let mut set = reached.clone();
    reached[0] = true;
    for sign in pattern {
        let mut next = vec![false; name.len() + 1];
        if *sign == b'*' {
            let first = reached.iter().position(|reached| *reached);
            let first = first.unwrap_or(name.len() + 1);
            next.iter_mut().skip(first).for_each(|place| *place = true);
        }
        for place in 0..name.len() {
            next[place + 1] |= reached[place] && (*sign == b'?' || name[place] == *sign);
            set[place + 1] |= reached[place] && *sign == b'[';
        }
        if *sign == b']' {
            next.iter_mut().zip(&set).for_each(|(next, set)| *next |= set);
        }
        reached = next;
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_what_lies_there() {
        for (pattern, name, fits) in [
            ("*.sh", "a.sh", true),
            ("*.sh", ".sh", true),
            ("?.sh", "ab.sh", false),
            ("[ab]x", "ax", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "acb", false),
            ("*", "", true),
            ("a", "b", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                fits,
                "{pattern} {name}"
            );
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.sh", "b.sh", ".c.sh", "d"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let names = |pattern: &str| {
            let mut found = expand(&dir.path().join(pattern), 10).paths;
            found.sort();
            found
                .iter()
                .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("*.sh"), ["a.sh", "b.sh"]);
        assert_eq!(names(".*.sh"), [".c.sh"]);
        assert_eq!(names("none"), ["none"]);
        let few = |pattern: &str, most: usize| {
            let found = expand(&dir.path().join(pattern), most);
            (found.paths.len(), found.truncated)
        };
        assert_eq!(few("*", 2), (2, true));
        assert_eq!(few("*", 3), (3, false));
        assert_eq!(few("*/x", 9), (3, false));
        assert_eq!(few("*/x*", 2), (0, true));
        assert_eq!(few("none", 0), (1, false));
    }

    /// No path that bash opens is left unexamined, however odd the pattern.
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "bash itself says what a pattern stands for"
    )]
    fn no_path_of_bash_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "e",
            "ee",
            "e]",
            "[e]",
            "]e",
            "a-e",
            "-e",
            "[",
            "]",
            "a",
            ".env",
            ".e",
            "[[:alpha:]]nv",
            "^e",
            "!e",
        ];
        for name in names {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let signs = ["[", "]", "e", "[:alpha:]", "[=e=]", "!", "^", "-", "*", "?", "."];
        // Numbers without order, the same in each run.
        let mut state: u32 = 7;
        let mut next = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        let mut patterns: Vec<String> = [
            ".[[:alpha:]]nv",
            ".[]e]nv",
            ".[[=e=]]nv",
            "[]]*",
            "[!]a]",
            "[e",
            "[[.e.]]",
        ]
        .map(str::to_owned)
        .into();
        patterns.extend((0..600).map(|_| (0..1 + next(6)).map(|_| signs[next(signs.len())]).collect()));
        let script: String = patterns
            .iter()
            .map(|pattern| format!("printf '%s\\0' {pattern}; printf '\\0'\n"))
            .collect();
        let mut bash = std::process::Command::new("/bin/bash");
        let output = bash
            .args(["--noprofile", "--norc", "-c", &script])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let all: Vec<&str> = text.split("\0\0").collect();
        assert_eq!(
            all.len(),
            patterns.len() + 1,
            "{:?}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut opened = 0;
        for (pattern, found) in patterns.iter().zip(all) {
            let examined = expand(&dir.path().join(pattern), 100).paths;
            for name in found.split('\0').filter(|name| names.contains(name)) {
                opened += 1;
                assert!(
                    examined.contains(&dir.path().join(name)),
                    "{pattern} opens {name}"
                );
            }
        }
        assert!(opened > 100, "{opened}");
    }
}
