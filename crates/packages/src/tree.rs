//! Unpacks the archive of an installation's files and directories into an empty directory, within limits.
//!
//! The archive is hostile. No path of it leaves the directory, no file is written twice, and any link, device or special
//! file refuses the whole.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use ringfence_policy::Bytes;
use ringfence_tar::{Kind, Member, Reader, TarError};
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::ecosystem::Ecosystem;
use crate::requirement::shown;

/// Maximum number of files and directories.
const MAX_ENTRIES: usize = 200_000;
/// Maximum size of all files.
pub(crate) const MAX_BYTES: Bytes = Bytes::mib(4 * 1024);
/// Maximum length of a path, and maximum number of its components.
const MAX_PATH: usize = 1024;
const MAX_DEPTH: usize = 32;
/// Maximum number of packages. Their names fit into the record of an environment, and into a result.
const MAX_PACKAGES: usize = 1000;

/// An unpacked tree.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Digest of paths, contents and execute bits, independent of their order in the archive.
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
    /// Names and versions of the packages in it.
    pub(crate) packages: Vec<String>,
}

/// An archive is not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error(transparent)]
    Archive(#[from] TarError),
    #[error("`{0}` is not a path below the environment")]
    Path(String),
    #[error("`{0}` is neither a file nor a directory")]
    Kind(String),
    #[error("`{0}` is there twice")]
    Twice(String),
    #[error("it has more than {MAX_ENTRIES} files and directories")]
    Many,
    #[error("its files are larger than {MAX_BYTES} together")]
    Large,
    #[error("it has more than {MAX_PACKAGES} packages")]
    Packages,
    #[error("cannot write `{path}`: {source}")]
    Write { path: String, source: io::Error },
}

/// Unpacks an archive into `root`, which must exist and be empty.
pub(crate) fn unpack(input: impl Read, root: &Path, ecosystem: Ecosystem) -> Result<Tree, TreeError> {
    let mut reader = Reader::new(input);
    let mut unpacking = Unpacking {
        root,
        package: ecosystem.facts().package,
        contents: BTreeMap::new(),
        entries: 0,
        left: MAX_BYTES.0,
    };
    while let Some(member) = reader.member()? {
        unpacking.take(&member, &mut reader.content())?;
    }
    reader.finish_input()?;
    unpacking.finished()
}

struct Unpacking<'a> {
    root: &'a Path,
    /// Returns the package whose metadata a directory is.
    package: fn(&Path) -> Option<String>,
    /// Digest and mode of each file; `None` for a directory.
    contents: BTreeMap<PathBuf, Option<([u8; 32], u32)>>,
    entries: usize,
    /// Remaining bytes.
    left: u64,
}

impl Unpacking<'_> {
    fn take(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), TreeError> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(TreeError::Many);
        }
        let path = below(&member.path)?;
        match member.kind {
            Kind::Directory => self.enter(&path),
            Kind::File => {
                self.left = self.left.checked_sub(member.size).ok_or(TreeError::Large)?;
                path.parent().map_or(Ok(()), |parent| self.enter(parent))?;
                self.write(path, member, content)
            }
            Kind::HardLink | Kind::Symlink | Kind::Fifo | Kind::Device | Kind::Other(_) => {
                Err(TreeError::Kind(shown_path(&path)))
            }
        }
    }

    /// Makes a directory and those above it, unless they are there.
    fn enter(&mut self, path: &Path) -> Result<(), TreeError> {
        let mut entered = PathBuf::new();
        for name in path {
            entered.push(name);
            match self.contents.get(&entered) {
                Some(None) => continue,
                Some(Some(_)) => return Err(TreeError::Twice(shown_path(&entered))),
                None => {}
            }
            // Parents that the archive leaves out count, too.
            if self.contents.len() >= MAX_ENTRIES {
                return Err(TreeError::Many);
            }
            let at = self.root.join(&entered);
            let made = DirBuilder::new().mode(0o755).create(&at);
            // The mask of this process must not keep guests from reading.
            made.and_then(|()| fs::set_permissions(&at, Permissions::from_mode(0o755)))
                .map_err(|source| unwritten(&entered, source))?;
            self.contents.insert(entered.clone(), None);
        }
        Ok(())
    }

    fn write(&mut self, path: PathBuf, member: &Member, content: &mut dyn Read) -> Result<(), TreeError> {
        if self.contents.contains_key(&path) {
            return Err(TreeError::Twice(shown_path(&path)));
        }
        // Nothing else of the mode is kept: no set-id, no write access for others.
        let mode = if member.mode & 0o111 == 0 { 0o644 } else { 0o755 };
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(self.root.join(&path))
            .and_then(|file| {
                file.set_permissions(Permissions::from_mode(mode))?;
                Ok(file)
            });
        let file = made.map_err(|source| unwritten(&path, source))?;
        let digest = copied(content, &file, &path)?;
        self.contents.insert(path, Some((digest, mode)));
        Ok(())
    }

    fn finished(self) -> Result<Tree, TreeError> {
        let mut hasher = Sha256::new();
        let mut packages = Vec::new();
        for (path, content) in &self.contents {
            let bytes = path.as_os_str().as_encoded_bytes();
            hasher.update((bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
            // A directory and a file of the same name differ by the first byte.
            hasher.update([u8::from(content.is_some())]);
            match content {
                Some((digest, mode)) => {
                    hasher.update(mode.to_le_bytes());
                    hasher.update(digest);
                }
                None => packages.extend((self.package)(path)),
            }
        }
        if packages.len() > MAX_PACKAGES {
            return Err(TreeError::Packages);
        }
        Ok(Tree {
            digest: Digest::finished(hasher),
            bytes: MAX_BYTES.0 - self.left,
            packages,
        })
    }
}

/// Returns the path of a member, if it lies below the root: plain names in UTF-8, not too many.
fn below(path: &[u8]) -> Result<PathBuf, TreeError> {
    let outside = || TreeError::Path(shown(&String::from_utf8_lossy(path)));
    let text = std::str::from_utf8(path).map_err(|_| outside())?;
    let found: PathBuf = Path::new(text)
        .components()
        .filter(|component| *component != Component::CurDir)
        .collect();
    let is_plain = found
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    let is_short = text.len() <= MAX_PATH && found.components().count() <= MAX_DEPTH;
    match is_plain && is_short && !text.contains(char::is_control) {
        true => Ok(found),
        false => Err(outside()),
    }
}

/// Copies a content to the file at `path`, and returns its digest.
fn copied(content: &mut dyn Read, mut file: &File, path: &Path) -> Result<[u8; 32], TreeError> {
    let unread = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => TarError::Truncated,
        _ => TarError::Input(error),
    };
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = content.read(&mut buffer).map_err(unread)?;
        if length == 0 {
            return Ok(hasher.finalize().into());
        }
        hasher.update(&buffer[..length]);
        file.write_all(&buffer[..length])
            .map_err(|error| unwritten(path, error))?;
    }
}

fn unwritten(path: &Path, source: io::Error) -> TreeError {
    TreeError::Write {
        path: shown_path(path),
        source,
    }
}

fn shown_path(path: &Path) -> String {
    shown(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_tar::Writer;

    fn member(path: &str, kind: Kind, mode: u32, content: &[u8]) -> (Member, Vec<u8>) {
        let member = Member {
            path: path.as_bytes().to_vec(),
            target: b"/etc/passwd".to_vec(),
            kind,
            mode,
            uid: 0,
            gid: 0,
            size: content.len() as u64,
            modified: 0,
        };
        (member, content.to_vec())
    }

    fn file(path: &str) -> (Member, Vec<u8>) {
        member(path, Kind::File, 0o644, b"x")
    }

    fn archive(members: &[(Member, Vec<u8>)]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        for (member, content) in members {
            writer.member(member).unwrap();
            writer.content(member.size, &mut content.as_slice()).unwrap();
        }
        writer.finish().unwrap()
    }

    fn unpacked(members: &[(Member, Vec<u8>)]) -> (tempfile::TempDir, Result<Tree, TreeError>) {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("root")).unwrap();
        let tree = unpack(
            archive(members).as_slice(),
            &outer.path().join("root"),
            Ecosystem::Python,
        );
        (outer, tree)
    }

    #[test]
    fn files_and_directories_are_written_with_plain_modes() {
        let (outer, tree) = unpacked(&[
            member("./a", Kind::Directory, 0o700, b""),
            member("a/run", Kind::File, 0o6755, b"hello"),
            member("b/c/data", Kind::File, 0o666, b""),
            member("Demo_Pkg-1.0.dist-info", Kind::Directory, 0o755, b""),
        ]);
        let tree = tree.unwrap();
        assert_eq!((tree.bytes, tree.packages), (5, vec!["demo-pkg==1.0".to_owned()]));
        let mode = |path: &str| {
            let found = fs::metadata(outer.path().join("root").join(path)).unwrap();
            found.permissions().mode() & 0o7777
        };
        assert_eq!(mode("a/run"), 0o755);
        assert_eq!(mode("b/c/data"), 0o644);
        assert_eq!(mode("a"), 0o755);
    }

    #[test]
    fn a_hostile_archive_leaves_nothing_outside() {
        for (members, words) in [
            (vec![file("../evil")], "is not a path below"),
            (vec![file("/tmp/evil")], "is not a path below"),
            (vec![file("a/../../evil")], "is not a path below"),
            (vec![file("a\nb")], "is not a path below"),
            (vec![file(&"a/".repeat(40))], "is not a path below"),
            (vec![member("l", Kind::Symlink, 0o777, b"")], "neither a file"),
            (vec![member("l", Kind::HardLink, 0o777, b"")], "neither a file"),
            (vec![member("l", Kind::Device, 0o777, b"")], "neither a file"),
            (vec![member("l", Kind::Fifo, 0o777, b"")], "neither a file"),
            (vec![file("a"), file("a")], "there twice"),
            (vec![file("a"), file("a/b")], "there twice"),
        ] {
            let (outer, tree) = unpacked(&members);
            let error = tree.unwrap_err().to_string();
            assert!(error.contains(words), "{members:?}: {error}");
            assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_size_is_refused_before_it_is_written() {
        let (mut huge, _) = file("huge");
        huge.size = MAX_BYTES.0 + 1;
        let mut writer = Writer::new(Vec::new());
        writer.member(&huge).unwrap();
        let outer = tempfile::tempdir().unwrap();
        let error = unpack(writer.finish().unwrap().as_slice(), outer.path(), Ecosystem::Npm).unwrap_err();
        assert!(matches!(error, TreeError::Large), "{error}");
    }

    #[test]
    fn a_tree_has_no_more_packages_than_its_record_holds() {
        let of = |count: usize| {
            let package = |at| format!("{at}{}-{}.dist-info", "a".repeat(95), "1".repeat(100));
            let members: Vec<_> = (0..count)
                .map(|at| member(&package(at), Kind::Directory, 0o755, b""))
                .collect();
            unpacked(&members).1
        };
        let packages = of(MAX_PACKAGES).unwrap().packages;
        assert_eq!(packages.len(), MAX_PACKAGES);
        let record = serde_json::to_vec(&packages).unwrap().len() as u64;
        assert!(record < crate::store::MAX_RECORD - 1024, "{record}");
        let error = of(MAX_PACKAGES + 1).unwrap_err();
        assert!(matches!(error, TreeError::Packages), "{error}");
    }

    #[test]
    fn a_digest_is_of_the_content_and_not_of_the_order() {
        let digest = |members: &[(Member, Vec<u8>)]| unpacked(members).1.unwrap().digest;
        assert_eq!(digest(&[file("a"), file("b")]), digest(&[file("b"), file("a")]));
        assert_ne!(digest(&[file("a")]), digest(&[file("b")]));
        assert_ne!(
            digest(&[file("a")]),
            digest(&[member("a", Kind::File, 0o644, b"y")])
        );
        assert_ne!(
            digest(&[file("a")]),
            digest(&[member("a", Kind::File, 0o755, b"x")])
        );
    }
}
