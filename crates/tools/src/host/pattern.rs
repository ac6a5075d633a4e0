//! Glob expansion, as a shell does it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Returns the paths that a glob matches, at most `most`; a path without a glob is returned as it is.
///
/// A bracket expression matches any character: examining too many files does no harm.
pub(super) fn expand(path: &Path, most: usize) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in path.components() {
        let is_pattern = matches!(part, Component::Normal(name) if name.as_bytes().iter().any(|byte| b"*?[".contains(byte)));
        if !is_pattern {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let pattern = part.as_os_str().as_bytes();
        let below = found.iter().flat_map(|directory| names(directory, pattern));
        found = below.take(most).collect();
    }
    found
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

/// Returns `true` if a name matches a glob.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Positions in the name that the glob up to here can match.
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    let mut at = 0;
    while let Some(sign) = pattern.get(at) {
        let mut next = vec![false; name.len() + 1];
        match sign {
            b'*' => {
                let first = reached
                    .iter()
                    .position(|reached| *reached)
                    .unwrap_or(name.len() + 1);
                next.iter_mut().skip(first).for_each(|place| *place = true);
            }
            sign => {
                let any = matches!(sign, b'?' | b'[');
                for place in 0..name.len() {
                    next[place + 1] = reached[place] && (any || name[place] == *sign);
                }
                if *sign == b'[' {
                    at += pattern[at..].iter().position(|sign| *sign == b']').unwrap_or(0);
                }
            }
        }
        reached = next;
        at += 1;
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
            let mut found = expand(&dir.path().join(pattern), 10);
            found.sort();
            found
                .iter()
                .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("*.sh"), ["a.sh", "b.sh"]);
        assert_eq!(names(".*.sh"), [".c.sh"]);
        assert_eq!(names("none"), ["none"]);
        assert_eq!(expand(&dir.path().join("*"), 2).len(), 2);
        assert_eq!(expand(&dir.path().join("*/x"), 9).len(), 3);
    }
}
