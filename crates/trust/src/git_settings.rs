//! Reads the paths that a git settings file names.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Maximum size of the list of users that is read.
const MAX_USERS: u64 = 1 << 20;

/// A path in a settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Setting {
    /// The value of a key `path`: of another settings file (`include`, `includeIf`), or of a tool.
    Path(PathBuf),
    /// Directory of hooks (`core.hooksPath`).
    Hooks(PathBuf),
    /// A path below the home directory of a user who is not known here, but may be to git.
    Unknown(PathBuf),
}

/// Returns the paths of settings in any section.
pub(super) fn settings(text: &[u8]) -> Vec<Setting> {
    let mut found = Vec::new();
    let mut rest = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    while let Some((first, more)) = rest.split_first() {
        match first {
            b'[' => rest = after_section(more),
            b'#' | b';' => rest = after(rest, |byte| byte == b'\n'),
            first if first.is_ascii_alphabetic() => {
                let end = rest
                    .iter()
                    .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-');
                let (key, more) = rest.split_at(end.unwrap_or(rest.len()));
                let blank = more.iter().position(|byte| !b" \t\r".contains(byte));
                let more = &more[blank.unwrap_or(more.len())..];
                let Some(more) = more.strip_prefix(b"=") else {
                    rest = more;
                    continue;
                };
                let (value, more) = value(more);
                rest = more;
                let is_hooks = key.eq_ignore_ascii_case(b"hookspath");
                if is_hooks || key.eq_ignore_ascii_case(b"path") {
                    let path = PathBuf::from(OsString::from_vec(value));
                    found.push(match expanded(&path) {
                        None => Setting::Unknown(path),
                        Some(path) if is_hooks => Setting::Hooks(path),
                        Some(path) => Setting::Path(path),
                    });
                }
            }
            _ => rest = more,
        }
    }
    found
}

/// Returns the text after a section's header. A quoted name in the header may contain brackets.
fn after_section(text: &[u8]) -> &[u8] {
    let (mut quoted, mut escaped) = (false, false);
    after(text, |byte| {
        let ends = byte == b'\n' || (byte == b']' && !quoted);
        quoted ^= byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

/// Returns the text after the first byte that `ends` accepts.
fn after(text: &[u8], ends: impl FnMut(u8) -> bool) -> &[u8] {
    let end = text.iter().copied().position(ends);
    &text[end.map_or(text.len(), |end| end + 1)..]
}

/// Reads a value to the end of its line: without quotes, comments and blanks around it, with escapes and
/// continued lines resolved.
fn value(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let (mut value, mut quoted, mut length) = (Vec::new(), false, 0);
    let mut bytes = text.iter().copied().enumerate();
    let mut end = text.len();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\n' => {
                end = at + 1;
                break;
            }
            b'#' | b';' if !quoted => {
                end = text.len() - after(&text[at..], |byte| byte == b'\n').len();
                break;
            }
            b'"' => {
                quoted = !quoted;
                length = length.max(value.len());
            }
            b'\\' => {
                match bytes.next() {
                    Some((_, b'\n')) | None => {}
                    // A line that ends as on Windows.
                    Some((at, b'\r')) if text.get(at + 1) == Some(&b'\n') => drop(bytes.next()),
                    Some((_, b'n')) => value.push(b'\n'),
                    Some((_, b't')) => value.push(b'\t'),
                    Some((_, other)) => value.push(other),
                }
                length = value.len();
            }
            b' ' | b'\t' | b'\r' if !quoted => {
                if length > 0 {
                    value.push(byte);
                }
            }
            byte => {
                value.push(byte);
                length = value.len();
            }
        }
    }
    value.truncate(length);
    (value, &text[end..])
}

/// Replaces a leading `~` or `~USER` by the home directory; `None` if that is not known.
fn expanded(path: &Path) -> Option<PathBuf> {
    let mut components = path.components();
    let Some(Component::Normal(first)) = components.next() else {
        return Some(path.to_owned());
    };
    let home = match first.as_bytes().strip_prefix(b"~") {
        None => return Some(path.to_owned()),
        Some(b"") => std::env::home_dir()?,
        Some(user) => home_of(user)?,
    };
    Some(home.join(components.as_path()))
}

/// Returns the home directory of a user of this machine.
fn home_of(user: &[u8]) -> Option<PathBuf> {
    let mut users = Vec::new();
    let file = File::open("/etc/passwd").ok()?;
    file.take(MAX_USERS).read_to_end(&mut users).ok()?;
    let mut homes = users.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        (fields.next()? == user).then(|| fields.nth(4))?
    });
    let home = homes.next()?;
    Some(PathBuf::from(OsString::from_vec(home.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_however_they_are_written() {
        let home = std::env::home_dir().unwrap().display().to_string();
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<PathBuf> = settings(text.as_bytes())
                .into_iter()
                .map(|setting| match setting {
                    Setting::Path(path) | Setting::Hooks(path) | Setting::Unknown(path) => path,
                })
                .collect();
            assert_eq!(
                found,
                expected.iter().map(PathBuf::from).collect::<Vec<_>>(),
                "{text:?}"
            );
        };
        check("[include]\n\tpath = ../a\n", &["../a"]);
        check("[include] path=a", &["a"]);
        check("[includeIf \"gitdir:]\\\"/x\"]\r\n PATH = a b \r\n", &["a b"]);
        check("[include]\npath = \"a # b\" # c\npath = d ; e", &["a # b", "d"]);
        check("[include]\npath = a\\\n/b\n", &["a/b"]);
        check("[include]\npath = a\\\\b\n[core]hooksPath=h", &["a\\b", "h"]);
        check("\u{feff}[core]\n\tbare\n\thooksPath = scripts\n", &["scripts"]);
        check("# path = a\n[core]\n; path = b\n\tpathx = c\n\tx-path = d\n", &[]);
        check("[core]\n\tfsmonitor = path = a\n", &[]);
        check("[a][include]path=\"x\"y\n", &["xy"]);
        check("[include]path=./~root/x\npath=~", &["./~root/x", &home]);
    }

    #[test]
    fn homes_of_users_are_known() {
        let root = home_of(b"root").unwrap();
        let one = |text: &str| settings(text.as_bytes());
        assert_eq!(one("[include]path=~root/x"), [Setting::Path(root.join("x"))]);
        assert_eq!(one("[core]hooksPath = ~root"), [Setting::Hooks(root)]);
        for text in ["path=~nobody-at-all/x", "hooksPath = \"~nobody-at-all/x\""] {
            assert_eq!(one(text), [Setting::Unknown("~nobody-at-all/x".into())]);
        }
    }
}
