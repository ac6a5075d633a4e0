//! Extended attributes of files (xattr(7)) in the namespace `user`.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sys;

/// Maximum length of all names and values of a file together, in bytes.
pub const MAX_ATTRIBUTES: usize = 4096;

const NAMESPACE: &str = "user.";

/// Returns the attributes of a regular file or directory as far as they are UTF-8 and not too long, by their names
/// without `user.`. A file system without attributes has none.
pub(super) fn attributes(path: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return found;
    };
    let mut buffer = [0; 2 * MAX_ATTRIBUTES];
    let Ok(length) = sys::list_attributes(&path, &mut buffer) else {
        return found;
    };
    let mut left = MAX_ATTRIBUTES;
    for full in buffer[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = std::ffi::CStr::from_bytes_with_nul(full) else {
            continue;
        };
        let Some(own) = name.to_str().ok().and_then(|text| text.strip_prefix(NAMESPACE)) else {
            continue;
        };
        let mut value = vec![0; left.saturating_sub(own.len())];
        // Fails if the value is longer.
        let Ok(length) = sys::attribute(&path, name, &mut value) else {
            continue;
        };
        value.truncate(length);
        if let Ok(value) = String::from_utf8(value) {
            left -= own.len() + value.len();
            found.insert(own.to_owned(), value);
        }
    }
    found
}

/// Sets attributes of a file, by their names without `user.`.
pub(super) fn set(file: &File, attributes: &BTreeMap<String, String>) -> io::Result<()> {
    for (name, value) in attributes {
        let name = CString::new(format!("{NAMESPACE}{name}"))?;
        sys::set_attribute(file.as_fd(), &name, value.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file on a tmpfs, which has attributes since Linux 6.6.
    fn file() -> tempfile::NamedTempFile {
        tempfile::NamedTempFile::new_in("/dev/shm").unwrap()
    }

    fn some(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn attributes_are_read_as_they_were_set() {
        let file = file();
        assert_eq!(attributes(file.path()), BTreeMap::new());
        let all = some(&[("e2b.author", "mish"), ("empty", ""), ("ü", "é")]);
        set(file.as_file(), &all).unwrap();
        assert_eq!(attributes(file.path()), all);
        set(file.as_file(), &some(&[("empty", "no more")])).unwrap();
        assert_eq!(attributes(file.path())["empty"], "no more");
        assert_eq!(attributes(Path::new("/proc/self")), BTreeMap::new());
        assert_eq!(attributes(Path::new("/missing")), BTreeMap::new());
    }

    #[test]
    fn long_values_and_bytes_are_left_out() {
        let file = file();
        let path = CString::new(file.path().as_os_str().as_bytes()).unwrap();
        sys::set_attribute(file.as_file().as_fd(), c"user.bytes", b"\xff").unwrap();
        let long = "v".repeat(MAX_ATTRIBUTES);
        set(file.as_file(), &some(&[("long", &long), ("short", "kept")])).unwrap();
        let mut names = [0; 64];
        assert_eq!(
            sys::list_attributes(&path, &mut names).unwrap(),
            "user.bytes user.long user.short ".len()
        );
        assert_eq!(attributes(file.path()), some(&[("short", "kept")]));
    }

    #[test]
    fn other_namespaces_are_out_of_reach() {
        let file = file();
        let error = set(file.as_file(), &some(&[("nul\0", "")])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let error = set(file.as_file(), &some(&[(&"n".repeat(300), "")])).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ERANGE));
    }
}
