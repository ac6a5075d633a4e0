//! Converts `file://` URIs to paths.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Returns the path of a `file://` URI of this machine.
pub fn path_of(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = path.split(['?', '#']).next()?;
    let bytes = decoded(path.as_bytes())?;
    let path = PathBuf::from(OsString::from_vec(bytes));
    Some(path).filter(|path| path.is_absolute() && !path.as_os_str().as_encoded_bytes().contains(&0))
}

/// Decodes percent-encoding. `None` if it is invalid.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        bytes.push(match first {
            b'%' => {
                let (digits, after) = tail.split_at_checked(2)?;
                rest = after;
                let digits = std::str::from_utf8(digits).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                u8::from_str_radix(digits, 16).ok()?
            }
            other => *other,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn addresses_of_this_machines_files_are_paths() {
        let check = |uri: &str, expected: Option<&str>| {
            assert_eq!(path_of(uri).as_deref(), expected.map(Path::new), "{uri}");
        };
        check("file:///home/ann/project", Some("/home/ann/project"));
        check("file://localhost/a", Some("/a"));
        check("file:///a%20b/%C3%A9", Some("/a b/é"));
        check("file:///a?x#y", Some("/a"));
        check("file://elsewhere/a", None);
        check("file://localhostile/a", None);
        check("file:relative", None);
        check("file://", None);
        check("http://a/b", None);
        check("file:///a%", None);
        check("file:///a%2", None);
        check("file:///a%+1", None);
        check("file:///a%00b", None);
    }
}
