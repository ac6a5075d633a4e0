//! Metadata of files, which clients send with a file and read with its description.
//!
//! They are the server's and lie beside the sandbox, by the identities of its files: programs neither set nor read them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, StatusCode};
use ringfence_sandbox::files::{FileIdentity, Written};

use crate::error::Error;

const PREFIX: &str = "x-metadata-";
/// Prefix of the extended attributes that E2B has for them: it counts as part of each name.
const NAMESPACE: usize = "user.e2b.".len();
/// Longest name.
const MAX_NAME: usize = 255 - NAMESPACE;
/// Maximum number of bytes for a file.
const MAX_OF_FILE: usize = 4096;
/// Maximum number of bytes for a sandbox.
const MAX_BYTES: usize = 1024 * 1024;
/// Size of the record of a file, and of each of its names.
const RECORD: usize = 128;

/// The metadata of one file, or of all that are sent at a time.
pub(super) type Metadata = BTreeMap<String, String>;

/// The metadata of the files of a sandbox.
#[derive(Debug, Default)]
pub(crate) struct FileMetadata(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    all: BTreeMap<FileIdentity, Arc<Metadata>>,
    /// Size of all of them.
    bytes: usize,
}

/// Returns the metadata that a request has for the files it sends.
///
/// # Errors
/// If there is too much of it, or a value is no printable ASCII.
pub(super) fn of_request(headers: &HeaderMap) -> Result<Metadata, Error> {
    let mut metadata = Metadata::new();
    let mut length = 0;
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(PREFIX) else {
            continue;
        };
        // Of several values the first counts.
        let value = headers.get(name).map_or(&b""[..], |value| value.as_bytes());
        let is_text = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
        if key.is_empty() || key.len() > MAX_NAME || !is_text {
            return Err(Error::invalid(format!(
                "metadata of files have names of 1 to {MAX_NAME} bytes, and values of printable ASCII"
            )));
        }
        length += NAMESPACE + key.len() + value.len();
        metadata.insert(key.to_owned(), String::from_utf8_lossy(value).into_owned());
    }
    match length > MAX_OF_FILE {
        true => Err(Error::invalid(format!(
            "the metadata of a file have at most {MAX_OF_FILE} bytes, found {length}"
        ))),
        false => Ok(metadata),
    }
}

impl FileMetadata {
    /// Checks that there is room for the metadata of one more file.
    pub(super) fn check_room(&self, metadata: &Metadata) -> Result<(), Error> {
        match !metadata.is_empty() && self.lock().bytes + size(metadata) > MAX_BYTES {
            true => Err(Error::new(
                StatusCode::INSUFFICIENT_STORAGE,
                format!(
                    "the metadata of a sandbox's files have at most {} KiB: replace files that have some, or send this one without",
                    MAX_BYTES / 1024
                ),
            )),
            false => Ok(()),
        }
    }

    /// Keeps the metadata of a file that was stored, and forgets those of the one it replaced.
    pub(super) fn store(&self, written: &Written, metadata: &Metadata) -> Result<(), Error> {
        let mut records = self.lock();
        if let Some(replaced) = &written.replaced {
            records.remove(replaced);
        }
        if metadata.is_empty() {
            return Ok(());
        }
        let identity = written.entry.identity.ok_or_else(|| {
            Error::not_supported(
                "metadata of files on a file system that does not know when files were created",
                "the file is stored without them",
            )
        })?;
        records.remove(&identity);
        records.bytes += size(metadata);
        records.all.insert(identity, Arc::new(metadata.clone()));
        Ok(())
    }

    /// Returns the metadata of a file.
    pub(super) fn of(&self, identity: Option<FileIdentity>) -> Option<Arc<Metadata>> {
        self.lock().all.get(&identity?).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records {
    fn remove(&mut self, identity: &FileIdentity) {
        let removed = self.all.remove(identity);
        self.bytes -= removed.map_or(0, |metadata| size(&metadata));
    }
}

fn size(metadata: &Metadata) -> usize {
    let names = metadata.iter();
    RECORD
        + names
            .map(|(key, value)| RECORD + key.len() + value.len())
            .sum::<usize>()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use ringfence_sandbox::files::{Entry, EntryType};

    use super::*;

    fn request(pairs: &[(&str, &str)]) -> Result<Metadata, StatusCode> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        of_request(&headers).map_err(|error| error.status())
    }

    fn written(inode: u64, replaced: Option<u64>) -> Written {
        let identity = |inode| FileIdentity {
            device: 1,
            inode,
            created: 1,
        };
        Written {
            entry: Entry {
                name: "a".to_owned(),
                path: "/a".to_owned(),
                kind: EntryType::File,
                size: 0,
                mode: 0o644,
                uid: 1000,
                gid: 1000,
                modified: 0,
                target: None,
                lossy: false,
                unreadable: false,
                identity: Some(identity(inode)),
            },
            replaced: replaced.map(identity),
        }
    }

    #[test]
    fn names_are_lower_case_and_sizes_limited() {
        let found = request(&[
            ("X-Metadata-Author", "a b"),
            ("Other", "x"),
            ("X-Metadata-author", "c"),
        ]);
        assert_eq!(
            found,
            Ok(Metadata::from([("author".to_owned(), "a b".to_owned())]))
        );
        assert_eq!(request(&[]), Ok(Metadata::new()));
        let long = format!("X-Metadata-{}", "n".repeat(MAX_NAME + 1));
        let refused = Err(StatusCode::BAD_REQUEST);
        assert_eq!(request(&[("X-Metadata-", "x")]), refused);
        assert_eq!(request(&[(&long, "x")]), refused);
        assert_eq!(request(&[("X-Metadata-a", "ü")]), refused);
        assert_eq!(request(&[("X-Metadata-a", "\t")]), refused);
        let left = MAX_OF_FILE - NAMESPACE - 1;
        assert!(request(&[("X-Metadata-a", &"v".repeat(left))]).is_ok());
        assert_eq!(request(&[("X-Metadata-a", &"v".repeat(left + 1))]), refused);
    }

    #[test]
    fn metadata_of_replaced_files_are_forgotten_and_all_are_bounded() {
        let kept = FileMetadata::default();
        let one = Metadata::from([("k".to_owned(), "v".repeat(4000))]);
        let mut number = 0;
        while kept.check_room(&one).is_ok() {
            number += 1;
            kept.store(&written(number, None), &one).unwrap();
        }
        assert_eq!(number, 246);
        assert!(kept.check_room(&Metadata::new()).is_ok());
        let of = |number| kept.of(written(number, None).entry.identity).is_some();
        kept.store(&written(number + 1, Some(1)), &Metadata::new())
            .unwrap();
        assert!(!of(1) && of(2) && !of(number + 1));
        kept.check_room(&one).unwrap();
        for again in 3..=number {
            kept.store(&written(again, Some(again)), &Metadata::new())
                .unwrap();
        }
        kept.store(&written(2, None), &one).unwrap();
        let records = kept.lock();
        assert_eq!((records.all.len(), records.bytes), (1, size(&one)));
    }
}
