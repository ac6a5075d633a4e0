//! Writes a directory of this machine as an archive.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use ringfence_tar::{Kind, Member, Writer};
use ringfence_trust::Directory;

use super::{MAX_DEPTH, MAX_ENTRIES, MAX_PATH, OnProgress, Progress, Reason, Report, TreeError};

/// Writes the entries of a directory with paths relative to it. Links stay links; what cannot be copied is left out and
/// named.
pub(crate) fn pack(root: &Directory, out: &mut dyn Write, progress: OnProgress) -> Result<Report, TreeError> {
    let mut packing = Packing {
        writer: Writer::new(out),
        path: PathBuf::new(),
        report: Report::default(),
        progress,
    };
    let names = root
        .names(MAX_ENTRIES as usize)
        .map_err(|source| packing.unreadable(source))?;
    for name in names {
        packing.named(root, &name, 1)?;
    }
    packing.writer.finish().map_err(TreeError::Output)?;
    Ok(packing.report)
}

struct Packing<'a> {
    writer: Writer<&'a mut dyn Write>,
    /// Path of the present entry.
    path: PathBuf,
    report: Report,
    progress: OnProgress,
}

impl Packing<'_> {
    fn named(&mut self, parent: &Directory, name: &OsStr, depth: usize) -> Result<(), TreeError> {
        self.path.push(name);
        let done = self.entry(parent, name, depth);
        self.path.pop();
        let state = self.state();
        (self.progress)(state);
        done
    }

    fn state(&self) -> Progress {
        Progress {
            entries: self.report.entries,
            bytes: self.report.bytes,
        }
    }

    fn entry(&mut self, parent: &Directory, name: &OsStr, depth: usize) -> Result<(), TreeError> {
        if self.report.entries + self.report.skipped >= MAX_ENTRIES {
            return Err(TreeError::TooMany);
        }
        // It was removed meanwhile.
        let Ok(found) = parent.stat(name) else {
            return Ok(());
        };
        if self.path.as_os_str().len() >= MAX_PATH || depth > MAX_DEPTH {
            self.skip(Reason::TooLong);
            return Ok(());
        }
        if found.is_dir() {
            return self.directory(parent, name, depth);
        }
        if found.is_file() {
            return self.file(parent, name);
        }
        match (found.is_symlink(), parent.link_target(name)) {
            (true, Ok(target)) => self.member(Kind::Symlink, &found, &target),
            (true, Err(error)) => {
                self.missing(&error);
                Ok(())
            }
            (false, _) => {
                self.skip(Reason::Special);
                Ok(())
            }
        }
    }

    fn directory(&mut self, parent: &Directory, name: &OsStr, depth: usize) -> Result<(), TreeError> {
        let opened = parent.readable_child(name).and_then(|opened| {
            let names = opened.names(MAX_ENTRIES as usize)?;
            Ok((parent.stat(name)?, opened, names))
        });
        let (found, opened, names) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.missing(&error);
                return Ok(());
            }
        };
        self.member(Kind::Directory, &found, OsStr::new(""))?;
        names
            .iter()
            .try_for_each(|name| self.named(&opened, name, depth + 1))
    }

    fn file(&mut self, parent: &Directory, name: &OsStr) -> Result<(), TreeError> {
        let opened = parent
            .open_file(name)
            .and_then(|file| Ok((file.metadata()?, file)));
        let (found, file) = match opened {
            Ok((found, file)) if found.is_file() => (found, file),
            // Something else took its place.
            Ok(_) => {
                self.skip(Reason::Changed);
                return Ok(());
            }
            Err(error) => {
                self.missing(&error);
                return Ok(());
            }
        };
        self.member(Kind::File, &found, OsStr::new(""))?;
        let (entries, before) = (self.report.entries, self.report.bytes);
        let mut content = Content {
            file,
            read: 0,
            each: |read| {
                (self.progress)(Progress {
                    entries,
                    bytes: before + read,
                });
            },
        };
        let copied = self
            .writer
            .content(found.len(), &mut content)
            .map_err(TreeError::Output)?;
        self.report.bytes += copied;
        if copied < found.len() {
            self.skip(Reason::Changed);
        }
        Ok(())
    }

    fn member(&mut self, kind: Kind, found: &Metadata, target: &OsStr) -> Result<(), TreeError> {
        let mut path = self.path.clone().into_os_string().into_vec();
        if kind == Kind::Directory {
            path.push(b'/');
        }
        self.report.entries += 1;
        let member = Member {
            path,
            target: target.as_bytes().to_vec(),
            kind,
            mode: found.mode() & 0o777,
            uid: 0,
            gid: 0,
            size: if kind == Kind::File { found.len() } else { 0 },
            modified: u64::try_from(found.mtime()).unwrap_or_default(),
        };
        self.writer.member(&member).map_err(TreeError::Output)
    }

    /// Notes an entry that cannot be opened, unless it is simply gone.
    fn missing(&mut self, error: &io::Error) {
        match error.kind() {
            ErrorKind::NotFound => {}
            _ => self.skip(Reason::Denied),
        }
    }

    fn skip(&mut self, reason: Reason) {
        self.report.skip(&self.path, reason);
    }

    fn unreadable(&self, source: io::Error) -> TreeError {
        let path = match self.path.as_os_str().is_empty() {
            true => "the directory".to_owned(),
            false => self.path.to_string_lossy().into_owned(),
        };
        TreeError::Read { path, source }
    }
}

/// A file's content, whose read errors count as its end: the rest is zeros.
struct Content<F> {
    file: File,
    read: u64,
    each: F,
}

impl<F: FnMut(u64)> Read for Content<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer).unwrap_or_default();
        self.read += read as u64;
        (self.each)(self.read);
        Ok(read)
    }
}
