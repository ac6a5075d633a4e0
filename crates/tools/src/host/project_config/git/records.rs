//! Files that git keeps in a repository, and by which it reads others: links, alternates, nested repositories.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::is_there;

/// Maximum number of entries of a repository that are examined.
const MAX_ENTRIES: usize = 100_000;
/// Maximum size of an index that is read.
const MAX_INDEX: u64 = 64 << 20;

/// Returns the first file by which git could read outside the repository: alternates, an index with nested
/// repositories, or a symbolic link. Searches `own`, the directory of a `.git`, and `home`, the directory
/// with its settings. Git prints lines that it cannot parse, and runs itself in nested repositories whatever
/// their settings.
pub(super) fn unclear(own: &Path, home: &Path, hash: usize) -> Option<PathBuf> {
    let alternates = home.join("objects/info/alternates");
    if is_there(&alternates) {
        return Some(alternates);
    }
    let index = own.join("index");
    if is_there(&index) && !read(&index).is_some_and(|index| is_flat(&index, hash)) {
        return Some(index);
    }
    let mut left = MAX_ENTRIES;
    let more = (own != home).then_some(own);
    [Some(home), more]
        .into_iter()
        .flatten()
        .find_map(|directory| linked(directory, &mut left))
}

/// Returns the first entry that is neither a file nor a directory, cannot be read, or exceeds the limit of
/// entries.
fn linked(top: &Path, left: &mut usize) -> Option<PathBuf> {
    let mut pending = vec![top.to_path_buf()];
    while let Some(directory) = pending.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            return Some(directory);
        };
        for entry in entries {
            let Ok(entry) = entry else { return Some(directory) };
            let path = entry.path();
            *left = left.saturating_sub(1);
            let Some(kind) = entry.file_type().ok().filter(|_| *left > 0) else {
                return Some(path);
            };
            if kind.is_dir() {
                // Hooks are run, and objects parsed: neither is shown as it is.
                let below = path.strip_prefix(top).unwrap_or(&path);
                let is_object = below.parent() == Some(Path::new("objects"))
                    && !below.ends_with("info")
                    && !below.ends_with("pack");
                pending.extend((below != Path::new("hooks") && !is_object).then_some(path));
            } else if !kind.is_file() {
                return Some(path);
            }
        }
    }
    None
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_INDEX {
        return None;
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(MAX_INDEX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_INDEX).then_some(bytes)
}

/// Returns `true` if an index has only files and symbolic links, no nested repository, and no extension that
/// refers to another index.
fn is_flat(index: &[u8], hash: usize) -> bool {
    entries(index, hash).is_some_and(|extensions| are_known(extensions, hash))
}

/// Skips the entries. `None` if one is a nested repository or a directory, or cannot be read.
fn entries(index: &[u8], hash: usize) -> Option<&[u8]> {
    let number = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?));
    let rest = index.strip_prefix(b"DIRC")?;
    let version = number(rest)?;
    let count = number(rest.get(4..)?)?;
    let mut rest = rest.get(8..)?;
    for _ in 0..count {
        const MODE: usize = 24;
        let fixed = 40 + hash + 2;
        let mode = number(rest.get(MODE..)?)?;
        // Regular files and symbolic links.
        if !matches!(mode >> 12, 0o10 | 0o12) {
            return None;
        }
        let is_extended = *rest.get(fixed - 2)? & 0x40 != 0;
        let start = fixed + if is_extended { 2 } else { 0 };
        let mut name = rest.get(start..)?;
        if version == 4 {
            // How much of the name before to drop, in bytes of seven bits.
            let length = name.iter().position(|byte| byte & 0x80 == 0)?;
            name = name.get(length + 1..)?;
        }
        let length = name.iter().position(|byte| *byte == 0)?;
        rest = match version {
            2 | 3 => rest.get((start + length + 8) & !7..)?,
            4 => name.get(length + 1..)?,
            _ => return None,
        };
    }
    Some(rest)
}

/// Returns `true` if no extension takes entries from another file, or holds directories.
fn are_known(mut rest: &[u8], hash: usize) -> bool {
    const KNOWN: &[&[u8]] = &[b"TREE", b"REUC", b"UNTR", b"FSMN", b"EOIE", b"IEOT"];
    while rest.len() > hash {
        let Some((head, body)) = rest.split_at_checked(8) else {
            return false;
        };
        let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let Some(next) = body.get(length as usize..) else {
            return false;
        };
        if !KNOWN.contains(&&head[..4]) {
            return false;
        }
        rest = next;
    }
    rest.len() == hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[expect(clippy::disallowed_methods, reason = "git itself writes what is read here")]
    fn git(directory: &Path, words: &[&str]) {
        let status = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b.invalid"])
            .args(words)
            .current_dir(directory)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(status.status.success(), "{words:?}: {status:?}");
    }

    #[test]
    fn an_index_with_a_nested_repository_is_told_in_each_version() {
        for (version, format) in [
            ("2", "sha1"),
            ("3", "sha1"),
            ("4", "sha1"),
            ("4", "sha256"),
            ("2", "sha256"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let top = dir.path();
            git(top, &["init", "-q", "--object-format", format]);
            for name in ["a", "ab", "sub-x/deep/file", "x y"] {
                fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
                fs::write(top.join(name), name).unwrap();
            }
            symlink("a", top.join("link")).unwrap();
            git(top, &["config", "index.version", version]);
            git(top, &["add", "."]);
            if version == "3" {
                fs::write(top.join("later"), "").unwrap();
                git(top, &["add", "-N", "later"]);
            }
            let hash = if format == "sha256" { 32 } else { 20 };
            let index = || is_flat(&fs::read(top.join(".git/index")).unwrap(), hash);
            assert!(index(), "{version} {format}");
            git(top, &["update-index", "--index-version", version]);
            git(top, &["commit", "-qm", "x"]);
            git(top, &["status"]);
            assert!(index(), "{version} {format}");
            git(top, &["init", "-q", "--object-format", format, "sub"]);
            git(&top.join("sub"), &["commit", "-q", "--allow-empty", "-m", "x"]);
            git(top, &["add", "sub"]);
            assert!(!index(), "{version} {format}");
            git(top, &["rm", "-qf", "--cached", "sub"]);
            assert!(index(), "{version} {format}");
            git(top, &["update-index", "--split-index"]);
            assert!(!index(), "{version} {format}");
        }
        assert!(!is_flat(b"DIRC", 20));
        assert!(!is_flat(b"", 20));
    }

    #[test]
    fn records_that_lead_elsewhere_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join(".git");
        git(dir.path(), &["init", "-q"]);
        fs::write(dir.path().join("a"), "x").unwrap();
        git(dir.path(), &["add", "."]);
        git(dir.path(), &["commit", "-qm", "x"]);
        assert_eq!(unclear(&store, &store, 20), None);
        for name in [
            "BISECT_LOG",
            "packed-refs",
            "shallow",
            "info/sparse-checkout",
            "info/attributes",
            "info/grafts",
            "objects/info/commit-graph",
            "refs/heads/x",
            "logs/refs/x",
        ] {
            let path = store.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink("/etc/hostname", &path).unwrap();
            assert_eq!(unclear(&store, &store, 20), Some(path.clone()), "{name}");
            fs::remove_file(path).unwrap();
        }
        fs::write(store.join("objects/info/alternates"), "/x\n").unwrap();
        assert!(unclear(&store, &store, 20).is_some());
        fs::remove_file(store.join("objects/info/alternates")).unwrap();
        assert_eq!(unclear(&store, &store, 20), None);
    }
}
