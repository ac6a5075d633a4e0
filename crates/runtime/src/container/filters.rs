//! How an engine is given a filter of system calls: Docker in the request, Podman in a file.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use super::spec::Filter;

/// How an engine is given filters.
#[derive(Debug, Clone)]
pub(super) enum Filters {
    Inline,
    /// As files in this directory.
    Files(PathBuf),
}

impl Filters {
    /// What the engine is told to find the filter by.
    pub(super) fn place(&self, filter: &Filter) -> io::Result<String> {
        match self {
            Self::Inline => Ok(filter.document().to_owned()),
            Self::Files(directory) => {
                DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                let path = directory.join(format!("seccomp-{}.json", filter.name()));
                let name = path.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
                // An engine never reads half a file, and never one of another version of ours.
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
