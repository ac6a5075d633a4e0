//! Passes a seccomp filter to an engine: to Docker in the request, to Podman as a file.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use super::spec::Filter;

/// The form in which an engine takes filters.
#[derive(Debug, Clone)]
pub(super) enum Filters {
    Inline,
    /// Files in this directory.
    Files(PathBuf),
}

impl Filters {
    /// Returns the value for the engine's `seccomp=` option, after writing the file if necessary.
    pub(super) fn place(&self, filter: &Filter) -> io::Result<String> {
        match self {
            Self::Inline => Ok(filter.document().to_owned()),
            Self::Files(directory) => {
                DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                let path = directory.join(format!("seccomp-{}.json", filter.name()));
                let name = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
                // Replaced atomically: the engine never reads a partial file, nor that of another version of
                // ours.
                let fresh = directory.join(format!(".seccomp-{}-{}", filter.name(), std::process::id()));
                if fs::read_to_string(&path).is_ok_and(|text| text == filter.document()) {
                    return Ok(name.to_owned());
                }
                fs::write(&fresh, filter.document())?;
                fs::rename(&fresh, &path)?;
                Ok(name.to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_the_filter() {
        let dir = tempfile::tempdir().unwrap();
        let filter = Filter::named("fence").unwrap();
        let files = Filters::Files(dir.path().join("below"));
        let path = files.place(&filter).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), filter.document());
        fs::write(&path, "{}").unwrap();
        assert_eq!(files.place(&filter).unwrap(), path);
        assert_eq!(fs::read_to_string(&path).unwrap(), filter.document());
        assert_eq!(Filters::Inline.place(&filter).unwrap(), filter.document());
    }
}
