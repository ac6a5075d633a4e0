//! Collects what a program left in its output directory, without following anything that it planted.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ringfence_policy::OutputFile;

use super::destination::{Destination, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, handle};

/// The most files, taken and left, that are told of.
const MAX_FILES: usize = 1_000;
/// The deepest directory that is entered.
const MAX_DEPTH: usize = 16;

/// What was found, and what could not be taken along.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Harvest {
    pub(crate) files: Vec<OutputFile>,
    pub(crate) warnings: Vec<String>,
}

/// What lies in an output directory that was to be opened.
pub(crate) fn collect_from(
    source: io::Result<OwnedFd>,
    destination: Option<&Destination>,
    limit: u64,
) -> Harvest {
    match source {
        // An empty directory is the common case, and is found so in one call.
        Ok(source) => collect(&source, destination, limit),
        Err(error) => Harvest {
            files: Vec::new(),
            warnings: vec![format!("the output files could not be collected: {error}")],
        },
    }
}

/// Lists the regular files below `source` and, if there is a `destination`, copies them to it.
///
/// Only regular files are taken: no links, devices, pipes or sockets. `limit` bounds the bytes copied, which a
/// sparse file could otherwise make any number.
fn collect(source: &OwnedFd, destination: Option<&Destination>, limit: u64) -> Harvest {
    let mut harvest = Harvest::default();
    let mut left = limit;
    let result = source.try_clone().and_then(|source| {
        walk(
            &File::from(source),
            Path::new(""),
            destination,
            &mut left,
            &mut harvest,
        )
    });
    if let Err(error) = result {
        harvest
            .warnings
            .push(format!("not all output files were collected: {error}"));
    }
    harvest.files.sort_by(|a, b| a.path.cmp(&b.path));
    harvest
}

fn walk(
    directory: &File,
    prefix: &Path,
    destination: Option<&Destination>,
    left: &mut u64,
    harvest: &mut Harvest,
) -> io::Result<()> {
    let handle = handle(directory);
    for entry in fs::read_dir(&handle)? {
        let name = entry?.file_name();
        let path = prefix.join(&name);
        if harvest.files.len() + harvest.warnings.len() >= MAX_FILES || path.components().count() > MAX_DEPTH
        {
            return Err(io::Error::other(format!(
                "more than {MAX_FILES} files or {MAX_DEPTH} levels"
            )));
        }
        // The name is the last component, so nothing planted is followed; O_NONBLOCK, so that no pipe holds us up.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(O_NOFOLLOW | O_NONBLOCK)
            .open(handle.join(&name));
        let Ok(file) = opened else {
            harvest.warnings.push(format!(
                "{} is not a readable regular file and was left",
                path.display()
            ));
            continue;
        };
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            walk(&file, &path, destination, left, harvest)?;
        } else if metadata.is_file() {
            let bytes = metadata.len();
            if let Some(destination) = destination {
                *left = left
                    .checked_sub(bytes)
                    .ok_or_else(|| io::Error::other(format!("{} exceeds the disk limit", path.display())))?;
                if let Err(error) = destination.deliver(file, &path, bytes) {
                    harvest
                        .warnings
                        .push(format!("{} could not be copied: {error}", path.display()));
                    continue;
                }
            }
            harvest.files.push(OutputFile {
                path: path.display().to_string(),
                bytes,
            });
        } else {
            harvest
                .warnings
                .push(format!("{} is not a regular file and was left", path.display()));
        }
    }
    Ok(())
}

/// A handle on a directory of the host.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_DIRECTORY | O_NOFOLLOW)
        .open(path)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn fixture() -> (tempfile::TempDir, OwnedFd) {
        let source = tempfile::tempdir().unwrap();
        fs::create_dir(source.path().join("sub")).unwrap();
        fs::write(source.path().join("sub/a.txt"), "hello").unwrap();
        symlink("/etc/passwd", source.path().join("planted")).unwrap();
        symlink("/etc", source.path().join("planted-directory")).unwrap();
        let handle = open_directory(source.path()).unwrap();
        (source, handle)
    }

    fn destination(directory: &tempfile::TempDir) -> Destination {
        Destination::open(&directory.path().canonicalize().unwrap()).unwrap()
    }

    #[test]
    fn takes_regular_files_and_follows_nothing() {
        let (_source, handle) = fixture();
        let target = tempfile::tempdir().unwrap();
        let harvest = collect(&handle, Some(&destination(&target)), 1 << 20);
        assert_eq!(
            harvest.files,
            [OutputFile {
                path: "sub/a.txt".to_owned(),
                bytes: 5
            }]
        );
        assert_eq!(harvest.warnings.len(), 2);
        assert_eq!(
            fs::read_to_string(target.path().join("sub/a.txt")).unwrap(),
            "hello"
        );
        assert!(!target.path().join("planted").exists());
    }

    #[test]
    fn a_sparse_file_does_not_fill_the_host() {
        let (source, handle) = fixture();
        File::create(source.path().join("huge"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let target = tempfile::tempdir().unwrap();
        let harvest = collect(&handle, Some(&destination(&target)), 1 << 20);
        assert!(
            harvest
                .warnings
                .iter()
                .any(|warning| warning.contains("disk limit")),
            "{harvest:?}"
        );
        assert!(!target.path().join("huge").exists());
    }

    #[test]
    fn a_link_at_the_destination_is_replaced_not_followed() {
        let (_source, handle) = fixture();
        let target = tempfile::tempdir().unwrap();
        let victim = target.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::create_dir(target.path().join("sub")).unwrap();
        symlink(&victim, target.path().join("sub/a.txt")).unwrap();
        collect(&handle, Some(&destination(&target)), 1 << 20);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(
            fs::read_to_string(target.path().join("sub/a.txt")).unwrap(),
            "hello"
        );
    }

    #[test]
    fn a_linked_directory_at_the_destination_is_not_entered() {
        let (_source, handle) = fixture();
        let target = tempfile::tempdir().unwrap();
        let precious = tempfile::tempdir().unwrap();
        symlink(precious.path(), target.path().join("sub")).unwrap();
        let harvest = collect(&handle, Some(&destination(&target)), 1 << 20);
        assert_eq!(harvest.files, []);
        assert!(
            harvest
                .warnings
                .iter()
                .any(|warning| warning.starts_with("sub/a.txt could not be copied")),
            "{harvest:?}"
        );
        assert_eq!(fs::read_dir(precious.path()).unwrap().count(), 0);
    }
}
