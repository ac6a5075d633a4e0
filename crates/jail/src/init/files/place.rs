//! Stores records in a directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::staged::PREFIX;
use super::{Attributes, FilePath, Reason, Record, identity};

/// Stores the files of `input` in the directory `root`, and removes those it marks as gone. Answers for each
/// file with its new [`Record::Known`] identity, or the reason why it was not stored.
///
/// # Errors
/// If the input is invalid, or the answers cannot be written.
pub fn place(root: &Path, mut input: impl Read, mut out: impl Write) -> io::Result<()> {
    loop {
        let record = Record::read(&mut input)?;
        match record {
            Record::Directory(path) => {
                if let Err(error) = directory(&root.join(path.as_path())) {
                    answer(&path, &error, &mut out)?;
                }
            }
            Record::File {
                path,
                size,
                attributes,
                ..
            } => {
                let mut content = (&mut input).take(size);
                let target = root.join(path.as_path());
                let written = file(&target, &mut content, attributes);
                io::copy(&mut content, &mut io::sink())?;
                match written {
                    Ok(identity) => Record::Known { path, identity }.write(&mut out)?,
                    Err(error) => answer(&path, &error, &mut out)?,
                }
            }
            Record::Gone(path) => {
                // The next collection finds files that cannot be removed.
                let _ = remove(&root.join(path.as_path()));
            }
            Record::End { .. } => {
                Record::End { complete: true }.write(&mut out)?;
                return out.flush();
            }
            other => return Err(io::Error::other(format!("{other:?} is nothing to place"))),
        }
    }
}

fn answer(path: &FilePath, error: &io::Error, out: &mut impl Write) -> io::Result<()> {
    let full = matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    );
    let why = if full { Reason::Room } else { Reason::Denied };
    let path = path.as_path().to_path_buf();
    Record::Left { path, why }.write(out)
}

/// Creates a directory; a file with its name is replaced.
fn directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if fs::symlink_metadata(path)?.is_dir() {
                return Ok(());
            }
            fs::remove_file(path)?;
            fs::create_dir(path)
        }
        made => made,
    }
}

/// Writes a file beside its destination and renames it: it is never seen incomplete, and no symbolic link is
/// followed.
fn file(path: &Path, content: &mut impl Read, attributes: Attributes) -> io::Result<u64> {
    let beside = beside(path);
    // Left by a killed process.
    let _ = fs::remove_file(&beside);
    let written = fill(&beside, content, attributes).and_then(|file| {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            fs::remove_dir_all(path)?;
        }
        fs::rename(&beside, path)?;
        Ok(identity(&file.metadata()?))
    });
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

fn fill(path: &Path, content: &mut impl Read, attributes: Attributes) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    io::copy(content, &mut file)?;
    file.flush()?;
    attributes.apply(&file)?;
    Ok(file)
}

fn beside(path: &Path) -> PathBuf {
    path.with_file_name(format!("{PREFIX}{}", std::process::id()))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}
