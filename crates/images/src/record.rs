//! The store's own JSON files, of bounded length.

use std::fs::File;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bounds::read_at_most;

/// Maximum length of a record: the description of an image repeats lists of its configuration, indented.
const MAX_RECORD: u64 = 16 << 20;

/// Reads a record.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let bytes = read_at_most(File::open(path)?, MAX_RECORD)?.ok_or_else(too_long)?;
    serde_json::from_slice(&bytes).map_err(io::Error::from)
}

/// Renders a record, which [`read`] will take.
pub(crate) fn render<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec_pretty(record)?;
    match bytes.len() as u64 > MAX_RECORD {
        true => Err(too_long()),
        false => Ok(bytes),
    }
}

fn too_long() -> io::Error {
    io::Error::other(format!("the record is longer than {MAX_RECORD} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_bounded_when_written_and_when_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        for (length, is_short) in [(MAX_RECORD - 2, true), (MAX_RECORD - 1, false)] {
            let text = "x".repeat(usize::try_from(length).unwrap());
            assert_eq!(render(&text).is_ok(), is_short);
            std::fs::write(&path, format!("\"{text}\"")).unwrap();
            assert_eq!(read::<String>(&path).is_ok(), is_short);
        }
    }
}
